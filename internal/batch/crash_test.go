package batch_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tranche/internal/apitest"
	"tranche/internal/batch"
	"tranche/internal/batch/ingest"
	"tranche/internal/batch/output"
	"tranche/internal/batch/runner"
	"tranche/internal/catalog"
	"tranche/internal/egress"
	"tranche/internal/engine"
	"tranche/internal/execution"
	"tranche/internal/fault"
	"tranche/internal/identity"
	"tranche/internal/pgtest"
	"tranche/internal/postgres"
	"tranche/internal/server"
	"tranche/internal/storage"
	"tranche/internal/task"
	"tranche/internal/workflow"
	"tranche/jobs"
)

// stages is a batch whose stages the test runs. The service itself only answers requests.
type stages struct {
	*apitest.Service
	caller     *apitest.Caller
	executions *execution.Service
	batches    *batch.Service
	ingester   *ingest.Ingester
	runner     *runner.Runner
	output     *output.Writer
	tenantID   uuid.UUID
	id         uuid.UUID
	seen       int64         // the last job that was looked at
	ahead      time.Duration // of the batches' clock
	ended      atomic.Int64  // executions
}

func newStages(t *testing.T, items int) *stages {
	t.Helper()
	s := apitest.Start(t, func(c *server.Config) { c.Role = server.RoleAPI })
	tenant := s.Tenant(t)
	c := tenant.As(t, identity.RoleAdmin)
	publish(t, c, affordability)
	var file strings.Builder
	file.WriteString("borrowerId,income,debt\n")
	for i := range items {
		fmt.Fprintf(&file, "B-%d,%s,%d.10\n", i, []string{"1000.00", "10", "none"}[min(i%7, 2)%3], i%9)
	}
	id := start(t, c, "affordability", map[string]any{"attachmentFileNames": []string{upload(t, c, "a.csv", file.String())}})
	return stagesOf(t, s, c, tenant.ID, id)
}

func stagesOf(t *testing.T, s *apitest.Service, c *apitest.Caller, tenantID uuid.UUID, id string) *stages {
	t.Helper()
	client, err := jobs.NewClient(s.Pool, jobs.Config{ProcessID: uuid.New(), Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	local, err := egress.ParseAllow("127.0.0.0/8")
	require.NoError(t, err)
	log := slog.New(slog.DiscardHandler)
	plans := catalog.New(s.Pool, task.Types(task.Ports{HTTP: egress.New(local), Log: log}))
	b := &stages{Service: s, caller: c, tenantID: tenantID, id: uuid.MustParse(id)}
	b.executions = execution.New(execution.Config{
		Pool: s.Pool, Jobs: client, Catalog: plans, Runner: &engine.Runner{Clock: time.Now, Log: log}, ProcessID: uuid.New(), Clock: time.Now, Log: log,
		Ended: func(_ engine.Status, n int) { b.ended.Add(int64(n)) },
	})
	for weight, ended := b.plan(t, plans).Weight, 0; ended < 200; ended++ { // others, before it
		weight.Learn(1, false)
	}
	store, dispatcher, processors := storage.New(s.Pool), batch.NewDispatcher(s.Pool, client, plans), batch.NewProcessors(runtime.GOMAXPROCS(0))
	clock := func() time.Time { return time.Now().Add(b.ahead) }
	b.batches = batch.New(batch.Config{
		Pool: s.Pool, Jobs: client, Catalog: plans, Dispatcher: dispatcher, Executions: b.executions, Store: store, Clock: clock,
	})
	b.ingester = ingest.New(ingest.Config{
		Pool: s.Pool, Catalog: plans, Store: store, Dispatcher: dispatcher, Processors: processors, Clock: clock,
		CountRefused: func(items int) { b.executions.NoteEnded(engine.StatusFailed, items) },
	})
	b.runner = runner.New(runner.Config{
		Pool: s.Pool, Catalog: plans, Executions: b.executions, Dispatcher: dispatcher, Processors: processors, Clock: clock, Log: log,
	})
	b.output = output.New(output.Config{Pool: s.Pool, Store: store, Processors: processors, Clock: clock})
	return b
}

func (s *stages) key() batch.Key { return batch.Key{TenantID: s.tenantID, ID: s.id} }

// plan returns the plan of the batch's workflow.
func (s *stages) plan(t *testing.T, plans *catalog.Catalog) *workflow.Plan {
	t.Helper()
	var workflowID uuid.UUID
	ctx := postgres.AsSystem(t.Context())
	require.NoError(t, s.Pool.QueryRow(ctx, "SELECT workflow_id FROM execution_batches WHERE id = $1", s.id).Scan(&workflowID))
	_, plan, err := plans.Plan(postgres.WithTenant(ctx, s.tenantID), s.tenantID, workflowID)
	require.NoError(t, err)
	return plan
}

func (s *stages) record(t *testing.T) (r record) {
	t.Helper()
	s.caller.Get(t, "/v1/execution-batches/"+s.id.String()).Expect(http.StatusOK).Decode(&r)
	sum := r.State.Summary
	require.Equal(t, sum.Total, sum.Completed+sum.Failed+sum.Pending)
	return r
}

func (s *stages) count(t *testing.T, query string) (n int) {
	t.Helper()
	require.NoError(t, s.Pool.QueryRow(t.Context(), query).Scan(&n))
	return n
}

// newRuns returns the jobs of the batch's items that were enqueued since the last call.
func (s *stages) newRuns(t *testing.T) (runs []jobs.BatchItemRun) {
	t.Helper()
	rows, err := s.Pool.Query(t.Context(), "SELECT id, args FROM river.river_job WHERE kind = 'batch_item_run' AND id > $1 AND (args ->> 'batch_id')::uuid = $2 ORDER BY id", s.seen, s.id)
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var args []byte
		require.NoError(t, rows.Scan(&s.seen, &args))
		var run jobs.BatchItemRun
		require.NoError(t, json.Unmarshal(args, &run))
		runs = append(runs, run)
	}
	require.NoError(t, rows.Err())
	return runs
}

// crashing runs a stage again and again, interrupted after increasing times, until it completes.
func crashing(t *testing.T, stage func(context.Context) error) (crashes int) {
	t.Helper()
	for patience := 2 * time.Millisecond; ; patience += 1 + rand.N(patience) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		err := stage(ctx)
		cancel()
		if err == nil {
			return crashes
		}
		require.Error(t, ctx.Err(), err)
		crashes++
	}
}

func TestStagesContinueAfterCrashes(t *testing.T) {
	t.Parallel()
	const items = 3_432
	s := newStages(t, items)
	crashes := crashing(t, func(ctx context.Context) error { return s.ingester.PreProcess(ctx, s.key(), 1) })
	t.Logf("pre-processing was cut off %d times", crashes)
	r := s.record(t)
	require.Equal(t, "processing", r.Status)
	require.Equal(t, items, r.State.Summary.Total)
	require.NoError(t, s.ingester.PreProcess(t.Context(), s.key(), 1), "once more")

	for runs := s.newRuns(t); len(runs) > 0; runs = s.newRuns(t) {
		for _, run := range runs {
			crashing(t, func(ctx context.Context) error {
				_, err := s.runner.RunItems(ctx, run)
				return err
			})
			s.record(t)
		}
	}
	r = s.record(t)
	require.Equal(t, "post_processing", r.Status)
	require.Equal(t, items, s.count(t, "SELECT count(DISTINCT item_index) FROM executions"))
	require.Equal(t, items, s.count(t, "SELECT count(*) FROM executions JOIN execution_payloads p ON p.execution_id = id"))
	require.Equal(t, items-1, s.count(t, "SELECT max(item_index) FROM executions"))
	require.Zero(t, s.count(t, "SELECT count(*) FROM executions JOIN execution_payloads p ON p.execution_id = id WHERE input->>'borrowerId' <> 'B-' || item_index OR row_number <> item_index + 2"))
	require.Equal(t, s.count(t, "SELECT count(*) FROM executions WHERE status = 'completed'"), r.State.Summary.Completed)
	require.Zero(t, r.State.Summary.Pending)
	require.Equal(t, 1, s.count(t, "SELECT count(*) FROM river.river_job WHERE kind = 'batch_post_processing'"))

	crashes = crashing(t, func(ctx context.Context) error { return s.output.PostProcess(ctx, s.key()) })
	t.Logf("post-processing was cut off %d times", crashes)
	r = s.record(t)
	require.Equal(t, "complete", r.Status)
	require.Len(t, table(t, files(t, s.caller, *r.Outputs.Post.PackageID)["results.csv"]), items)
	require.Equal(t, 2, s.count(t, "SELECT count(*) FROM packages"), "the raw one and the output")
	require.Equal(t, 5, s.count(t, "SELECT count(*) FROM attachments"))
	require.Equal(t, 5, s.count(t, "SELECT count(*) FROM attachment_uploads"))
	require.NoError(t, s.output.PostProcess(t.Context(), s.key()), "once more")
}

// Jobs that are delivered twice, also concurrently, count every item once.
func TestItemsCountedOnce(t *testing.T) {
	t.Parallel()
	const items = 20_000
	s := newStages(t, items)
	var group sync.WaitGroup
	for range 3 { // one gets through, the others may be told that another is recording
		group.Go(func() { _ = s.ingester.PreProcess(t.Context(), s.key(), 1) })
	}
	group.Wait()
	require.NoError(t, s.ingester.PreProcess(t.Context(), s.key(), 1))
	require.Equal(t, items, s.record(t).State.Summary.Total)

	for runs := s.newRuns(t); len(runs) > 0; runs = s.newRuns(t) {
		require.Less(t, len(runs), items/1400, "more than a window is enqueued") // of 1400 items a chunk is full of refused ones
		for _, run := range append(runs, runs...) {
			group.Go(func() {
				_, err := s.runner.RunItems(t.Context(), run)
				require.NoError(t, err)
			})
		}
		group.Wait()
		s.record(t)
	}
	r := s.record(t)
	require.Equal(t, [3]int{items, 0, s.count(t, "SELECT count(*) FROM executions WHERE status = 'completed'")}, [3]int{r.State.Summary.Total, r.State.Summary.Pending, r.State.Summary.Completed})
	require.Equal(t, 1, s.count(t, "SELECT count(*) FROM river.river_job WHERE kind = 'batch_post_processing'"))

	errs := make([]error, 3)
	for i := range errs { // as after pausing and resuming: the last one that began gets through, the others give way
		group.Go(func() { errs[i] = s.output.PostProcess(t.Context(), s.key()) })
	}
	group.Wait()
	require.NoError(t, errors.Join(errs...))
	r = s.record(t)
	require.Equal(t, "complete", r.Status)
	require.Len(t, files(t, s.caller, *r.Outputs.Post.PackageID), 4)
	require.Equal(t, 2, s.count(t, "SELECT count(*) FROM packages"))
	require.Equal(t, 5, s.count(t, "SELECT count(*) FROM attachments"))
}

// A stage that cannot complete fails, and the batch has a notice.
func TestStagesCanFail(t *testing.T) {
	t.Parallel()
	s := newStages(t, 10)
	failPost := func() bool {
		t.Helper()
		hasFailed, err := s.output.FailPostProcessing(t.Context(), s.key())
		require.NoError(t, err)
		return hasFailed
	}
	require.False(t, failPost(), "not there yet")
	require.False(t, s.abandons(t, 1))
	require.Equal(t, "pending", s.record(t).Status)
	require.NoError(t, s.ingester.PreProcess(t.Context(), s.key(), 1))
	for _, run := range s.newRuns(t) {
		_, err := s.runner.RunItems(t.Context(), run)
		require.NoError(t, err)
	}
	require.False(t, s.abandons(t, 1), "past that")
	_, err := s.Pool.Exec(t.Context(), "UPDATE execution_payloads SET result = '[]'")
	require.NoError(t, err)
	require.Error(t, s.output.PostProcess(t.Context(), s.key()))
	require.True(t, failPost())
	require.Equal(t, "post_processing_failed", s.record(t).Status)
	require.NoError(t, s.output.PostProcess(t.Context(), s.key()), "a batch that is given up is left alone")

	s = newStages(t, 10)
	_, err = s.Pool.Exec(t.Context(), "ALTER TABLE executions ADD CONSTRAINT refused CHECK (batch_id IS NULL)")
	require.NoError(t, err)
	require.Error(t, s.ingester.PreProcess(t.Context(), s.key(), 1))
	require.True(t, s.abandons(t, 1))
	r := s.record(t)
	require.Equal(t, "pre_processing_failed", r.Status)
	require.Equal(t, "failed: an unexpected error occurred", r.Outputs.Pre.Result)
	_, err = s.Pool.Exec(t.Context(), "ALTER TABLE executions DROP CONSTRAINT refused")
	require.NoError(t, err)
	s.caller.Post(t, "/v1/execution-batches/"+s.id.String()+"/retry", map[string]any{"retryMode": "pre_processing"}).Expect(http.StatusAccepted)
	require.NoError(t, s.ingester.PreProcess(t.Context(), s.key(), 1), "the attempt before")
	require.Equal(t, "pending", s.record(t).Status)
	require.NoError(t, s.ingester.PreProcess(t.Context(), s.key(), 2))
	require.Equal(t, 10, s.record(t).State.Summary.Total)
}

// An item that waits long between two tries ends in a job of its own.
func TestItemCountedAfterWait(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if calls.Add(1) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"score": 1}`))
	}))
	t.Cleanup(server.Close)
	s := apitest.Start(t)
	c := s.Tenant(t).As(t, identity.RoleAdmin)
	publish(t, c, `{"name": "Slow", "alias": "slow", "inputSchema": {"type": "object"},
		"tasks": [{"id": "score", "type": "http-request", "config": {"method": "GET", "url": "`+server.URL+`", "retry": {"maxAttempts": 2, "initialDelayMs": 6000}}}], "edges": []}`)
	r := follow(t, c, start(t, c, "slow", map[string]any{"workflowInput": map[string]any{"items": []any{map[string]any{}, map[string]any{}}}}))
	require.Equal(t, "complete", r.Status)
	require.Equal(t, 2, r.State.Summary.Completed)
	require.EqualValues(t, 3, calls.Load())
}

// A stage returns fault.Unavailable while the database is unavailable, so its job does not fail.
func TestStagesReturnUnavailable(t *testing.T) {
	t.Parallel()
	b := newStages(t, 1)
	onItsOwn := *b.Service
	onItsOwn.Pool = pgtest.OpenPool(t, b.Pool.Config().ConnString())
	away := stagesOf(t, &onItsOwn, b.caller, b.tenantID, b.id.String())
	onItsOwn.Pool.Close()
	for name, stage := range map[string]func(ctx context.Context, key batch.Key) error{
		"pre-processing":  func(ctx context.Context, key batch.Key) error { return away.ingester.PreProcess(ctx, key, 1) },
		"retry":           away.batches.RetryItems,
		"post-processing": away.output.PostProcess,
		"cancellation": func(ctx context.Context, key batch.Key) error {
			_, err := away.runner.CancelItems(ctx, key)
			return err
		},
	} {
		require.ErrorIs(t, stage(t.Context(), b.key()), fault.Unavailable, name)
	}
}

// If two processes read a batch, the slower one does not return before the batch is read: its
// job may be the only one.
func TestOvertakenReaderContinues(t *testing.T) {
	t.Parallel()
	const items = 20_000
	b := newStages(t, items)
	other := stagesOf(t, b.Service, b.caller, b.tenantID, b.id.String())
	var group sync.WaitGroup
	for _, process := range []*stages{b, other} {
		group.Go(func() {
			assert.NoError(t, process.ingester.PreProcess(t.Context(), b.key(), 1))
			assert.Equal(t, items, b.count(t, "SELECT items_read FROM execution_batches WHERE status = 'processing'"))
		})
	}
	group.Wait()
	require.Equal(t, items, b.record(t).State.Summary.Total)
}
