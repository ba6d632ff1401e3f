package pgtest_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"tranche/internal/pgtest"
)

func TestExecutionFactory(t *testing.T) {
	t.Parallel()
	tx := pgtest.Tx(t)
	tenant, instance := pgtest.Tenant(t, tx).ID, pgtest.Instance(t, tx, time.Minute)
	e := pgtest.Execution(t, tx, tenant, pgtest.Leased(instance), func(row *pgtest.ExecutionRow) {
		row.Status, row.Result = "running", `{"n":1.10}`
	})
	require.Equal(t, "running", pgtest.ExecutionStatus(t, tx, e.ID))
	require.Equal(t, 1, pgtest.Count(t, tx, "executions", "id = $1 AND lease_process_id = $2", e.ID, instance))
	require.Equal(t, `{"n":1.10}`, pgtest.Text(t, tx, "SELECT result::text FROM execution_payloads WHERE execution_id = $1", e.ID))
	require.Equal(t, []uuid.UUID{e.ID}, pgtest.Values[uuid.UUID](t, tx, "SELECT id FROM executions WHERE tenant_id = $1", tenant))
	require.Zero(t, pgtest.CountJobs(t, tx, "no_such_kind"))
	pgtest.WaitForExecution(t, tx, e.ID, "running")
}

func TestWaitForBlockedBy(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	tenant := pgtest.Tenant(t, pool)
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	pgtest.RevokeTenant(t, tx, tenant.ID)
	done := make(chan error)
	go func() {
		_, err := pool.Exec(t.Context(), "UPDATE tenants SET slug = slug WHERE id = $1", tenant.ID)
		done <- err
	}()
	pgtest.WaitForBlockedBy(t, pool, tx, 1)
	pgtest.WaitForLockWaits(t, pool, 1)
	require.NoError(t, tx.Rollback(t.Context()))
	require.NoError(t, <-done)
	require.Equal(t, 1, pgtest.Count(t, pool, "tenants", "revoked_at IS NULL"))
}
