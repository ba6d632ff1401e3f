package execution_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"tranche/internal/engine"
	"tranche/internal/execution"
	"tranche/internal/pgtest"
	"tranche/internal/targettest"
)

// A cancel that waits for a retry to commit ends the new attempt, not the old one again.
func TestCancelAfterConcurrentRetry(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s, _ := b.process(t)
	b.target.SetAnswer(targettest.Status(http.StatusBadRequest))
	b.release()
	e, err := s.Run(t.Context(), b.calling(t, ""), 0)
	require.NoError(t, err)
	require.Equal(t, engine.StatusFailed, e.Status)

	cancelled := make(chan error, 1)
	retried, err := s.Retry(t.Context(), execution.RetryRequest{
		TenantID: b.tenant, ID: e.ID, Recorded: func(context.Context, pgx.Tx, *execution.Retried) error {
			go func() { cancelled <- s.Cancel(t.Context(), b.tenant, e.ID) }()
			pgtest.WaitForLockWaits(t, b.pool, 1)
			return nil
		},
	})
	require.NoError(t, err)
	require.NoError(t, <-cancelled)
	require.Equal(t, "cancelled", b.status(t, e.ID))
	require.Equal(t, "2", b.text(t, `SELECT state ->> 'attempt' FROM execution_payloads WHERE execution_id = $1`, e.ID))
	at := b.completedAt(t)
	require.False(t, at.Before(retried.AcceptedAt.Truncate(time.Microsecond)), "%s is before %s", at, retried.AcceptedAt)
}
