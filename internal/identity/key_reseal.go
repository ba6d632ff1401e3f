package identity

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"tranche/internal/secret"
	"tranche/queries"
)

// ResealKeys seals the signing keys under the first master key and returns how many
// were sealed under another. It fails with secret.ErrUnknownKey where master lacks that.
func ResealKeys(ctx context.Context, tx pgx.Tx, master *secret.Keyring) (resealed int, err error) {
	q := queries.New()
	rows, err := q.SysSigningKeyListForUpdate(ctx, tx)
	if err != nil {
		return 0, err
	}
	for _, row := range rows {
		sealed, err := master.Reseal(row.PrivateKey, keyTable, row.ID)
		if err != nil {
			return 0, fmt.Errorf("signing key %s: %w", row.ID, err)
		}
		if sealed == nil {
			continue
		}
		if err := q.SysSigningKeyReseal(ctx, tx, queries.SysSigningKeyResealParams{ID: row.ID, PrivateKey: sealed}); err != nil {
			return 0, err
		}
		resealed++
	}
	return resealed, nil
}
