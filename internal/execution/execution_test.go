package execution_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tranche/internal/catalog"
	"tranche/internal/egress"
	"tranche/internal/engine"
	"tranche/internal/exactjson"
	"tranche/internal/execution"
	"tranche/internal/pgtest"
	"tranche/internal/task"
	"tranche/internal/threads"
	"tranche/jobs"
	"tranche/queries"
)

// bundle is a tenant on a database of its own, and services that stand for the
// processes of an installation.
type bundle struct {
	pool    *pgxpool.Pool
	catalog *catalog.Catalog
	tenant  uuid.UUID
	target  *target
}

func setup(t *testing.T) *bundle {
	t.Helper()
	open, err := egress.ParseAllow("127.0.0.1/32")
	require.NoError(t, err)
	pool := pgtest.Pool(t)
	return &bundle{
		pool:    pool,
		catalog: catalog.New(pool, task.Types(task.Ports{HTTP: egress.New(open)})),
		tenant:  pgtest.Tenant(t, pool).ID,
		target:  newTarget(t),
	}
}

// process returns a service that holds leases under a process of its own,
// alive until kill is called.
func (b *bundle) process(t *testing.T) (s *execution.Service, kill func()) {
	t.Helper()
	id, log := uuid.New(), slog.New(slog.DiscardHandler)
	require.NoError(t, queries.New().SysProcessBeat(t.Context(), b.pool, queries.SysProcessBeatParams{ID: id, Role: "all"}))
	client, err := jobs.NewClient(b.pool, jobs.Config{ProcessID: id, Logger: log})
	require.NoError(t, err)
	s = execution.New(execution.Config{
		Pool: b.pool, Jobs: client, Catalog: b.catalog, ProcessID: id, Clock: time.Now, Log: log,
		Runner: &engine.Runner{Clock: time.Now, Log: log},
	})
	t.Cleanup(func() { s.Stop(context.Background()) })
	return s, func() {
		_, err := b.pool.Exec(context.Background(), `UPDATE processes SET heartbeat_at = now() - interval '1 minute' WHERE id = $1`, id)
		require.NoError(t, err)
	}
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

// calling is a request to execute a workflow that calls the target once and
// answers with what it said.
func (b *bundle) calling(t *testing.T, config string) execution.Request {
	t.Helper()
	return b.request(t, "calling", `[
		{"id":"ask","type":"http-request","config":{"method":"POST","url":"`+b.target.URL+`/ask"`+config+`}},
		{"id":"done","type":"end","config":{"output":{"said":"{{ tasks.ask.output.body.said }}"}}}]`,
		`[{"source":"start","target":"ask"},{"source":"ask","target":"done"}]`, `{}`)
}

func (b *bundle) text(t *testing.T, sql string, args ...any) string {
	t.Helper()
	var text string
	require.NoError(t, b.pool.QueryRow(t.Context(), sql, args...).Scan(&text))
	return text
}

func (b *bundle) status(t *testing.T, id uuid.UUID) string {
	t.Helper()
	return b.text(t, `SELECT status FROM executions WHERE id = $1`, id)
}

// target is an HTTP server that records the idempotency keys of its calls. It
// answers when it is let.
type target struct {
	*httptest.Server
	mu     sync.Mutex
	keys   []string
	called chan struct{} // receives for every call
	let    chan struct{} // closed: answers at once
	status int
}

func newTarget(t *testing.T) *target {
	t.Helper()
	tg := &target{called: make(chan struct{}, 100), let: make(chan struct{}), status: http.StatusOK}
	tg.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tg.mu.Lock()
		tg.keys = append(tg.keys, r.Header.Get("Idempotency-Key"))
		tg.mu.Unlock()
		tg.called <- struct{}{}
		select {
		case <-tg.let:
		case <-r.Context().Done():
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(tg.status)
		_, _ = w.Write([]byte(`{"said":1.10}`))
	}))
	t.Cleanup(tg.Close)
	return tg
}

func (tg *target) seen() []string {
	tg.mu.Lock()
	defer tg.mu.Unlock()
	return append([]string{}, tg.keys...)
}

const pureTasks = `[
	{"id":"sum","type":"transform","config":{"fields":{"total":"{{ input.a + input.b }}","same":"{{ input.a }}"}}},
	{"id":"done","type":"end","config":{"output":"{{ tasks.sum.output }}","tags":["summed"]}}]`

const pureEdges = `[{"source":"start","target":"sum"},{"source":"sum","target":"done"}]`

func TestRunWithoutEffects(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s, _ := b.process(t)
	req := b.request(t, "pure", pureTasks, pureEdges, `{"a":1.10,"b":0.2}`)
	req.Tags = []string{"mine"}

	e, err := s.Run(t.Context(), req, 0)
	require.NoError(t, err)
	require.Equal(t, engine.StatusCompleted, e.Status)
	require.Equal(t, `{"same":1.10,"total":1.3}`, string(e.Result.Output))
	require.Equal(t, `completed 200 2 0 {mine,summed}`, b.text(t,
		`SELECT concat_ws(' ', status, status_code, tasks_completed, tasks_failed, tags::text) FROM executions WHERE id = $1`, e.ID))
	require.Contains(t, b.text(t, `SELECT result::text FROM execution_payloads WHERE execution_id = $1`, e.ID), `"same":1.10`)
	require.Equal(t, `{"a":1.10,"b":0.2}`, b.text(t, `SELECT input::text FROM execution_payloads WHERE execution_id = $1`, e.ID))
	require.Equal(t, "0", b.text(t, `SELECT count(*)::text FROM river.river_job`))
}

// A synchronous execution without effects costs one transaction, the database
// itself says: what a pool of its own committed, counted once that is closed.
func TestRunWithoutEffectsIsOneTransaction(t *testing.T) {
	t.Parallel()
	b := setup(t)
	req := b.request(t, "pure", pureTasks, pureEdges, `{"a":1,"b":2}`)
	committed := func() (n int64) {
		_, err := b.pool.Exec(t.Context(), `SELECT pg_stat_clear_snapshot()`)
		require.NoError(t, err)
		require.NoError(t, b.pool.QueryRow(t.Context(), `SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()`).Scan(&n))
		return n
	}
	run := func(times int) int64 {
		own := pgtest.OpenPool(t, b.pool.Config().ConnString())
		defer own.Close()
		quiet := *b
		quiet.pool = own
		before := committed()
		s, _ := quiet.process(t)
		for range times {
			_, err := s.Run(t.Context(), req, 0)
			require.NoError(t, err)
		}
		own.Close()
		time.Sleep(100 * time.Millisecond) // the closed connections report as they exit
		return committed() - before
	}
	const times = 200
	idle := run(0)
	// The reading itself commits too, and so does autovacuum where it comes by; a
	// second transaction for each run would double the number.
	require.InDelta(t, times, run(times)-idle, times/4)
}

func TestRunWithEffect(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s, _ := b.process(t)
	close(b.target.let)

	e, err := s.Run(t.Context(), b.calling(t, ""), 0)
	require.NoError(t, err)
	require.Equal(t, engine.StatusCompleted, e.Status)
	require.Equal(t, `{"said":1.10}`, string(e.Result.Output))
	require.Equal(t, []string{e.ID.String() + "/ask"}, b.target.seen())
	require.Equal(t, "completed", b.status(t, e.ID))
	require.Equal(t, "0", b.text(t, `SELECT count(*)::text FROM river.river_job`), "it has none")
	require.Equal(t, "true", b.text(t, `SELECT (lease_token IS NULL)::text FROM executions WHERE id = $1`, e.ID))
}

func TestFailureOfAnEffectIsAResult(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s, _ := b.process(t)
	b.target.status = http.StatusBadRequest
	close(b.target.let)

	e, err := s.Run(t.Context(), b.calling(t, ""), 0)
	require.NoError(t, err)
	require.Equal(t, engine.StatusFailed, e.Status)
	require.False(t, e.Result.IsSuccess)
	require.Equal(t, http.StatusBadGateway, e.Result.StatusCode)
	require.EqualValues(t, "EXTERNAL_SERVICE_ERROR", e.Result.ErrorSubCode)
	require.NotNil(t, e.Result.ErrorMessage)
	require.Equal(t, "{}", string(e.Result.Output))
	require.Equal(t, "failed", b.status(t, e.ID))
}

func TestWaitRunsOut(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s, _ := b.process(t)

	e, err := s.Run(t.Context(), b.calling(t, ""), 50*time.Millisecond)
	require.NoError(t, err)
	require.Nil(t, e.Result)
	require.Equal(t, "running", b.status(t, e.ID))
	close(b.target.let)
	require.Eventually(t, func() bool { return b.status(t, e.ID) == "completed" }, 10*time.Second, 10*time.Millisecond)
}

func TestCallerWhoLeavesStopsNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s, _ := b.process(t)
	ctx, leave := context.WithCancel(t.Context())
	go func() {
		<-b.target.called
		leave()
	}()
	_, err := s.Run(ctx, b.calling(t, ""), time.Minute)
	require.ErrorIs(t, err, context.Canceled)
	close(b.target.let)
	require.Eventually(t, func() bool {
		return b.text(t, `SELECT count(*)::text FROM executions WHERE status = 'completed'`) == "1"
	}, 10*time.Second, 10*time.Millisecond)
}

// Without a bound for the wait the execution runs on the caller's goroutine, to
// its end.
func TestCallerWhoLeavesStopsNothingWithoutABound(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s, _ := b.process(t)
	ctx, leave := context.WithCancel(t.Context())
	go func() {
		<-b.target.called
		leave()
		close(b.target.let)
	}()
	e, err := s.Run(ctx, b.calling(t, ""), 0)
	require.NoError(t, err)
	require.Equal(t, engine.StatusCompleted, e.Status)
	require.Equal(t, "completed", b.status(t, e.ID))

	e, err = s.Run(ctx, b.request(t, "pure", pureTasks, pureEdges, `{"a":1,"b":2}`), 0)
	require.NoError(t, err, "nor one without effects")
	require.Equal(t, "completed", b.status(t, e.ID))
}

func TestStartIsContinuedByAJob(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s, _ := b.process(t)
	close(b.target.let)

	e, err := s.Start(t.Context(), b.calling(t, ""))
	require.NoError(t, err)
	require.Equal(t, engine.StatusPending, e.Status)
	require.Equal(t, "pending", b.status(t, e.ID))
	require.Equal(t, "task_execution available", b.text(t, `SELECT kind || ' ' || state FROM river.river_job`))

	holding, err := s.Continue(t.Context(), b.tenant, e.ID)
	require.NoError(t, err)
	require.Equal(t, execution.Held, holding)
	require.Equal(t, "completed", b.status(t, e.ID))

	holding, err = s.Continue(t.Context(), b.tenant, e.ID)
	require.NoError(t, err)
	require.Equal(t, execution.Over, holding, "a job that runs twice does nothing")
	require.Len(t, b.target.seen(), 1)
}

// An execution whose end could not be written is left to the next try of its job,
// though its process lives.
func TestExecutionIsLetGoAfterAnError(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s, _ := b.process(t)
	close(b.target.let)
	e, err := s.Start(t.Context(), b.calling(t, ""))
	require.NoError(t, err)
	_, err = b.pool.Exec(t.Context(), "ALTER TABLE executions ADD CONSTRAINT refused CHECK (status <> 'completed')")
	require.NoError(t, err)
	_, err = s.Continue(t.Context(), b.tenant, e.ID)
	require.ErrorContains(t, err, "refused")
	_, err = b.pool.Exec(t.Context(), "ALTER TABLE executions DROP CONSTRAINT refused")
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		holding, err := s.Continue(t.Context(), b.tenant, e.ID)
		return err == nil && holding == execution.Held
	}, 10*time.Second, 10*time.Millisecond)
	require.Equal(t, "completed", b.status(t, e.ID))
	keys := b.target.seen()
	require.Len(t, keys, 2)
	require.Equal(t, keys[0], keys[1])
}

// A process that dies in an effect is replaced; when it turns out to be alive
// after all, it can write nothing more.
func TestTakeOverAndFence(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first, kill := b.process(t)
	second, _ := b.process(t)
	req := b.calling(t, "")

	ended := make(chan execution.Execution, 1)
	go func() {
		e, err := first.Run(context.Background(), req, 0)
		if err != nil {
			e.Status = engine.Status(err.Error())
		}
		ended <- e
	}()
	<-b.target.called
	id := uuid.MustParse(b.text(t, `SELECT id::text FROM executions`))

	holding, err := second.Continue(t.Context(), b.tenant, id)
	require.NoError(t, err)
	require.Equal(t, execution.HeldElsewhere, holding, "its process lives")

	kill()
	taken := make(chan error, 1)
	go func() {
		_, err := second.Continue(context.Background(), b.tenant, id)
		taken <- err
	}()
	<-b.target.called
	close(b.target.let)
	require.NoError(t, <-taken)
	require.Equal(t, "completed", b.status(t, id))
	at := b.text(t, `SELECT completed_at::text FROM executions`)

	e := <-ended
	require.Equal(t, engine.StatusCompleted, e.Status, "the first caller is told the one result")
	require.Equal(t, at, b.text(t, `SELECT completed_at::text FROM executions`))
	keys := b.target.seen()
	require.Len(t, keys, 2)
	require.Equal(t, keys[0], keys[1])
}

func TestStopHandsOver(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first, _ := b.process(t)
	second, _ := b.process(t)
	req := b.calling(t, "")
	ended := make(chan error, 1)
	go func() {
		_, err := first.Run(context.Background(), req, 0)
		ended <- err
	}()
	<-b.target.called
	now, cancel := context.WithCancel(t.Context())
	cancel()
	first.Stop(now)
	require.Error(t, <-ended)
	id := uuid.MustParse(b.text(t, `SELECT id::text FROM executions`))
	require.Equal(t, "1 available", b.text(t, `SELECT count(*) || ' ' || min(state::text) FROM river.river_job`))

	close(b.target.let)
	_, err := second.Continue(t.Context(), b.tenant, id)
	require.NoError(t, err)
	require.Equal(t, "completed", b.status(t, id))
}

// However many run, a stop hands them over in time: they share a few statements.
// One that somebody is writing meanwhile holds up no other.
func TestStopHandsManyOver(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s, _ := b.process(t)
	const many = 300
	statements := s.HoldReleases(many - 1)
	b.target.called = make(chan struct{}, many)
	ended := make(chan error, many)
	req := b.calling(t, "")
	for range many {
		go func() {
			_, err := s.Run(context.Background(), req, 0)
			ended <- err
		}()
	}
	for range many {
		<-b.target.called
	}
	writer, err := b.pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = writer.Rollback(context.Background()) }()
	_, err = writer.Exec(t.Context(), `SELECT FROM executions WHERE id = (SELECT min(id::text)::uuid FROM executions) FOR UPDATE`)
	require.NoError(t, err)

	now, cancel := context.WithCancel(t.Context())
	cancel()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		s.Stop(now)
	}()
	for range many - 1 {
		require.Error(t, <-ended)
	}
	require.Equal(t, "299 299", b.text(t, `SELECT count(*) || ' ' || count(DISTINCT args ->> 'execution_id') FROM river.river_job WHERE state = 'available'`))
	require.NoError(t, writer.Rollback(t.Context()))
	require.Error(t, <-ended)
	<-stopped
	require.Equal(t, 3, statements(), "one, 200, and the rest")
	require.Equal(t, "300 300", b.text(t, `SELECT count(*) || ' ' || count(DISTINCT args ->> 'execution_id') FROM river.river_job WHERE state = 'available'`))
	require.Equal(t, "300 0", b.text(t, `SELECT count(*) || ' ' || count(lease_token) FROM executions WHERE status = 'running'`))
	close(b.target.let)
}

// What runs beside others, and what goes on when its caller is answered, has all of
// the threads. Not parallel: others would have them too.
func TestThreadsAreToldOfWhatRunsBesideOthers(t *testing.T) { //nolint:paralleltest // see above
	b := setup(t)
	s, _ := b.process(t)
	const most = 3
	s.Runner.Threads = threads.New(most)
	t.Cleanup(s.Runner.Threads.Leave)
	threadsAre := func(n int) {
		t.Helper()
		require.Eventually(t, func() bool { return runtime.GOMAXPROCS(0) == n }, 30*time.Second, time.Millisecond)
	}
	threadsAre(1)
	run := func(req execution.Request, wait time.Duration) {
		go func() {
			_, err := s.Run(context.Background(), req, wait)
			assert.NoError(t, err)
		}()
		<-b.target.called
	}
	letGo := func() {
		close(b.target.let)
		threadsAre(1)
		b.target.let = make(chan struct{})
	}

	answered := b.calling(t, "")
	run(answered, time.Millisecond)
	time.Sleep(10 * time.Millisecond)
	require.Equal(t, 1, runtime.GOMAXPROCS(0), "alone")
	run(answered, time.Millisecond)
	threadsAre(most)
	letGo()

	ask := func(id string) string {
		return `{"id":"` + id + `","type":"http-request","config":{"method":"POST","url":"` + b.target.URL + `/ask"}}`
	}
	beside := b.request(t, "beside", `[`+ask("one")+`,`+ask("two")+`,{"id":"done","type":"end","config":{"output":{}}}]`,
		`[{"source":"start","target":"one"},{"source":"start","target":"two"},{"source":"one","target":"done"},{"source":"two","target":"done"}]`, `{}`)
	run(beside, 0)
	<-b.target.called
	threadsAre(most)
	letGo()
}

// A backoff of more than 5 s holds no process: a job goes on with it then.
func TestLongBackoffIsAJob(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s, _ := b.process(t)
	b.target.status = http.StatusServiceUnavailable
	close(b.target.let)

	e, err := s.Run(t.Context(), b.calling(t, `,"retry":{"maxAttempts":2,"initialDelayMs":40000,"maxDelayMs":40000,"jitter":0}`), time.Second)
	require.NoError(t, err)
	require.Nil(t, e.Result)
	require.Equal(t, "1 scheduled true", b.text(t,
		`SELECT count(*) || ' ' || min(state::text) || ' ' || bool_and(scheduled_at > now() + interval '30 s') FROM river.river_job`))
	require.Equal(t, "running true", b.text(t, `SELECT status || ' ' || (lease_token IS NULL)::text FROM executions`))

	holding, err := s.Continue(t.Context(), b.tenant, e.ID)
	require.NoError(t, err)
	require.Equal(t, execution.Held, holding)
	require.Len(t, b.target.seen(), 1, "an early job does not end the wait")
	require.Equal(t, "running", b.status(t, e.ID))
}

func TestInactiveWorkflowRecordsNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s, _ := b.process(t)
	close(b.target.let)
	for name, req := range map[string]execution.Request{
		"pure":   b.request(t, "pure", pureTasks, pureEdges, `{"a":1,"b":2}`),
		"effect": b.calling(t, ""),
	} {
		_, err := b.catalog.Archive(t.Context(), b.tenant, req.WorkflowID)
		require.NoError(t, err)
		_, err = s.Run(t.Context(), req, 0)
		require.ErrorIs(t, err, execution.ErrNotActive, name)
		_, err = s.Start(t.Context(), req)
		require.True(t, errors.Is(err, execution.ErrNotActive), name)
	}
	require.Empty(t, b.target.seen())
	require.Equal(t, "0 0", b.text(t, `SELECT (SELECT count(*) FROM executions) || ' ' || (SELECT count(*) FROM river.river_job)`))
}
