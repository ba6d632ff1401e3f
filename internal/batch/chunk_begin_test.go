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

// calling is a batch of several chunks whose items make two calls each, while the
// target holds the first ones.
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

// calls runs a test with items that are recorded when their first call was
// answered, and with such as are before.
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

// hold keeps calls waiting from now on.
func (b *calling) hold() {
	b.target.mu.Lock()
	defer b.target.mu.Unlock()
	b.target.gate = make(chan struct{})
}

// release answers the calls that wait, and from now on all of them.
func (b *calling) release() {
	b.target.mu.Lock()
	defer b.target.mu.Unlock()
	close(b.target.gate)
	b.target.gate = nil
}

// start runs jobs in a process until they end; wait waits for them.
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

// halfBegun is when every chunk is begun and none to its end.
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

// complete says that every item was called for so many times, under one key each,
// and counted once.
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

// live gives the process of the stages a heartbeat: else it counts as dead.
func (s *stages) live(t *testing.T) {
	t.Helper()
	_, err := s.Pool.Exec(t.Context(), "INSERT INTO processes (id, role, heartbeat_at) VALUES ($1, 'worker', now() + interval '1 hour')", s.executions.ProcessID)
	require.NoError(t, err)
}

func (b *calling) post(t *testing.T, what string) {
	t.Helper()
	b.caller.Post(t, "/v1/execution-batches/"+b.id.String()+"/"+what, nil).Expect(http.StatusOK)
}

// A pause leaves what has not begun in its chunks, and resuming runs that and no
// more, whatever jobs there are.
func TestHalfBegunChunksArePausedAndResumed(t *testing.T) {
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

// A batch that is resumed while items run from before the pause begins each of
// the others once, though two jobs run the same chunk.
func TestHalfBegunChunksAreResumedWhileTheyRun(t *testing.T) {
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

// Cancelling ends what waits in half-begun chunks as soon as none of their items
// runs; these end by themselves, and the others run once they are retried.
func TestHalfBegunChunksAreCancelled(t *testing.T) {
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

// What a process had begun when it died is repeated by another under the same
// key, and the rest begins there. A process that was only thought dead changes
// nothing any more.
func TestHalfBegunChunksOutliveTheirProcess(t *testing.T) {
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

// Items that a process was stopped in the middle of go on from jobs of their own
// or under the next that runs their chunk.
func TestHalfBegunChunksOutliveAStop(t *testing.T) {
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

// Two processes that live share a batch, and even the chunks of it, without
// calling for an item twice.
func TestTwoProcessesShareABatch(t *testing.T) {
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

// What the statement of a process that is dead begins until its chunk is taken
// goes on, too.
func TestItemsBegunWhileTheirChunkIsTakenGoOn(t *testing.T) {
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
