package consent_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tranche/internal/consent"
	"tranche/internal/fault"
	"tranche/internal/pgtest"
	"tranche/internal/secret"
)

// A wrong code costs two transactions: the attempt is counted and in the
// evidence before it is compared, and what came of it is in the evidence too.
func TestBudgetOfAnAttempt(t *testing.T) {
	t.Parallel()
	o := open(t, secret.GenerateKey())
	id := o.create(t)
	otpID, code := o.code(t, id)
	config := o.Config
	var counter *pgtest.Counter
	config.Pool, counter = pgtest.CountedPool(t, o.pool)
	service := consent.New(config)
	attempt := func() {
		err := service.Attempt(t.Context(), o.tenantID, id, otpID, o.actor, wrong(code))
		require.ErrorIs(t, err, fault.Invalid)
	}
	require.Equal(t, pgtest.Cost{Transactions: 2, Trips: 10}, counter.Of(attempt))
}
