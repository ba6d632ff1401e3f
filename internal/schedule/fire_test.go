package schedule_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"tranche/internal/batch"
	"tranche/internal/catalog"
	"tranche/internal/engine"
	"tranche/internal/exactjson"
	"tranche/internal/execution"
	"tranche/internal/fault"
	"tranche/internal/pgtest"
	"tranche/internal/schedule"
	"tranche/internal/storage"
	"tranche/internal/task"
	"tranche/jobs"
	"tranche/queries"
)

// clock is one that a test sets.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) set(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = at
}

func (c *clock) now(context.Context, queries.DBTX) (time.Time, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at, nil
}

// noon is when the clocks of tests begin.
var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// bundle is a tenant on a database of its own.
type bundle struct {
	pool    *pgxpool.Pool
	catalog *catalog.Catalog
	tenant  uuid.UUID
	clock   *clock
}

func setup(t *testing.T) *bundle {
	t.Helper()
	pool := pgtest.Pool(t)
	return &bundle{
		pool: pool, catalog: catalog.New(pool, task.Types(task.Ports{})), tenant: pgtest.Tenant(t, pool).ID,
		clock: &clock{at: noon},
	}
}

// replica returns the schedules of a process with the given clock.
func (b *bundle) replica(t *testing.T, now schedule.Clock) *schedule.Service {
	t.Helper()
	id, log := uuid.New(), slog.New(slog.DiscardHandler)
	client, err := jobs.NewClient(b.pool, jobs.Config{ProcessID: id, Logger: log})
	require.NoError(t, err)
	executions := execution.New(execution.Config{
		Pool: b.pool, Jobs: client, Catalog: b.catalog, ProcessID: id, Clock: time.Now, Log: log,
		Runner: &engine.Runner{Clock: time.Now, Log: log},
	})
	t.Cleanup(func() { executions.Stop(context.Background()) })
	return schedule.New(schedule.Config{
		Pool: b.pool, Jobs: client, Catalog: b.catalog, Executions: executions, Clock: now, Log: log,
		Batches: batch.New(batch.Config{
			Pool: b.pool, Jobs: client, Catalog: b.catalog, Dispatcher: batch.NewDispatcher(b.pool, client, b.catalog), Executions: executions, Store: storage.New(b.pool), Clock: time.Now,
		}),
	})
}

// publish makes a workflow active whose input needs an amount and has a default.
func (b *bundle) publish(t *testing.T) uuid.UUID {
	t.Helper()
	w := pgtest.PublishedWorkflow(t, b.pool, b.tenant, func(row *queries.WorkflowInsertParams) {
		row.InputSchema = json.RawMessage(`{"type":"object","required":["amount"],"properties":{
			"amount":{"type":"number"},"currency":{"type":"string","default":"EUR"},"borrowerId":{"type":"string"}}}`)
	})
	return w.ID
}

func (b *bundle) configure(t *testing.T, s *schedule.Service, workflow uuid.UUID, settings ...schedule.Setting) []schedule.Schedule {
	t.Helper()
	configured, err := s.Configure(t.Context(), b.tenant, workflow, false, settings)
	require.NoError(t, err)
	return configured
}

func (b *bundle) firings(t *testing.T, s *schedule.Service, workflow uuid.UUID) []schedule.Firing {
	t.Helper()
	_, firings, err := s.Get(t.Context(), b.tenant, workflow)
	require.NoError(t, err)
	return firings
}

// end ends all executions, as their jobs would.
func (b *bundle) end(t *testing.T) {
	t.Helper()
	pgtest.Exec(t, b.pool, `UPDATE executions SET status = 'completed' WHERE status = 'pending'`)
}

func fire(t *testing.T, s *schedule.Service, held int) {
	t.Helper()
	n, err := s.Fire(t.Context())
	require.NoError(t, err)
	require.Equal(t, held, n)
}

func single(cron, input string) schedule.Setting {
	value, err := exactjson.Decode([]byte(input))
	if err != nil {
		panic(err)
	}
	members, _ := value.(map[string]any)
	return schedule.Setting{Slot: schedule.Single, Cron: cron, Input: members}
}

func TestFiringStartsAnExecution(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.replica(t, b.clock.now)
	workflow := b.publish(t)
	configured := b.configure(t, s, workflow, single("30 12 * * *", `{"amount":1.10,"borrowerId":"B-1"}`))
	require.Equal(t, noon.Add(30*time.Minute), configured[0].NextRunAt)

	b.clock.set(noon.Add(30*time.Minute - time.Second))
	fire(t, s, 0)
	b.clock.set(noon.Add(30*time.Minute + time.Second))
	fire(t, s, 1)
	fire(t, s, 0)

	firings := b.firings(t, s, workflow)
	require.Len(t, firings, 1)
	require.Equal(t, schedule.Firing{
		Slot: schedule.Single, ScheduledAt: noon.Add(30 * time.Minute), FiredAt: noon.Add(30*time.Minute + time.Second),
		Status: schedule.Started, ExecutionID: firings[0].ExecutionID,
	}, firings[0])
	require.Equal(t, "pending schedule:"+workflow.String()+" B-1 f", pgtest.Text(t, b.pool,
		`SELECT concat_ws(' ', status, principal_id, borrower_id, is_test) FROM executions WHERE id = $1`, firings[0].ExecutionID))
	require.Equal(t, `{"amount":1.10,"borrowerId":"B-1","currency":"EUR"}`, pgtest.Text(t, b.pool,
		`SELECT input::text FROM execution_payloads WHERE execution_id = $1`, firings[0].ExecutionID))
	require.Equal(t, "schedule_firing schedule available "+firings[0].ExecutionID.String(), pgtest.Text(t, b.pool,
		`SELECT concat_ws(' ', kind, queue, state, args ->> 'execution_id') FROM river.river_job`))
	schedules, _, err := s.Get(t.Context(), b.tenant, workflow)
	require.NoError(t, err)
	require.Equal(t, noon.Add(24*time.Hour+30*time.Minute), schedules[0].NextRunAt)
}

// A firing is skipped and recorded while the previous run continues.
func TestFiringIsSkippedWhileThePreviousRunIsOpen(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.replica(t, b.clock.now)
	workflow := b.publish(t)
	b.configure(t, s, workflow, single("* * * * *", `{"amount":1}`))
	var got []schedule.Status
	for minute, status := range []string{"pending", "running", "running", "failed", "timeout", "cancelled", "completed", "pending"} {
		b.clock.set(noon.Add(time.Duration(minute+1) * time.Minute))
		fire(t, s, 1)
		firing := b.firings(t, s, workflow)[0]
		got = append(got, firing.Status)
		if firing.Status == schedule.Skipped {
			require.Equal(t, "the previous run had not ended", firing.Reason)
		}
		pgtest.Exec(t, b.pool, `UPDATE executions SET status = $1 WHERE id = (SELECT max(id::text)::uuid FROM executions)`, status)
	}
	require.Equal(t, []schedule.Status{
		schedule.Started, schedule.Skipped, schedule.Skipped, schedule.Skipped,
		schedule.Started, schedule.Started, schedule.Started, schedule.Started,
	}, got)
}

// After a downtime one missed firing is made up for.
func TestMissedTimesFireOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.replica(t, b.clock.now)
	workflow := b.publish(t)
	b.configure(t, s, workflow, single("*/10 * * * *", `{"amount":1}`))
	back := noon.Add(5*time.Hour + 3*time.Minute)
	b.clock.set(back)
	fire(t, s, 1)
	fire(t, s, 0)
	firings := b.firings(t, s, workflow)
	require.Len(t, firings, 1)
	require.Equal(t, noon.Add(10*time.Minute), firings[0].ScheduledAt)
	require.Equal(t, back, firings[0].FiredAt)
	schedules, _, err := s.Get(t.Context(), b.tenant, workflow)
	require.NoError(t, err)
	require.Equal(t, noon.Add(5*time.Hour+10*time.Minute), schedules[0].NextRunAt)
}

// A time that has fired does not fire again when the clock goes back and the
// schedule is configured anew.
func TestClockGoesBackFiresNothingTwice(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.replica(t, b.clock.now)
	workflow := b.publish(t)
	for range 3 {
		b.clock.set(noon)
		_, err := s.Delete(t.Context(), b.tenant, workflow, false, []schedule.Slot{schedule.Single})
		require.NoError(t, err)
		b.configure(t, s, workflow, single("5 * * * *", `{"amount":1}`))
		b.clock.set(noon.Add(6 * time.Minute))
		fire(t, s, 1)
		b.end(t)
	}
	require.Len(t, b.firings(t, s, workflow), 1)
	require.Equal(t, "1 1", pgtest.Text(t, b.pool, `SELECT (SELECT count(*) FROM executions) || ' ' || (SELECT count(*) FROM river.river_job)`))
}

func TestFiringStartsABatch(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.replica(t, b.clock.now)
	items := []any{map[string]any{"amount": json.Number("1.10")}}
	own, repeating, empty := b.publish(t), b.publish(t), b.publish(t)
	b.configure(t, s, own, schedule.Setting{Slot: schedule.Batch, Cron: "1 * * * *", Batch: schedule.BatchContent{
		Label: "nightly", Items: items, CustomInput: map[string]any{"campaign": "x"},
	}})
	b.configure(t, s, repeating, schedule.Setting{Slot: schedule.Batch, Cron: "1 * * * *"})
	b.configure(t, s, empty, schedule.Setting{Slot: schedule.Batch, Cron: "1 * * * *"})
	for i, label := range []string{"older", "newest"} {
		_, err := b.pool.Exec(t.Context(), `INSERT INTO execution_batches (id, tenant_id, workflow_id, workflow_alias, workflow_version, principal_id, label, status, items, custom_input)
			SELECT $1, tenant_id, id, alias, version, 'p', $2, 'complete', $3::json, '{"n":1.50}' FROM workflows WHERE id = $4`,
			pgtest.NewID(t), label, fmt.Sprintf(`[{"amount":%d.50}]`, i), repeating)
		require.NoError(t, err)
	}
	b.clock.set(noon.Add(time.Minute))
	fire(t, s, 3)

	firing := b.firings(t, s, own)[0]
	require.Equal(t, schedule.Started, firing.Status)
	require.Equal(t, `nightly schedule:`+own.String()+` pending [{"amount":1.10}] {"campaign":"x"}`, pgtest.Text(t, b.pool,
		`SELECT concat_ws(' ', label, principal_id, status, items::text, custom_input::text) FROM execution_batches WHERE id = $1`, firing.BatchID))
	require.Equal(t, "schedule_firing schedule", pgtest.Text(t, b.pool, `SELECT concat_ws(' ', kind, queue) FROM river.river_job WHERE args ->> 'batch_id' = $1`, firing.BatchID.String()))

	firing = b.firings(t, s, repeating)[0]
	require.Equal(t, schedule.Started, firing.Status)
	require.Equal(t, `[{"amount":1.50}] {"n":1.50} t`, pgtest.Text(t, b.pool,
		`SELECT concat_ws(' ', items::text, custom_input::text, label = workflow_alias) FROM execution_batches WHERE id = $1`, firing.BatchID))

	firing = b.firings(t, s, empty)[0]
	require.Equal(t, schedule.Skipped, firing.Status)
	require.Equal(t, "the workflow has no earlier batch whose sources can be used again", firing.Reason)
	require.Equal(t, 2, pgtest.CountJobs(t, b.pool, ""))

	b.clock.set(noon.Add(time.Hour + time.Minute))
	fire(t, s, 3)
	require.Equal(t, schedule.Skipped, b.firings(t, s, own)[0].Status, "the batch before has not ended")
	pgtest.Exec(t, b.pool, `UPDATE execution_batches SET status = 'complete'`)
	b.clock.set(noon.Add(2*time.Hour + time.Minute))
	fire(t, s, 3)
	require.Equal(t, schedule.Started, b.firings(t, s, own)[0].Status)
}

// What a sandbox client tries out does not run in production.
func TestFiringRepeatsOnlyProductionBatches(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.replica(t, b.clock.now)
	workflow := b.publish(t)
	insert := func(amount int, isTest bool) {
		_, err := b.pool.Exec(t.Context(), `INSERT INTO execution_batches (id, tenant_id, workflow_id, workflow_alias, workflow_version, principal_id, label, status, items, is_test)
			SELECT $1, tenant_id, id, alias, version, 'p', 'x', 'complete', $2::json, $3 FROM workflows WHERE id = $4`,
			pgtest.NewID(t), fmt.Sprintf(`[{"amount":%d}]`, amount), isTest, workflow)
		require.NoError(t, err)
	}
	nightly := schedule.Setting{Slot: schedule.Batch, Cron: "1 * * * *"}
	fired := func(hour int) (items string) {
		b.clock.set(noon.Add(time.Duration(hour)*time.Hour + time.Minute))
		fire(t, s, 1)
		firing := b.firings(t, s, workflow)[0]
		if firing.Status == schedule.Started {
			items = pgtest.Text(t, b.pool, `UPDATE execution_batches SET status = 'complete' WHERE id = $1 RETURNING items::text`, firing.BatchID)
		}
		return items
	}
	insert(1, true)
	b.configure(t, s, workflow, nightly)
	require.Empty(t, fired(0), "there are tests alone")
	insert(2, false)
	insert(3, true)
	require.Equal(t, `[{"amount":2}]`, fired(1))

	insert(4, true)
	_, err := s.Delete(t.Context(), b.tenant, workflow, false, []schedule.Slot{schedule.Batch})
	require.NoError(t, err)
	_, err = s.Configure(t.Context(), b.tenant, workflow, true, []schedule.Setting{nightly})
	require.NoError(t, err)
	require.Equal(t, `[{"amount":4}]`, fired(2), "a test repeats a test")
}

// A batch that cannot be started fails alone.
func TestBatchStartFailureIsRecorded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.replica(t, b.clock.now)
	broken, sound := b.publish(t), b.publish(t)
	source, err := storage.New(b.pool).CreatePackage(t.Context(), b.pool, b.tenant, storage.PackageRaw)
	require.NoError(t, err)
	b.configure(t, s, broken, schedule.Setting{Slot: schedule.Batch, Cron: "1 * * * *", Batch: schedule.BatchContent{Packages: []string{source.String()}}})
	b.configure(t, s, sound, single("1 * * * *", `{"amount":1}`))
	pgtest.Exec(t, b.pool, `DELETE FROM packages`)
	b.clock.set(noon.Add(time.Minute))
	fire(t, s, 2)
	firing := b.firings(t, s, broken)[0]
	require.Equal(t, schedule.Failed, firing.Status)
	require.Equal(t, "there is no such package", firing.Reason)
	require.Equal(t, schedule.Started, b.firings(t, s, sound)[0].Status)
	require.Equal(t, 0, pgtest.Count(t, b.pool, "execution_batches", ""))
	require.Equal(t, 1, pgtest.CountJobs(t, b.pool, ""))
}

// A schedule that another version of the program has written and this one cannot
// read fails alone, and is not looked at again before a day has passed.
func TestUnreadableScheduleFailsAlone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.replica(t, b.clock.now)
	reasons := map[uuid.UUID]string{}
	for _, c := range []struct{ column, value, reason string }{
		{"cron", "* * * *", "the cron expression cannot be read"},
		{"input", `{"amount":1,"amount":2}`, "the stored input or batch cannot be read; configure the schedule again"},
		{"input", `[]`, "the stored input or batch cannot be read; configure the schedule again"},
		{"batch", `{"items":{"a":1,"a":2}}`, "the stored input or batch cannot be read; configure the schedule again"},
		{"batch", `{"items":{}}`, "the stored input or batch cannot be read; configure the schedule again"},
		{"batch", `{"items":[],"customInput":[]}`, "the stored input or batch cannot be read; configure the schedule again"},
	} {
		workflow := b.publish(t)
		setting := single("* * * * *", `{"amount":1}`)
		if c.column == "batch" {
			setting = schedule.Setting{Slot: schedule.Batch, Cron: "* * * * *"}
		}
		b.configure(t, s, workflow, setting)
		pgtest.Exec(t, b.pool, `UPDATE schedules SET `+c.column+` = $1 WHERE workflow_id = $2`, c.value, workflow)
		reasons[workflow] = c.reason
	}
	sound := b.publish(t)
	b.configure(t, s, sound, single("* * * * *", `{"amount":1}`))
	b.clock.set(noon.Add(time.Minute))
	fire(t, s, 7)
	require.Equal(t, schedule.Started, b.firings(t, s, sound)[0].Status)
	for workflow, reason := range reasons {
		require.Equal(t, "failed "+reason, pgtest.Text(t, b.pool, `SELECT concat_ws(' ', status, reason) FROM schedule_firings WHERE workflow_id = $1`, workflow))
	}
	require.Equal(t, 1, pgtest.CountJobs(t, b.pool, ""))
	b.clock.set(noon.Add(2 * time.Minute))
	fire(t, s, 1)
	b.clock.set(noon.Add(24*time.Hour + time.Minute))
	fire(t, s, 7)
}

func TestArchivingAndDeletingEndSchedules(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.replica(t, b.clock.now)
	workflow := b.publish(t)
	b.configure(t, s, workflow, single("* * * * *", `{"amount":1}`), schedule.Setting{Slot: schedule.Batch, Cron: "* * * * *"})
	draft, err := b.catalog.CreateDraft(t.Context(), b.tenant, workflow)
	require.NoError(t, err)
	_, err = b.catalog.Publish(t.Context(), b.tenant, draft.ID)
	require.NoError(t, err)
	inherited, _, err := s.Get(t.Context(), b.tenant, draft.ID)
	require.NoError(t, err)
	require.Empty(t, inherited, "a new version has no schedules")
	schedules, _, err := s.Get(t.Context(), b.tenant, workflow)
	require.NoError(t, err)
	require.Len(t, schedules, 2, "and takes none away")

	_, err = b.catalog.Archive(t.Context(), b.tenant, workflow)
	require.NoError(t, err)
	schedules, _, err = s.Get(t.Context(), b.tenant, workflow)
	require.NoError(t, err)
	require.Empty(t, schedules)
	b.clock.set(noon.Add(time.Hour))
	fire(t, s, 0)
	_, err = s.Configure(t.Context(), b.tenant, workflow, false, []schedule.Setting{single("* * * * *", `{"amount":1}`)})
	require.ErrorIs(t, err, fault.Conflict)
	require.NoError(t, b.catalog.Delete(t.Context(), b.tenant, workflow))
	_, _, err = s.Get(t.Context(), b.tenant, workflow)
	require.ErrorIs(t, err, fault.NotFound)
}

// Schedules that are due and must not fire are put off for a day: they are not in
// the way of others, each second.
func TestRevokedTenantAndArchivedWorkflowDoNotFire(t *testing.T) {
	t.Parallel()
	for _, ended := range []string{
		`UPDATE tenants SET revoked_at = now() WHERE id = $1`, `UPDATE workflows SET status = 'archived' WHERE tenant_id = $1`,
	} {
		b := setup(t)
		s := b.replica(t, b.clock.now)
		b.configure(t, s, b.publish(t), single("* * * * *", `{"amount":1}`))
		pgtest.Exec(t, b.pool, ended, b.tenant)
		b.clock.set(noon.Add(time.Minute))
		fire(t, s, 1)
		fire(t, s, 0)
		require.Equal(t, "0 0 0", pgtest.Text(t, b.pool, `SELECT (SELECT count(*) FROM schedule_firings) || ' ' || (SELECT count(*) FROM executions) || ' ' ||
			(SELECT count(*) FROM schedules WHERE next_run_at < '`+noon.Add(24*time.Hour).Format(time.RFC3339)+`')`))

		b.tenant = pgtest.Tenant(t, b.pool).ID // beside them others fire
		b.configure(t, s, b.publish(t), single("* * * * *", `{"amount":1}`))
		b.clock.set(noon.Add(2 * time.Minute))
		fire(t, s, 1)
		require.Equal(t, 1, pgtest.Count(t, b.pool, "executions", ""))
	}
}

// Of the firings of a slot the newest are kept.
func TestOldFiringsAreDeleted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.replica(t, b.clock.now)
	workflow := b.publish(t)
	b.configure(t, s, workflow, single("* * * * *", `{"amount":1}`))
	for minute := range 60 {
		b.clock.set(noon.Add(time.Duration(minute+1) * time.Minute))
		fire(t, s, 1)
		b.end(t)
	}
	require.Equal(t, "50 60", pgtest.Text(t, b.pool, `SELECT (SELECT count(*) FROM schedule_firings) || ' ' || (SELECT count(*) FROM executions)`))
	firings := b.firings(t, s, workflow)
	require.Len(t, firings, 20)
	require.Equal(t, noon.Add(time.Hour), firings[0].ScheduledAt)
}

// A run that outlasts more firings than are kept is still waited for.
func TestFiringOfOpenRunIsKept(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.replica(t, b.clock.now)
	workflow := b.publish(t)
	b.configure(t, s, workflow, single("* * * * *", `{"amount":1}`))
	for minute := range 60 {
		b.clock.set(noon.Add(time.Duration(minute+1) * time.Minute))
		fire(t, s, 1)
	}
	require.Equal(t, "51 1", pgtest.Text(t, b.pool, `SELECT (SELECT count(*) FROM schedule_firings) || ' ' || (SELECT count(*) FROM executions)`))
	b.end(t)
	b.clock.set(noon.Add(61 * time.Minute))
	fire(t, s, 1)
	require.Equal(t, schedule.Started, b.firings(t, s, workflow)[0].Status)
	require.Equal(t, 50, pgtest.Count(t, b.pool, "schedule_firings", ""))
}

// To configure the same times again does not lose one that is due; to configure
// others does.
func TestConfiguredAgainWhileDue(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.replica(t, b.clock.now)
	same, other, offset := b.publish(t), b.publish(t), b.publish(t)
	for _, workflow := range []uuid.UUID{same, other, offset} {
		b.configure(t, s, workflow, single("5 * * * *", `{"amount":1}`))
	}
	b.clock.set(noon.Add(6 * time.Minute))
	b.configure(t, s, same, single("5 * * * *", `{"amount":2}`))
	b.configure(t, s, other, single("4 * * * *", `{"amount":2}`))
	setting := single("5 * * * *", `{"amount":2}`)
	setting.UTCDeltaHours = 1
	b.configure(t, s, offset, setting)
	fire(t, s, 1)
	firings := b.firings(t, s, same)
	require.Len(t, firings, 1)
	require.Equal(t, noon.Add(5*time.Minute), firings[0].ScheduledAt)
	require.Equal(t, `{"amount":2,"currency":"EUR"}`, pgtest.Text(t, b.pool, `SELECT input::text FROM execution_payloads`))
}
