package batch_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"tranche/internal/apitest"
	"tranche/internal/batch"
	"tranche/internal/execution"
	"tranche/internal/identity"
	"tranche/internal/server"
	"tranche/jobs"
	"tranche/queries"
)

// overtake runs do concurrently with a change of another process, which commits after do has
// read the rows that it changes.
func (s *stages) overtake(t *testing.T, do func() error, change string, args ...any) {
	t.Helper()
	s.stall(t, do, func() {}, change, args...)
}

// stall runs do until it waits for the lock of a statement, then meanwhile, and then releases
// the lock.
func (s *stages) stall(t *testing.T, do func() error, meanwhile func(), lock string, args ...any) {
	t.Helper()
	tx, err := s.Pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(t.Context()) }()
	_, err = tx.Exec(t.Context(), lock, args...)
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- do() }()
	require.Eventually(t, func() bool {
		return s.count(t, fmt.Sprintf("SELECT count(*) FROM pg_stat_activity WHERE %d = ANY (pg_blocking_pids(pid))", tx.Conn().PgConn().PID())) == 1
	}, waitMax, tick)
	meanwhile()
	require.NoError(t, tx.Commit(t.Context()))
	require.NoError(t, <-done)
}

// A late commit of a dead process acquires or splits a chunk while its items run here. Each item
// still runs once.
func TestChunkReclaimAfterLateCommit(t *testing.T) {
	t.Parallel()
	s := apitest.Start(t, func(c *server.Config) { c.Role = server.RoleAPI })
	const (
		items  = 800
		taken  = `UPDATE batch_chunks SET token = gen_random_uuid(), holder_id = gen_random_uuid(), ids_from = $1 WHERE batch_id = $2`
		splits = `WITH shortened AS (
				UPDATE batch_chunks SET item_indexes = item_indexes[:300], row_numbers = row_numbers[:300], file_names = file_names[:300], inputs = inputs[:300]
				WHERE $1::uuid IS NOT NULL AND batch_id = $2)
			INSERT INTO batch_chunks (tenant_id, batch_id, first_item, item_indexes, row_numbers, file_names, inputs)
			SELECT tenant_id, batch_id, 300, item_indexes[301:], row_numbers[301:], file_names[301:], inputs[301:] FROM batch_chunks WHERE batch_id = $2`
	)
	for change, statement := range map[string]string{"taken": taken, "split": splits} {
		for size, textBytes := range map[string]int{"recorded at once": 10, "split here": 5_000} {
			t.Run(change+", "+size, func(t *testing.T) {
				t.Parallel()
				tenant := s.Tenant(t)
				c := tenant.As(t, identity.RoleAdmin)
				publish(t, c, `{"name": "Echo", "alias": "echo", "inputSchema": {"type": "object"},
					"tasks": [{"id": "echo", "type": "transform", "config": {"fields": {"a": "{{ input.text }}", "b": "{{ input.text }}"}}}]}`)
				inputs := make([]any, items)
				for i := range inputs {
					inputs[i] = map[string]any{"n": i, "text": strings.Repeat("x", textBytes)}
				}
				b := stagesOf(t, s, c, tenant.ID, start(t, c, "echo", map[string]any{"workflowInput": map[string]any{"items": inputs}}))
				require.NoError(t, b.ingester.PreProcess(t.Context(), b.key(), 1))
				runs := b.newRuns(t)
				require.Len(t, runs, 1)
				var holding execution.Holding
				b.overtake(t, func() (err error) {
					holding, err = b.runner.RunItems(t.Context(), runs[0])
					return err
				}, statement, uuid.Must(uuid.NewV7()), b.id)
				require.Equal(t, execution.HeldElsewhere, holding, "the job is to look again")
				if change == "split" { // the job that the same commit enqueued
					runs = append(runs, jobs.BatchItemRun{TenantID: b.tenantID, BatchID: b.id, FirstItem: 300, EndItem: items, IsChunk: true})
				}
				for ; len(runs) > 0; runs = b.newRuns(t) {
					for _, run := range runs {
						holding, err := b.runner.RunItems(t.Context(), run)
						require.NoError(t, err)
						require.Equal(t, execution.Held, holding)
					}
				}
				require.Equal(t, "post_processing", b.record(t).Status)
				require.Equal(t, [4]int{items, items, 0, 0}, counts(b.record(t)))
				require.Equal(t, items, b.count(t, fmt.Sprintf("SELECT count(DISTINCT item_index) FROM executions WHERE batch_id = '%s'", b.id)))
			})
		}
	}
}

// A writer that is overtaken before it records its package begins again: for the next
// attempt of the batch, or after a dead writer whose commit arrived late.
func TestOutputWriterBeginsAgainWhenOvertaken(t *testing.T) {
	t.Parallel()
	s := apitest.Start(t, func(c *server.Config) { c.Role = server.RoleAPI })
	for name, of := range map[string]struct {
		change  string
		attempt int
	}{
		"next attempt": {"UPDATE execution_batches SET attempt = 2 WHERE id = $1", 2},
		"late commit of a dead writer": {`WITH package AS (INSERT INTO packages (id, tenant_id, kind) SELECT '0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11', tenant_id, 'output' FROM execution_batches WHERE id = $1)
			UPDATE execution_batches SET draft_package_id = '0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11' WHERE id = $1`, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tenant := s.Tenant(t)
			c := tenant.As(t, identity.RoleAdmin)
			publish(t, c, affordability)
			b := stagesOf(t, s, c, tenant.ID, start(t, c, "affordability", map[string]any{"workflowInput": map[string]any{"items": []any{map[string]any{"borrowerId": "B-1"}}}}))
			_, err := s.Pool.Exec(t.Context(), "UPDATE execution_batches SET status = 'post_processing' WHERE id = $1", b.id)
			require.NoError(t, err)
			b.overtake(t, func() error { return b.output.PostProcess(t.Context(), b.key()) }, of.change, b.id)
			r := b.record(t)
			require.Equal(t, string(batch.StatusComplete), r.Status)
			require.Contains(t, files(t, c, *r.Outputs.Post.PackageID)["manifest.json"], fmt.Sprintf(`"attempt": %d`, of.attempt))
		})
	}
}

// A reader of an abandoned attempt changes nothing of the next attempt. A job of an earlier
// version, without an attempt, continues with the next attempt.
func TestReadingForEarlierAttempt(t *testing.T) {
	t.Parallel()
	for name, old := range map[string]string{
		"items":         `[{"id": "old"}]`,
		"refused items": `[{"id": 1}]`,
		"a fault":       `[{`,
	} {
		for _, attempt := range []int32{1, 0} {
			t.Run(fmt.Sprintf("%s, attempt %d", name, attempt), func(t *testing.T) {
				t.Parallel()
				s := apitest.Start(t, func(c *server.Config) { c.Role = server.RoleAPI })
				tenant := s.Tenant(t)
				c := tenant.As(t, identity.RoleAdmin)
				publish(t, c, `{"name": "Echo", "alias": "echo", "inputSchema": {"type": "object", "properties": {"id": {"type": "string"}}},
					"tasks": [{"id": "echo", "type": "transform", "config": {"fields": {"a": "{{ input.id }}"}}}]}`)
				b := stagesOf(t, s, c, tenant.ID, start(t, c, "echo", map[string]any{"attachmentFileNames": []string{upload(t, c, "a.json", old)}}))
				b.stall(t, func() error { return b.ingester.PreProcess(t.Context(), b.key(), attempt) }, func() {
					require.True(t, b.abandons(t, 1))
					again := ids("new")
					again["retryMode"], again["usePreviousInputs"] = "pre_processing", false
					retry(t, c, b.id.String(), again)
					_, err := queries.New().BatchPreProcessingBegin(t.Context(), s.Pool, queries.BatchPreProcessingBeginParams{TenantID: b.tenantID, ID: b.id, Attempt: 2})
					require.NoError(t, err)
				}, "LOCK TABLE attachment_chunks")
				if attempt == 1 {
					require.Equal(t, "pre_processing", b.record(t).Status)
					require.Zero(t, b.record(t).State.Summary.Total)
					require.False(t, b.abandons(t, 1))
					at := "/v1/execution-batches/" + b.id.String()
					c.Post(t, at+"/pause", nil).Expect(http.StatusOK)
					c.Post(t, at+"/resume", nil).Expect(http.StatusOK)
					require.Equal(t, 2, b.count(t, "SELECT count(*) FROM river.river_job WHERE args -> 'attempt' = '2'"), "the retry's and the resumption's")
					require.NoError(t, b.ingester.PreProcess(t.Context(), b.key(), 2))
				}
				require.Equal(t, "processing", b.record(t).Status)
				require.Equal(t, 1, b.record(t).State.Summary.Total)
				require.Equal(t, 1, b.count(t, `SELECT count(*) FROM batch_chunks WHERE inputs = '{"{\"id\":\"new\"}"}'`))
			})
		}
	}
}

// abandons fails the pre-processing of an attempt, and returns whether it did.
func (s *stages) abandons(t *testing.T, attempt int32) bool {
	t.Helper()
	abandoned, err := s.ingester.FailPreProcessing(t.Context(), s.key(), attempt)
	require.NoError(t, err)
	return abandoned
}

// A worker that prepares the items of an earlier attempt neither repeats an item that completed
// meanwhile, nor dispatches items of the next attempt that are not prepared.
func TestRetryForEarlierAttempt(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]struct {
		readyUntil int // when it is overtaken
		pending    int
	}{
		"before a chunk": {0, 1}, // it goes on with the new attempt
		"at the end":     {2, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := apitest.Start(t, func(c *server.Config) { c.Role = server.RoleAPI })
			tenant := s.Tenant(t)
			c := tenant.As(t, identity.RoleAdmin)
			publish(t, c, `{"name": "Refuse", "alias": "refuse", "inputSchema": {"type": "object"},
				"tasks": [{"id": "refuse", "type": "end", "config": {"status": "failed", "errorMessage": "not today"}}]}`)
			b := stagesOf(t, s, c, tenant.ID, start(t, c, "refuse", ids("a", "b")))
			require.NoError(t, b.ingester.PreProcess(t.Context(), b.key(), 1))
			for _, run := range b.newRuns(t) {
				_, err := b.runner.RunItems(t.Context(), run)
				require.NoError(t, err)
			}
			require.NoError(t, b.output.PostProcess(t.Context(), b.key()))
			retry(t, c, b.id.String(), map[string]any{"retryMode": "failed_items"})
			_, err := s.Pool.Exec(t.Context(), "UPDATE execution_batches SET retry_from = $1", of.readyUntil)
			require.NoError(t, err)
			b.overtake(t, func() error { return b.batches.RetryItems(t.Context(), b.key()) },
				`WITH completed AS (UPDATE executions SET status = 'completed', is_success = true, attempt = 2 WHERE batch_id = $1 AND item_index = 0)
				UPDATE execution_batches SET attempt = 3, retry_from = 0, items_completed = 1, items_failed = 1 WHERE id = $1`, b.id)
			r := b.record(t)
			require.Equal(t, "processing", r.Status)
			require.Equal(t, [4]int{2, 1, 1 - of.pending, 0}, counts(r))
			require.Equal(t, 1, b.count(t, "SELECT count(*) FROM executions WHERE item_index = 0 AND status = 'completed'"))
			require.Equal(t, of.pending, b.count(t, "SELECT count(*) FROM executions WHERE status = 'pending'"))
			require.NoError(t, b.batches.RetryItems(t.Context(), b.key()))
			require.Equal(t, 1, b.count(t, "SELECT count(*) FROM executions WHERE item_index = 1 AND status = 'pending'"))
		})
	}
}
