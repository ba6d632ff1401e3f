package batch_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tranche/internal/apitest"
	"tranche/internal/execution"
	"tranche/internal/identity"
	"tranche/internal/server"
	"tranche/jobs"
	"tranche/queries"
)

// calling is a batch of several chunks. Its items make two calls each, and the target can hold
// calls.
type calling struct {
	*stages
	target     *target
	runs       []jobs.BatchItemRun
	isRecorded bool // items are, before their first call
	group      sync.WaitGroup
}

const (
	callingItems = 1000
	callingMost  = 800 // at a time
)

// calls runs a test twice: with items that are recorded after their first call, and with items
// that are recorded before it.
func calls(t *testing.T, test func(t *testing.T, b *calling)) {
	t.Helper()
	for _, isRecorded := range []bool{false, true} {
		t.Run(fmt.Sprintf("recorded=%v", isRecorded), func(t *testing.T) {
			t.Parallel()
			test(t, newCalling(t, isRecorded))
		})
	}
}

func newCalling(t *testing.T, isRecorded bool) *calling {
	t.Helper()
	s := apitest.Start(t, func(c *server.Config) { c.Role = server.RoleAPI })
	tenant := s.Tenant(t)
	c := tenant.As(t, identity.RoleAdmin)
	o := newTarget(t)
	at := "uuid()"
	if isRecorded {
		at = "now()"
	}
	publish(t, c, `{"name": "Bureau", "alias": "bureau", "inputSchema": {"type": "object"},
		"tasks": [`+strings.Replace(request("first", "GET", o.URL), "?", "?at={{ "+at+" }}&", 1)+`, `+request("last", "POST", o.URL)+`],
		"edges": [{"source": "start", "target": "first"}, {"source": "first", "target": "last"}]}`)
	b := &calling{target: o, isRecorded: isRecorded, stages: stagesOf(t, s, c, tenant.ID, start(t, c, "bureau", ids(many(callingItems)...)))}
	require.NoError(t, b.ingester.PreProcess(t.Context(), b.key(), 1))
	b.runs = b.newRuns(t)
	require.Len(t, b.runs, 4, "chunks")
	b.live(t)
	return b
}

// hold makes the target hold calls.
func (b *calling) hold() {
	b.target.mu.Lock()
	defer b.target.mu.Unlock()
	b.target.gate = make(chan struct{})
}

// release makes the target answer all calls.
func (b *calling) release() {
	b.target.mu.Lock()
	defer b.target.mu.Unlock()
	close(b.target.gate)
	b.target.gate = nil
}

// start runs jobs in a process. The group waits for their ends.
func (b *calling) start(ctx context.Context, t *testing.T, in *stages, runs []jobs.BatchItemRun) {
	t.Helper()
	for _, run := range runs {
		b.group.Go(func() {
			holding, err := in.runner.RunItems(ctx, run)
			if err == nil && holding == execution.HeldElsewhere {
				return // the job would come back
			}
			if ctx.Err() == nil {
				require.NoError(t, err)
			}
		})
	}
}

// halfBegun waits until every chunk has begun and none has ended.
func (b *calling) halfBegun(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool { return b.target.count() == callingMost }, waitMax, tick)
	recorded := 0
	if b.isRecorded {
		recorded = callingMost
	}
	require.Equal(t, recorded, b.count(t, "SELECT count(*) FROM executions WHERE status = 'running' AND lease_token IS NOT NULL"))
	require.Positive(t, b.count(t, "SELECT count(*) FROM batch_chunks WHERE holder_id IS NOT NULL"))
}

// complete checks that every item was called for at most so many times, under one key, and
// counted once.
func (b *calling) complete(t *testing.T, callsMost int) {
	t.Helper()
	b.group.Wait()
	r := b.record(t)
	require.Equal(t, "post_processing", r.Status)
	require.Equal(t, [4]int{callingItems, callingItems, 0, 0}, counts(r))
	require.Equal(t, callingItems, b.count(t, "SELECT count(DISTINCT item_index) FROM executions"))
	require.Equal(t, callingItems, b.count(t, "SELECT count(*) FROM executions WHERE status = 'completed' AND started_at IS NOT NULL"))
	require.Zero(t, b.count(t, "SELECT count(*) FROM batch_chunks"))
	require.Zero(t, b.count(t, "SELECT items_enqueued FROM execution_batches"))
	require.Equal(t, 1, b.count(t, "SELECT count(*) FROM river.river_job WHERE kind = 'batch_post_processing'"))
	require.Len(t, b.target.keys, 2*callingItems)
	for call, keys := range b.target.keys {
		require.LessOrEqual(t, len(keys), callsMost, call)
		for _, key := range keys {
			require.Equal(t, keys[0], key, "%s was repeated under another key", call)
		}
		for _, asked := range b.target.asked[call] {
			require.Equal(t, b.target.asked[call][0], asked, "another call was repeated under the same key")
		}
	}
}

// live records a heartbeat for the process, so that it does not count as dead.
func (s *stages) live(t *testing.T) {
	t.Helper()
	_, err := s.Pool.Exec(t.Context(), "INSERT INTO processes (id, role, heartbeat_at) VALUES ($1, 'worker', now() + interval '1 hour')", s.executions.ProcessID)
	require.NoError(t, err)
}

func (b *calling) post(t *testing.T, what string) {
	t.Helper()
	b.caller.Post(t, "/v1/execution-batches/"+b.id.String()+"/"+what, nil).Expect(http.StatusOK)
}

// A pause leaves the remaining items in their chunks. Resuming runs each of them once, even if
// several jobs run the chunk.
func TestChunkPauseAndResume(t *testing.T) {
	t.Parallel()
	calls(t, func(t *testing.T, b *calling) {
		t.Helper()
		b.hold()
		b.start(t.Context(), t, b.stages, b.runs)
		b.halfBegun(t)
		b.post(t, "pause")
		b.release()
		b.group.Wait()
		require.Equal(t, [4]int{callingItems, callingMost, 0, 0}, counts(b.record(t)))
		b.start(t.Context(), t, b.stages, b.runs)
		b.group.Wait()
		require.Equal(t, 2*callingMost, b.target.count(), "nothing begins while the batch is paused")

		b.post(t, "resume")
		require.Equal(t, callingItems-callingMost, b.count(t, "SELECT items_enqueued FROM execution_batches"))
		again := b.newRuns(t)
		require.NotEmpty(t, again)
		b.start(t.Context(), t, b.stages, append(b.runs, again...))
		b.complete(t, 1)
	})
}

// If a batch is resumed while items from before the pause run, each of the other items runs
// once, even if two jobs run the chunk.
func TestChunkResumeWhileItemsRun(t *testing.T) {
	t.Parallel()
	calls(t, func(t *testing.T, b *calling) {
		t.Helper()
		b.hold()
		b.start(t.Context(), t, b.stages, b.runs)
		b.halfBegun(t)
		b.post(t, "pause")
		b.post(t, "resume")
		require.Equal(t, callingItems, b.count(t, "SELECT items_enqueued FROM execution_batches"))
		b.start(t.Context(), t, b.stages, b.newRuns(t))
		b.release()
		b.complete(t, 1)
	})
}

// The remaining items of a chunk are cancelled when none of its items runs any more. The running
// ones finish. A retry runs the cancelled ones.
func TestChunkCancelWhileItemsRun(t *testing.T) {
	t.Parallel()
	calls(t, func(t *testing.T, b *calling) {
		t.Helper()
		b.hold()
		b.start(t.Context(), t, b.stages, b.runs)
		b.halfBegun(t)
		b.post(t, "cancel")
		done, err := b.runner.CancelItems(t.Context(), b.key())
		require.NoError(t, err)
		require.False(t, done, "items run")
		require.Equal(t, [4]int{callingItems, 0, 0, 0}, counts(b.record(t)))
		b.release()
		b.group.Wait()
		require.Equal(t, [4]int{callingItems, callingMost, 0, 0}, counts(b.record(t)))
		done, err = b.runner.CancelItems(t.Context(), b.key())
		require.NoError(t, err)
		require.True(t, done)
		require.Zero(t, b.count(t, "SELECT count(*) FROM batch_chunks"))
		require.Equal(t, [4]int{callingItems, callingMost, callingItems - callingMost, 0}, counts(b.record(t)))
		require.Equal(t, 2*callingMost, b.target.count())
		require.NoError(t, b.output.PostProcess(t.Context(), b.key()))
		require.Equal(t, "cancelled", b.record(t).Status)

		retry(t, b.caller, b.id.String(), map[string]any{"retryMode": "failed_items"})
		require.NoError(t, b.batches.RetryItems(t.Context(), b.key()))
		_, err = b.Pool.Exec(t.Context(), "DELETE FROM river.river_job WHERE kind = 'batch_post_processing'")
		require.NoError(t, err)
		b.start(t.Context(), t, b.stages, b.newRuns(t))
		b.complete(t, 1)
	})
}

// After a process dies, another one repeats its calls under the same keys and runs the remaining
// items. If the first process was alive after all, it changes nothing more.
func TestChunkAfterProcessDies(t *testing.T) {
	t.Parallel()
	calls(t, func(t *testing.T, b *calling) {
		t.Helper()
		other := stagesOf(t, b.Service, b.caller, b.tenantID, b.id.String())
		b.hold()
		b.start(t.Context(), t, b.stages, b.runs)
		b.halfBegun(t)
		_, err := b.Pool.Exec(t.Context(), "DELETE FROM processes")
		require.NoError(t, err)
		b.target.mu.Lock()
		dead := b.target.gate
		b.target.gate = nil
		b.target.mu.Unlock()
		for _, run := range b.runs {
			holding, err := other.runner.RunItems(t.Context(), run)
			require.NoError(t, err)
			require.Equal(t, execution.Held, holding)
		}
		require.Equal(t, [4]int{callingItems, callingItems, 0, 0}, counts(b.record(t)))
		close(dead)
		b.complete(t, 2)
	})
}

// Items that a stop interrupts continue in jobs of their own, or in the next run of their chunk.
func TestChunkAfterProcessStops(t *testing.T) {
	t.Parallel()
	calls(t, func(t *testing.T, b *calling) {
		t.Helper()
		b.hold()
		ctx, stop := context.WithCancel(t.Context())
		b.start(ctx, t, b.stages, b.runs)
		b.halfBegun(t)
		stop()
		b.group.Wait()
		b.release()
		other := stagesOf(t, b.Service, b.caller, b.tenantID, b.id.String())
		b.start(t.Context(), t, other, b.runs)
		b.group.Wait()
		rows, err := b.Pool.Query(t.Context(), "SELECT (args ->> 'execution_id')::uuid FROM river.river_job WHERE kind = 'task_execution'")
		require.NoError(t, err)
		var handedOver []uuid.UUID
		for rows.Next() {
			var id uuid.UUID
			require.NoError(t, rows.Scan(&id))
			handedOver = append(handedOver, id)
		}
		require.NoError(t, rows.Err())
		if b.isRecorded {
			require.Len(t, handedOver, callingMost)
		} else {
			require.Empty(t, handedOver)
		}
		for _, id := range handedOver {
			b.group.Go(func() {
				f, _, err := other.executions.RunLeased(t.Context(), b.tenantID, id)
				if assert.NoError(t, err) && assert.NotNil(t, f) {
					assert.NoError(t, other.runner.End(t.Context(), f))
				}
			})
		}
		b.complete(t, 2)
	})
}

// Two live processes share a batch and its chunks, and call once for each item.
func TestTwoProcessesShareBatch(t *testing.T) {
	t.Parallel()
	calls(t, func(t *testing.T, b *calling) {
		t.Helper()
		other := stagesOf(t, b.Service, b.caller, b.tenantID, b.id.String())
		other.live(t)
		for range 3 {
			b.start(t.Context(), t, b.stages, b.runs)
			b.start(t.Context(), t, other, b.runs)
		}
		b.complete(t, 1)
	})
}

// An item that a dead process recorded while another one acquired the lease of its chunk
// continues.
func TestItemRecordedDuringReclaim(t *testing.T) {
	t.Parallel()
	b := newCalling(t, true)
	run, token := b.runs[0], uuid.New()
	_, err := b.Pool.Exec(t.Context(), "UPDATE batch_chunks SET token = $1 WHERE first_item = $2", token, run.FirstItem)
	require.NoError(t, err)
	tx, err := b.Pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(t.Context()) }()
	now := time.Now()
	begun, err := queries.New().BatchChunkItemsBegin(t.Context(), tx, queries.BatchChunkItemsBeginParams{
		TenantID: b.tenantID, BatchID: b.id, LeaseProcessID: uuid.New(), Chunks: []int32{run.FirstItem}, Tokens: []uuid.UUID{token},
		Ids: []uuid.UUID{uuid.Must(uuid.NewV7())}, ChunkTokens: []uuid.UUID{token}, LeaseTokens: []uuid.UUID{uuid.New()},
		ItemIndexes: []int32{run.FirstItem}, RowNumbers: []int32{0}, FileNames: []string{""}, BorrowerIds: []string{""},
		CreatedAt: []time.Time{now}, StartedAt: []time.Time{now}, DeadlineAt: []time.Time{now.Add(time.Hour)}, TasksCompleted: []int32{0}, TasksFailed: []int32{0},
		Inputs: []string{`{}`}, States: []string{`{"attempt": 1, "status": "pending", "tasks": [{"status": "pending"}, {"status": "pending"}]}`},
	})
	require.NoError(t, err)
	require.Len(t, begun, 1)
	b.start(t.Context(), t, b.stages, b.runs)
	require.Eventually(t, func() bool {
		return b.count(t, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'") == 1
	}, waitMax, tick)
	require.NoError(t, tx.Commit(t.Context()))
	b.complete(t, 1)
}
