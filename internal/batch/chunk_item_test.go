package batch_test

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"tranche/internal/apitest"
	"tranche/internal/batch/runner"
	"tranche/internal/execution"
	"tranche/internal/identity"
	"tranche/internal/server"
	"tranche/queries"
)

// oneCall is a batch of one chunk whose items make one call each.
func oneCall(t *testing.T, items int) *calling {
	t.Helper()
	s := apitest.Start(t, func(c *server.Config) { c.Role = server.RoleAPI })
	tenant := s.Tenant(t)
	c := tenant.As(t, identity.RoleAdmin)
	o := newTarget(t)
	publish(t, c, `{"name": "Bureau", "alias": "bureau", "inputSchema": {"type": "object"}, "tasks": [`+request("score", "POST", o.URL)+`], "edges": []}`)
	b := &calling{target: o, stages: stagesOf(t, s, c, tenant.ID, start(t, c, "bureau", ids(many(items)...)))}
	require.NoError(t, b.ingester.PreProcess(t.Context(), b.key(), 1))
	b.runs = b.newRuns(t)
	require.Len(t, b.runs, 1, "chunks")
	return b
}

func (b *calling) run(t *testing.T, in *stages) execution.Holding {
	t.Helper()
	holding, err := in.runner.RunItems(t.Context(), b.runs[0])
	require.NoError(t, err)
	return holding
}

// No other process runs a chunk whose holder lives. The holder itself knows that it has ended a
// lease, even if the row still names it.
func TestChunkLeaseHolder(t *testing.T) {
	t.Parallel()
	b := oneCall(t, 3)
	b.live(t)
	other := stagesOf(t, b.Service, b.caller, b.tenantID, b.id.String())
	_, err := b.Pool.Exec(t.Context(), "UPDATE batch_chunks SET token = gen_random_uuid(), ids_from = $1, holder_id = $2", uuid.Must(uuid.NewV7()), b.executions.ProcessID)
	require.NoError(t, err)
	require.Equal(t, execution.HeldElsewhere, b.run(t, other))
	require.Zero(t, b.target.count())
	require.Equal(t, execution.Held, b.run(t, b.stages))
	require.Equal(t, 3, b.target.count())
	require.Zero(t, b.count(t, "SELECT count(*) FROM batch_chunks"))
	require.Equal(t, execution.Held, b.run(t, other), "nothing is left")
}

// The lease of a chunk is released after an error, so that another process can continue while
// this one lives. Calls are repeated under their keys.
func TestChunkLeaseReleasedAfterError(t *testing.T) {
	t.Parallel()
	b := oneCall(t, 3)
	b.live(t)
	_, err := b.Pool.Exec(t.Context(), "ALTER TABLE execution_payloads RENAME TO away")
	require.NoError(t, err)
	_, err = b.runner.RunItems(t.Context(), b.runs[0])
	require.ErrorContains(t, err, "execution_payloads")
	_, err = b.Pool.Exec(t.Context(), "ALTER TABLE away RENAME TO execution_payloads")
	require.NoError(t, err)
	require.Equal(t, 1, b.count(t, "SELECT count(*) FROM batch_chunks WHERE holder_id IS NULL AND token IS NOT NULL"))
	other := stagesOf(t, b.Service, b.caller, b.tenantID, b.id.String())
	require.Equal(t, execution.Held, b.run(t, other))
	require.Equal(t, [4]int{3, 3, 0, 0}, counts(b.record(t)))
	for call, keys := range b.target.keys {
		require.Len(t, keys, 2, call)
		require.Equal(t, keys[0], keys[1], call)
	}
}

// If a process dies after it recorded the last items, the next run of their chunk dispatches the
// next items or ends the processing.
func TestDispatchAfterLateCrash(t *testing.T) {
	t.Parallel()
	for name, left := range map[string]string{
		"chunk removed": "SELECT",
		"chunk left": `INSERT INTO batch_chunks (tenant_id, batch_id, first_item, item_indexes, row_numbers, file_names, inputs, token, ids_from, holder_id)
			SELECT tenant_id, id, 0, '{0,1,2}', '{1,2,3}', '{a,a,a}', ARRAY['{}','{}','{}'], gen_random_uuid(), gen_random_uuid(), gen_random_uuid() FROM execution_batches`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := oneCall(t, 3)
			require.Equal(t, execution.Held, b.run(t, b.stages))
			_, err := b.Pool.Exec(t.Context(), "UPDATE execution_batches SET status = 'processing'; DELETE FROM river.river_job WHERE kind = 'batch_post_processing';"+left)
			require.NoError(t, err)
			require.Equal(t, execution.Held, b.run(t, b.stages))
			require.Equal(t, "post_processing", b.record(t).Status)
			require.Equal(t, 1, b.count(t, "SELECT count(*) FROM river.river_job WHERE kind = 'batch_post_processing'"))
			require.Equal(t, 3, b.target.count(), "nothing is called again")
		})
	}
}

// If a process dies before it deletes a chunk whose items are recorded, the end of the
// processing deletes the chunk.
func TestRecordedChunkDeletedWithBatch(t *testing.T) {
	t.Parallel()
	b := oneCall(t, 3)
	_, err := b.Pool.Exec(t.Context(), `INSERT INTO batch_chunks (tenant_id, batch_id, first_item, item_indexes, row_numbers, file_names, inputs, token, holder_id)
		SELECT tenant_id, batch_id, 1000, item_indexes, row_numbers, file_names, inputs, gen_random_uuid(), gen_random_uuid() FROM batch_chunks`)
	require.NoError(t, err)
	require.Equal(t, execution.Held, b.run(t, b.stages))
	require.Equal(t, "post_processing", b.record(t).Status)
	require.Zero(t, b.count(t, "SELECT count(*) FROM batch_chunks"))
}

// A chunk without remaining items, whose process died, is not dispatched.
func TestEmptyChunkNotDispatched(t *testing.T) {
	t.Parallel()
	b := oneCall(t, 3)
	_, err := b.Pool.Exec(t.Context(), `INSERT INTO batch_chunks (tenant_id, batch_id, first_item, item_indexes, row_numbers, file_names, inputs, token, holder_id)
		SELECT tenant_id, batch_id, 1000, '{}', '{}', '{}', '{}', gen_random_uuid(), gen_random_uuid() FROM batch_chunks`)
	require.NoError(t, err)
	b.post(t, "pause")
	b.post(t, "resume")
	require.Len(t, b.newRuns(t), 1)
	b.post(t, "cancel")
	done, err := b.runner.CancelItems(t.Context(), b.key())
	require.NoError(t, err)
	require.True(t, done)
	require.Equal(t, [4]int{3, 0, 3, 0}, counts(b.record(t)))
	require.Zero(t, b.count(t, "SELECT count(*) FROM batch_chunks"))
}

// Resuming counts the running items while the batch is locked. An item that ended meanwhile
// would occupy the window for ever.
func TestResumeCountsRunningItems(t *testing.T) {
	t.Parallel()
	b := oneCall(t, 3)
	b.post(t, "pause")
	_, err := b.Pool.Exec(t.Context(), "UPDATE batch_chunks SET token = gen_random_uuid()")
	require.NoError(t, err)
	_, err = b.Pool.Exec(t.Context(), `INSERT INTO executions (id, tenant_id, workflow_id, workflow_alias, workflow_version, principal_id, batch_id, item_index, status, created_at)
		SELECT $1, tenant_id, workflow_id, workflow_alias, workflow_version, principal_id, id, 0, 'running', now() FROM execution_batches`, uuid.Must(uuid.NewV7()))
	require.NoError(t, err)
	tx, err := b.Pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(t.Context()) }()
	_, err = tx.Exec(t.Context(), "UPDATE executions SET status = 'completed', is_success = true, completed_at = now()")
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "UPDATE execution_batches SET items_completed = 1, items_enqueued = 2")
	require.NoError(t, err)
	b.group.Go(func() { b.post(t, "resume") })
	require.Eventually(t, func() bool {
		return b.count(t, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'") == 1
	}, waitMax, tick)
	require.NoError(t, tx.Commit(t.Context()))
	b.group.Wait()
	require.Equal(t, 2, b.count(t, "SELECT items_enqueued FROM execution_batches"))
}

// The ids of items stay the same in every run of their chunk, until they are so old that their
// month might be dropped.
func TestItemIDsKeptBetweenRuns(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		age  time.Duration
		kept bool
	}{"young": {20 * 24 * time.Hour, true}, "old": {22 * 24 * time.Hour, false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := oneCall(t, 3)
			before := queries.FirstIDAt(time.Now().Add(-c.age))
			_, err := b.Pool.Exec(t.Context(), "UPDATE batch_chunks SET token = gen_random_uuid(), ids_from = $1", before)
			require.NoError(t, err)
			require.Equal(t, execution.Held, b.run(t, b.stages))
			var first uuid.UUID
			var created time.Time
			require.NoError(t, b.Pool.QueryRow(t.Context(), "SELECT id, created_at FROM executions ORDER BY item_index LIMIT 1").Scan(&first, &created))
			require.Equal(t, c.kept, queries.CreatedAt(first).Equal(queries.CreatedAt(before)))
			require.WithinDuration(t, queries.CreatedAt(first), created, 0)
		})
	}
}

// Items whose process died during their calls keep the ids in the keys of these calls when they
// are cancelled. A retry repeats the calls under the same keys.
func TestCancelledItemsKeepIDs(t *testing.T) {
	t.Parallel()
	b := oneCall(t, 3)
	b.live(t)
	b.hold()
	b.start(t.Context(), t, b.stages, b.runs)
	require.Eventually(t, func() bool { return b.target.count() == 3 }, waitMax, tick)
	b.post(t, "cancel")
	_, err := b.Pool.Exec(t.Context(), "DELETE FROM processes")
	require.NoError(t, err)
	other := stagesOf(t, b.Service, b.caller, b.tenantID, b.id.String())
	done, err := other.runner.CancelItems(t.Context(), b.key())
	require.NoError(t, err)
	require.True(t, done)
	b.release()
	b.group.Wait()
	require.Equal(t, [4]int{3, 0, 3, 0}, counts(b.record(t)))
	require.NoError(t, other.output.PostProcess(t.Context(), b.key()))

	retry(t, b.caller, b.id.String(), map[string]any{"retryMode": "failed_items"})
	require.NoError(t, other.batches.RetryItems(t.Context(), b.key()))
	for _, run := range b.newRuns(t) {
		_, err := other.runner.RunItems(t.Context(), run)
		require.NoError(t, err)
	}
	require.Equal(t, [4]int{3, 3, 0, 0}, counts(b.record(t)))
	require.Len(t, b.target.keys, 3)
	for call, keys := range b.target.keys {
		require.Len(t, keys, 2, call)
		require.Equal(t, keys[0], keys[1], "%s was repeated under another key", call)
	}
	require.Equal(t, 1, b.count(t, "SELECT count(DISTINCT created_at) FROM executions"), "when their ids say")
}

// ending is the statement with which a process that was considered dead records the first item
// of its chunk.
func (b *calling) ending(token uuid.UUID, idsFrom uuid.UUID) queries.BatchChunkItemsRecordParams {
	now, id := time.Now(), idsFrom
	id[6], id[7] = 0x70, 0 // of its first item
	return queries.BatchChunkItemsRecordParams{
		TenantID: b.tenantID, BatchID: b.id, Chunks: []int32{0}, Tokens: []uuid.UUID{token}, NewColumns: []string{},
		FirstID: id, LastID: id, Ids: []uuid.UUID{id}, ChunkTokens: []uuid.UUID{token}, ItemIndexes: []int32{0}, RowNumbers: []int32{0},
		FileNames: []string{""}, BorrowerIds: []string{""}, Statuses: []string{"completed"}, SourceFailed: []bool{false},
		StatusCodes: []int32{200}, TasksCompleted: []int32{1}, TasksFailed: []int32{0}, Tags: []string{"[]"},
		CreatedAt: []time.Time{now}, StartedAt: []time.Time{now}, CompletedAt: []time.Time{now},
		Inputs: []string{`{}`}, States: []string{"null"}, Results: []string{`{}`},
	}
}

// An item counts once, whether the statement that records it or the acquisition of its chunk
// commits first.
func TestLateCommitCountsOnce(t *testing.T) {
	t.Parallel()
	b := oneCall(t, 3)
	token, idsFrom := uuid.New(), uuid.Must(uuid.NewV7())
	_, err := b.Pool.Exec(t.Context(), "UPDATE batch_chunks SET token = $1, ids_from = $2, holder_id = gen_random_uuid()", token, idsFrom)
	require.NoError(t, err)
	tx, err := b.Pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(t.Context()) }()
	row, err := queries.New().BatchChunkItemsRecord(t.Context(), tx, b.ending(token, idsFrom))
	require.NoError(t, err)
	require.EqualValues(t, 1, row.ItemsCompleted)
	b.start(t.Context(), t, b.stages, b.runs)
	require.Eventually(t, func() bool {
		return b.count(t, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'") == 1
	}, waitMax, tick)
	require.NoError(t, tx.Commit(t.Context()))
	b.group.Wait()
	require.Equal(t, [4]int{3, 3, 0, 0}, counts(b.record(t)))
	require.Equal(t, 2, b.target.count(), "the other items")

	_, err = queries.New().BatchChunkItemsRecord(t.Context(), b.Pool, b.ending(token, idsFrom))
	require.ErrorIs(t, err, pgx.ErrNoRows, "the chunk is another's")
	require.Equal(t, [4]int{3, 3, 0, 0}, counts(b.record(t)))
	require.Equal(t, 3, b.count(t, "SELECT count(*) FROM executions"))
}

// A process that lost the lease does not consider items or their output columns as recorded.
func TestLostLeaseRecordsNothing(t *testing.T) {
	t.Parallel()
	b := oneCall(t, 3)
	b.hold()
	b.start(t.Context(), t, b.stages, b.runs)
	require.Eventually(t, func() bool { return b.target.count() > 0 }, waitMax, tick)
	_, err := b.Pool.Exec(t.Context(), "UPDATE batch_chunks SET token = gen_random_uuid(), holder_id = NULL")
	require.NoError(t, err)
	b.release()
	b.group.Wait()
	require.Equal(t, [4]int{3, 0, 0, 0}, counts(b.record(t)))
	require.Equal(t, execution.Held, b.run(t, b.stages))
	require.Equal(t, [4]int{3, 3, 0, 0}, counts(b.record(t)))
	require.Equal(t, 1, b.count(t, "SELECT count(*) FROM execution_batches WHERE 'body.score' = ANY (output_columns)"))
}

// A statement that is repeated because its result was lost counts an item once.
func TestRepeatedStatementCountsOnce(t *testing.T) {
	t.Parallel()
	b := oneCall(t, 3)
	token, idsFrom := uuid.New(), uuid.Must(uuid.NewV7())
	_, err := b.Pool.Exec(t.Context(), "UPDATE batch_chunks SET token = $1, ids_from = $2, holder_id = gen_random_uuid()", token, idsFrom)
	require.NoError(t, err)
	_, err = queries.New().BatchChunkItemsRecord(t.Context(), b.Pool, b.ending(token, idsFrom))
	require.NoError(t, err)
	_, err = queries.New().BatchChunkItemsRecord(t.Context(), b.Pool, b.ending(token, idsFrom))
	require.ErrorIs(t, err, pgx.ErrNoRows)
	require.Equal(t, [4]int{3, 1, 0, 0}, counts(b.record(t)))
	require.Equal(t, 1, b.count(t, "SELECT count(*) FROM executions"))
	require.Equal(t, 1, b.count(t, "SELECT count(*) FROM execution_payloads"))
}

// If a statement is repeated while the first one runs, the repetition fails, and the next one
// finds the item recorded.
func TestConcurrentStatementsCountOnce(t *testing.T) {
	t.Parallel()
	b := oneCall(t, 3)
	token, idsFrom := uuid.New(), uuid.Must(uuid.NewV7())
	_, err := b.Pool.Exec(t.Context(), "UPDATE batch_chunks SET token = $1, ids_from = $2, holder_id = gen_random_uuid()", token, idsFrom)
	require.NoError(t, err)
	tx, err := b.Pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(t.Context()) }()
	_, err = queries.New().BatchChunkItemsRecord(t.Context(), tx, b.ending(token, idsFrom))
	require.NoError(t, err)
	b.group.Go(func() {
		_, err := queries.New().BatchChunkItemsRecord(t.Context(), b.Pool, b.ending(token, idsFrom))
		require.ErrorContains(t, err, "executions")
	})
	require.Eventually(t, func() bool {
		return b.count(t, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'") == 1
	}, waitMax, tick)
	require.NoError(t, tx.Commit(t.Context()))
	b.group.Wait()
	_, err = queries.New().BatchChunkItemsRecord(t.Context(), b.Pool, b.ending(token, idsFrom))
	require.ErrorIs(t, err, pgx.ErrNoRows)
	require.Equal(t, [4]int{3, 1, 0, 0}, counts(b.record(t)))
	require.Equal(t, 1, b.count(t, "SELECT count(*) FROM executions"))
}

// An item with an unavailable target stays in its chunk if no call has succeeded. Else it is
// recorded, and successful calls are not repeated.
func TestItemsPostponed(t *testing.T) {
	t.Parallel()
	for name, isAnswered := range map[string]bool{"nothing answered": false, "one call answered": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
			require.NoError(t, err)
			address := listener.Addr().String()
			require.NoError(t, listener.Close())
			s := apitest.Start(t, func(c *server.Config) { c.Role = server.RoleAPI })
			tenant := s.Tenant(t)
			c := tenant.As(t, identity.RoleAdmin)
			o := newTarget(t)
			tasks, edges := request("down", "POST", "http://"+address), `{"source": "start", "target": "down"}`
			if isAnswered {
				tasks, edges = strings.Replace(tasks, `"retry"`, `"onError": "continue", "retry"`, 1)+`, `+request("up", "POST", o.URL), edges+`, {"source": "start", "target": "up"}`
			}
			publish(t, c, `{"name": "Down", "alias": "down", "inputSchema": {"type": "object"}, "tasks": [`+tasks+`], "edges": [`+edges+`]}`)
			const items = 10
			b := &calling{target: o, stages: stagesOf(t, s, c, tenant.ID, start(t, c, "down", ids(many(items)...)))}
			require.NoError(t, b.ingester.PreProcess(t.Context(), b.key(), 1))
			b.runs = b.newRuns(t)
			down := func() bool {
				_, err := b.runner.RunItems(t.Context(), b.runs[0])
				isDown := errors.As(err, new(*runner.CircuitOpenError))
				require.True(t, isDown || err == nil, err)
				return isDown
			}
			require.True(t, down())
			ended := counts(b.record(t))
			require.Less(t, ended[1]+ended[2], 5, "only what met the target before the circuit opened")
			putOff := b.count(t, "SELECT count(*) FROM executions WHERE status = 'running' AND lease_token IS NULL AND started_at IS NULL")
			if isAnswered {
				require.Equal(t, o.count(), ended[1]+putOff)
			} else {
				require.Zero(t, putOff)
			}
			require.Zero(t, b.count(t, "SELECT count(*) FROM batch_chunks WHERE holder_id IS NOT NULL"))

			listener, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
			require.NoError(t, err)
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{}`)) }))
			server.Listener = listener
			server.Start()
			t.Cleanup(server.Close)
			for range 10 {
				b.ahead += time.Minute
				if !down() {
					break
				}
			}
			require.Equal(t, [4]int{items, items - ended[2], ended[2], 0}, counts(b.record(t)))
			require.Zero(t, b.count(t, "SELECT count(*) FROM batch_chunks"))
			for call, keys := range o.keys {
				require.Len(t, keys, 1, call)
			}
		})
	}
}

// An item that waits for a slot does not begin after a pause.
func TestPauseWhileItemsWaitForSlots(t *testing.T) {
	t.Parallel()
	b := oneCall(t, 3)
	b.post(t, "pause")
	require.Equal(t, execution.Held, b.run(t, b.stages))
	require.Zero(t, b.target.count())
	require.Zero(t, b.count(t, "SELECT count(*) FROM batch_chunks WHERE token IS NOT NULL"))
	b.post(t, "resume")
	b.runs = b.newRuns(t)
	require.Equal(t, execution.Held, b.run(t, b.stages))
	require.Equal(t, [4]int{3, 3, 0, 0}, counts(b.record(t)))
}

// If the end or the wait of an item cannot be written, its lease is released. The next try of
// its job continues the item while the process lives.
func TestItemLeaseReleasedAfterError(t *testing.T) {
	t.Parallel()
	for name, refused := range map[string]string{"end": "items_completed = 0", "wait": "notices::text = '[]'"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
			require.NoError(t, err)
			address := listener.Addr().String()
			target := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{}`)) }))
			s := apitest.Start(t, func(c *server.Config) { c.Role = server.RoleAPI })
			tenant := s.Tenant(t)
			c := tenant.As(t, identity.RoleAdmin)
			publish(t, c, `{"name": "Away", "alias": "away", "inputSchema": {"type": "object"},
				"tasks": [`+strings.Replace(request("score", "POST", "http://"+address), "?", "?at={{ now() }}&", 1)+`], "edges": []}`)
			const items = 10
			b := &calling{stages: stagesOf(t, s, c, tenant.ID, start(t, c, "away", ids(many(items)...)))}
			require.NoError(t, b.ingester.PreProcess(t.Context(), b.key(), 1))
			b.runs = b.newRuns(t)
			b.live(t)
			if name == "wait" {
				require.NoError(t, listener.Close())
			} else {
				target.Listener = listener
				target.Start()
			}
			_, err = b.Pool.Exec(t.Context(), "ALTER TABLE execution_batches ADD CONSTRAINT refused CHECK ("+refused+") NOT VALID")
			require.NoError(t, err)
			_, err = b.runner.RunItems(t.Context(), b.runs[0])
			require.ErrorContains(t, err, "refused")
			_, err = b.Pool.Exec(t.Context(), "ALTER TABLE execution_batches DROP CONSTRAINT refused")
			require.NoError(t, err)
			if name == "wait" {
				target.Listener, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
				require.NoError(t, err)
				target.Start()
			}
			t.Cleanup(target.Close)
			b.ahead += time.Minute
			require.Eventually(t, func() bool {
				_, _ = b.runner.RunItems(t.Context(), b.runs[0])
				r := counts(b.record(t))
				return r[1]+r[2] == items
			}, waitMax, tick)
		})
	}
}
