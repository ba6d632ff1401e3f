package execution_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"tranche/internal/catalog"
	"tranche/internal/egress"
	"tranche/internal/engine"
	"tranche/internal/exactjson"
	"tranche/internal/execution"
	"tranche/internal/liveness"
	"tranche/internal/pgtest"
	"tranche/internal/targettest"
	"tranche/internal/task"
	"tranche/jobs"
)

// bundle is a tenant on a database of its own, and a target that workflows call. The
// target's calls wait for their answers until release is called.
type bundle struct {
	pool    *pgxpool.Pool
	catalog *catalog.Catalog
	tenant  uuid.UUID
	target  *targettest.Target
	release func()
}

func setup(t *testing.T) *bundle {
	t.Helper()
	open, err := egress.ParseAllow("127.0.0.1/32")
	require.NoError(t, err)
	pool := pgtest.Pool(t)
	b := &bundle{
		pool:    pool,
		catalog: catalog.New(pool, task.Types(task.Ports{HTTP: egress.New(open)})),
		tenant:  pgtest.Tenant(t, pool).ID,
		target:  targettest.New(t, targettest.WithAnswer(targettest.JSON(`{"said":1.10}`))),
	}
	b.release = b.target.Hold()
	return b
}

// process returns a service with a process of its own, which lives until kill is called.
func (b *bundle) process(t *testing.T) (s *execution.Service, kill func()) {
	t.Helper()
	id, log := pgtest.Instance(t, b.pool, 0), slog.New(slog.DiscardHandler)
	client, err := jobs.NewClient(b.pool, jobs.Config{ProcessID: id, Logger: log})
	require.NoError(t, err)
	s = execution.New(execution.Config{
		Pool: b.pool, Jobs: client, Catalog: b.catalog, ProcessID: id, Clock: time.Now, Log: log,
		Runner: &engine.Runner{Clock: time.Now, Log: log},
	})
	t.Cleanup(func() { s.Stop(context.Background()) })
	return s, func() { pgtest.AgeHeartbeat(t, b.pool, id, time.Minute) }
}

// request publishes a workflow and returns a request to execute it.
func (b *bundle) request(t *testing.T, alias, tasks, edges, input string) execution.Request {
	t.Helper()
	w, err := b.catalog.Create(t.Context(), b.tenant, alias, catalog.Content{
		Name: alias, InputSchema: json.RawMessage(`{"type":"object"}`), Tasks: json.RawMessage(tasks), Edges: json.RawMessage(edges),
	})
	require.NoError(t, err)
	_, err = b.catalog.Publish(t.Context(), b.tenant, w.ID)
	require.NoError(t, err)
	_, plan, err := b.catalog.Resolve(t.Context(), b.tenant, alias, "v1")
	require.NoError(t, err)
	value, err := exactjson.Decode([]byte(input))
	require.NoError(t, err)
	members, ok := value.(map[string]any)
	require.True(t, ok)
	return execution.Request{TenantID: b.tenant, PrincipalID: "tester", WorkflowID: w.ID, Plan: plan, Input: members}
}

// pure returns a request to execute a workflow without effects. Its output is {"twice":2.2}.
func (b *bundle) pure(t *testing.T) execution.Request {
	t.Helper()
	return b.request(t, "pure", `[
		{"id":"double","type":"transform","config":{"fields":{"twice":"{{ input.n * 2 }}"}}},
		{"id":"done","type":"end","config":{"output":{"twice":"{{ tasks.double.output.twice }}"},"tags":["doubled"]}}]`,
		`[{"source":"start","target":"double"},{"source":"double","target":"done"}]`, `{"n":1.10}`)
}

// calling returns a request to execute a workflow that calls the target once and outputs
// its answer.
func (b *bundle) calling(t *testing.T, config string) execution.Request {
	t.Helper()
	return b.request(t, "calling", `[
		{"id":"ask","type":"http-request","config":{"method":"POST","url":"`+b.target.URL+`/ask"`+config+`}},
		{"id":"done","type":"end","config":{"output":{"said":"{{ tasks.ask.output.body.said }}"}}}]`,
		`[{"source":"start","target":"ask"},{"source":"ask","target":"done"}]`, `{}`)
}

func (b *bundle) text(t *testing.T, sql string, args ...any) string {
	t.Helper()
	return pgtest.Text(t, b.pool, sql, args...)
}

func (b *bundle) status(t *testing.T, id uuid.UUID) string {
	t.Helper()
	return pgtest.ExecutionStatus(t, b.pool, id)
}

// onlyID returns the id of the only execution.
func (b *bundle) onlyID(t *testing.T) uuid.UUID {
	t.Helper()
	return pgtest.Value[uuid.UUID](t, b.pool, "SELECT id FROM executions")
}

// completedAt returns when the only execution completed.
func (b *bundle) completedAt(t *testing.T) time.Time {
	t.Helper()
	return pgtest.Value[time.Time](t, b.pool, "SELECT completed_at FROM executions")
}

// refuseEnds makes the database refuse to complete executions until allow is called.
func (b *bundle) refuseEnds(t *testing.T) (allow func()) {
	t.Helper()
	pgtest.Exec(t, b.pool, "ALTER TABLE executions ADD CONSTRAINT refused CHECK (status <> 'completed')")
	return func() { pgtest.Exec(t, b.pool, "ALTER TABLE executions DROP CONSTRAINT refused") }
}

// jobs returns the executions of available jobs.
func (b *bundle) jobs(t *testing.T) []uuid.UUID {
	t.Helper()
	return pgtest.Values[uuid.UUID](t, b.pool, `SELECT (args ->> 'execution_id')::uuid FROM river.river_job j
		JOIN executions e ON e.id = (args ->> 'execution_id')::uuid AND e.tenant_id = (args ->> 'tenant_id')::uuid
		WHERE j.kind = 'task_execution' AND j.queue = 'execution' AND j.state = 'available' AND j.max_attempts = 1000`)
}

// leases returns the leased executions.
func (b *bundle) leases(t *testing.T) []uuid.UUID {
	t.Helper()
	return pgtest.Values[uuid.UUID](t, b.pool, `SELECT id FROM executions WHERE lease_token IS NOT NULL AND lease_process_id IS NOT NULL`)
}

// continueAbandoned waits until the only execution has a job and no lease, and completes
// it. Afterwards so many calls have been made, with the same key.
func (b *bundle) continueAbandoned(t *testing.T, s *execution.Service, calls int) {
	t.Helper()
	pgtest.WaitFor(t, "a job and no lease", func() bool { return len(b.jobs(t)) == 1 && len(b.leases(t)) == 0 })
	b.complete(t, s, b.jobs(t)[0])
	require.Equal(t, map[string]int{b.jobs(t)[0].String() + "/ask": calls}, b.target.CallsByKey())
}

// complete continues an execution as its job does, and requires that this completes it.
func (b *bundle) complete(t *testing.T, s *execution.Service, id uuid.UUID) {
	t.Helper()
	holding, err := s.Continue(t.Context(), b.tenant, id)
	require.NoError(t, err)
	require.Equal(t, execution.Held, holding)
	require.Equal(t, "completed", b.status(t, id))
}

// recover recovers what dead processes left, and returns the number of new jobs.
func (b *bundle) recover(t *testing.T, dead liveness.Dead) (n int64) {
	t.Helper()
	require.NoError(t, pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) (err error) {
		n, err = execution.RecoverAbandoned(t.Context(), tx, dead)
		return err
	}))
	return n
}

// stopNow stops a service without waiting for its runs.
func stopNow(t *testing.T, s *execution.Service) {
	t.Helper()
	now, cancel := context.WithCancel(t.Context())
	cancel()
	s.Stop(now)
}

// result is what Run returned.
type result struct {
	execution execution.Execution
	err       error
}

// goRun executes a request in a goroutine.
func goRun(s *execution.Service, req execution.Request) <-chan result {
	ended := make(chan result, 1)
	go func() {
		e, err := s.Run(context.Background(), req, 0)
		ended <- result{e, err}
	}()
	return ended
}
