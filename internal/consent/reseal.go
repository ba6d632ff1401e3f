package consent

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"tranche/internal/secret"
	"tranche/queries"
)

// ResealHeads seals the ends of all chains of evidence under the first master key and
// returns how many were sealed under another. It fails with secret.ErrUnknownKey where
// keys lacks that, and with secret.ErrBroken where somebody has moved an end.
func ResealHeads(ctx context.Context, tx pgx.Tx, keys *secret.Keyring) (resealed int, err error) {
	q := queries.New()
	rows, err := q.SysEvidenceHeadListForUpdate(ctx, tx)
	if err != nil {
		return 0, err
	}
	for _, row := range rows {
		sealed, err := keys.Reseal(row.Seal, headTable, row.TenantID.String())
		if err != nil {
			return 0, fmt.Errorf("the end of the evidence of tenant %s: %w", row.TenantID, err)
		}
		if sealed == nil {
			continue
		}
		if err := q.EvidenceHeadReseal(ctx, tx, queries.EvidenceHeadResealParams{TenantID: row.TenantID, Seal: sealed}); err != nil {
			return 0, err
		}
		resealed++
	}
	return resealed, nil
}
