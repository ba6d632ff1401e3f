package consent_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"tranche/internal/consent"
	"tranche/internal/message"
	"tranche/internal/seal"
)

// An expired message that cannot be wiped does not keep those after it.
func TestWipingGoesOn(t *testing.T) {
	t.Parallel()
	o := open(t, seal.Generate())
	var codes []uuid.UUID
	for i := range 3 {
		id := o.create(t)
		otp, err := o.StartSigning(t.Context(), o.tenantID, id, o.actor, consent.SigningRequest{
			Channel: message.Email, Value: id.String() + "@example.com", TemplateID: consent.DefaultTemplate,
		})
		require.NoError(t, err)
		_, err = o.pool.Exec(t.Context(), `UPDATE one_time_passwords SET expires_at = now() - $1::interval WHERE id = $2`,
			time.Duration(10-i)*time.Minute, otp.ID)
		require.NoError(t, err)
		codes = append(codes, otp.ID)
	}
	_, err := o.pool.Exec(t.Context(), `ALTER TABLE one_time_passwords ADD CHECK (message IS NOT NULL OR id <> '`+codes[0].String()+`')`)
	require.NoError(t, err)
	require.ErrorContains(t, o.WipeExpired(t.Context()), codes[0].String())
	var sealed []uuid.UUID
	require.NoError(t, o.pool.QueryRow(t.Context(), `SELECT array_agg(id) FROM one_time_passwords WHERE message IS NOT NULL`).Scan(&sealed))
	require.Equal(t, codes[:1], sealed)
}
