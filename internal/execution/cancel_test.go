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
)

// A cancel that waits for a retry to commit ends the attempt that this began, in its
// own time, and not the attempt before once more.
func TestCancelAfterARetryItWaitedFor(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s, _ := b.process(t)
	b.target.status = http.StatusBadRequest
	close(b.target.let)
	e, err := s.Run(t.Context(), b.calling(t, ""), 0)
	require.NoError(t, err)
	require.Equal(t, engine.StatusFailed, e.Status)

	cancelled := make(chan error, 1)
	retried, err := s.Retry(t.Context(), execution.RetryRequest{
		TenantID: b.tenant, ID: e.ID, Recorded: func(context.Context, pgx.Tx, *execution.Retried) error {
			go func() { cancelled <- s.Cancel(t.Context(), b.tenant, e.ID) }()
			require.Eventually(t, func() bool {
				return b.text(t, `SELECT count(*)::text FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) == "1"
			}, 10*time.Second, 10*time.Millisecond)
			return nil
		},
	})
	require.NoError(t, err)
	require.NoError(t, <-cancelled)

	var status, state string
	var completedAt time.Time
	require.NoError(t, b.pool.QueryRow(t.Context(), `SELECT e.status, e.completed_at, p.state ->> 'attempt'
		FROM executions e JOIN execution_payloads p ON p.execution_id = e.id WHERE e.id = $1`, e.ID).Scan(&status, &completedAt, &state))
	require.Equal(t, "cancelled", status)
	require.Equal(t, "2", state)
	require.False(t, completedAt.Before(retried.AcceptedAt.Truncate(time.Microsecond)), "%s is before %s", completedAt, retried.AcceptedAt)
}
