package secret

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"tranche/queries"
)

// Reseal seals the secrets of all tenants under the first master key. It returns the number
// of secrets that were sealed under another key. It fails with ErrUnknownKey if keys lacks
// that key.
func Reseal(ctx context.Context, tx pgx.Tx, keys *Keyring) (resealed int, err error) {
	q := queries.New()
	rows, err := q.SysSecretListForUpdate(ctx, tx)
	if err != nil {
		return 0, err
	}
	for _, row := range rows {
		sealed, err := keys.Reseal(row.Value, table, row.TenantID.String(), row.Name)
		if err != nil {
			return 0, fmt.Errorf("secret %s of tenant %s: %w", row.Name, row.TenantID, err)
		}
		if sealed == nil {
			continue
		}
		if err := q.SecretReseal(ctx, tx, queries.SecretResealParams{TenantID: row.TenantID, Name: row.Name, Value: sealed}); err != nil {
			return 0, err
		}
		resealed++
	}
	return resealed, nil
}
