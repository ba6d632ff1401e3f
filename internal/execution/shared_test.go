package execution

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"tranche/internal/engine"
	"tranche/internal/pgtest"
)

// What shares a statement is told apart by tenant and by lease.
func TestSharedStatementsKeepCallersApart(t *testing.T) {
	t.Parallel()
	db := pgtest.Tx(t)
	own, foreign := pgtest.Tenant(t, db).ID, pgtest.Tenant(t, db).ID
	workflow := pgtest.PublishedWorkflow(t, db, own).ID
	leased, free, token := pgtest.NewID(t), pgtest.NewID(t), uuid.New()
	row := func(id, lease uuid.UUID) *newExecution {
		return &newExecution{ID: id, TenantID: own, WorkflowID: workflow, PrincipalID: "tester", Status: engine.StatusPending, Input: []byte(`{}`), LeaseToken: lease}
	}
	inserts, err := insertAll(t.Context(), db, []*newExecution{row(leased, token), row(free, uuid.Nil)})
	require.NoError(t, err)
	require.Equal(t, []inserted{{ok: true}, {ok: true}}, inserts)

	rows, err := readAll(t.Context(), db, []reference{{foreign, leased}, {own, leased}, {own, free}, {own, foreign}})
	require.NoError(t, err)
	require.Nil(t, rows[0], "of another tenant")
	require.Equal(t, leased, rows[1].ID)
	require.Equal(t, free, rows[2].ID)
	require.Nil(t, rows[3], "unknown")

	end := func(tenant, id, lease uuid.UUID) finish {
		return finish{Finished: &Finished{
			TenantID: tenant, ID: id, LeaseToken: lease, Attempt: 1, Tags: []string{`a "b"`}, At: time.Now(),
			Outcome: &engine.Outcome{Status: engine.StatusCompleted}, State: []byte(`{}`), ResultText: []byte(`{"n":1.10}`),
		}}
	}
	ends := []finish{end(own, leased, uuid.New()), end(own, leased, token), end(foreign, free, token), end(own, free, token), end(own, free, uuid.Nil)}
	won, err := finishAll(t.Context(), db, ends)
	require.NoError(t, err)
	require.Equal(t, []int64{0, 1, 0, 0, 1}, won, "only who holds the lease, or nobody's, ends")
	won, err = finishAll(t.Context(), db, ends)
	require.NoError(t, err)
	require.Equal(t, []int64{0, 0, 0, 0, 0}, won, "once")

	var text string
	require.NoError(t, db.QueryRow(t.Context(), `SELECT concat_ws(' ', e.status, e.is_success, e.tags, p.result)
		FROM executions e JOIN execution_payloads p ON p.execution_id = e.id WHERE e.id = $1`, leased).Scan(&text))
	require.Equal(t, `completed t {"a \"b\""} {"n":1.10}`, text)
}
