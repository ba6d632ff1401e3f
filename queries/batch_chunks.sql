-- name: BatchChunksList :many
-- Lists the chunks from an index on, in order, and counts the items of each that are not
-- recorded. It omits chunks with no such item.
SELECT c.first_item, c.item_indexes[cardinality(c.item_indexes)]::integer + 1 AS end_item,
    (cardinality(c.item_indexes) - CASE WHEN c.token IS NULL THEN 0 ELSE (
        SELECT count(*) FROM executions e
        WHERE e.tenant_id IS NOT DISTINCT FROM c.tenant_id AND e.batch_id = c.batch_id AND e.item_index = ANY (c.item_indexes)) END)::integer AS items
FROM batch_chunks c
WHERE c.tenant_id = @tenant_id AND c.batch_id = @batch_id AND c.first_item >= @first_item::integer AND cardinality(c.item_indexes) > 0
ORDER BY c.first_item LIMIT @chunks_max;

-- name: BatchChunkGet :one
-- Returns a chunk with all that is needed to run it: the process that runs its items,
-- and whether its batch is paused or cancelled. No row: its items are recorded.
SELECT c.token, c.holder_id, EXISTS (
        SELECT FROM processes p WHERE p.id = c.holder_id AND p.heartbeat_at > now() - make_interval(secs => @dead_after_seconds::float8)) AS holder_lives,
    c.ids_from, c.item_indexes, c.row_numbers, c.file_names, c.inputs, b.workflow_id, b.custom_input, b.is_test,
    (b.status = 'processing' AND b.cancel_requested_at IS NULL)::boolean AS may_begin,
    (b.status = 'processing' AND b.cancel_requested_at IS NOT NULL)::boolean AS is_cancelled
FROM batch_chunks c JOIN execution_batches b ON b.tenant_id = c.tenant_id AND b.id = c.batch_id
WHERE c.tenant_id = @tenant_id AND c.batch_id = @batch_id AND c.first_item = @first_item::integer;

-- name: BatchChunkRecord :execrows
-- Records the ended items of a chunk as executions, in order. BatchChunkCount must
-- follow in the same transaction. No row: they are already recorded, or another process
-- has acquired or split the chunk. Executions and payloads expand the arrays separately,
-- because a common table would copy every text.
WITH chunk AS (
    DELETE FROM batch_chunks c WHERE c.tenant_id = @tenant_id AND c.batch_id = @batch_id::uuid AND c.first_item = @first_item::integer
      AND c.token IS NOT DISTINCT FROM sqlc.narg('token')::uuid AND cardinality(c.item_indexes) = cardinality(@ids::uuid[])
    RETURNING c.item_indexes, c.row_numbers, c.file_names, c.inputs
), execution AS (
    INSERT INTO executions (id, tenant_id, workflow_id, workflow_alias, workflow_version, workflow_type, principal_id, borrower_id,
        is_test, batch_id, item_index, row_number, source_file_name, status, is_success, source_failed, status_code,
        tasks_completed, tasks_failed, tags, created_at, started_at, completed_at)
    SELECT item.id, b.tenant_id, b.workflow_id, b.workflow_alias, b.workflow_version, NULLIF(@workflow_type::text, ''),
        b.principal_id, NULLIF(item.borrower_id, ''), b.is_test, b.id, item.item_index,
        NULLIF(item.row_number, 0), NULLIF(item.file_name, ''), item.status, item.status = 'completed', item.source_failed,
        NULLIF(item.status_code, 0), item.tasks_completed, item.tasks_failed,
        CASE item.tags WHEN '[]' THEN '{}' ELSE ARRAY(SELECT json_array_elements_text(item.tags::json)) END, item.started_at,
        CASE WHEN item.status <> 'cancelled' THEN item.started_at END, item.completed_at
    FROM execution_batches b, (
        SELECT unnest(chunk.item_indexes) AS item_index, unnest(chunk.row_numbers) AS row_number, unnest(chunk.file_names) AS file_name,
            unnest(@ids::uuid[]) AS id, unnest(@borrower_ids::text[]) AS borrower_id,
            unnest(@statuses::text[]) AS status, unnest(@source_failed::boolean[]) AS source_failed, unnest(@status_codes::integer[]) AS status_code,
            unnest(@tasks_completed::integer[]) AS tasks_completed, unnest(@tasks_failed::integer[]) AS tasks_failed,
            unnest(@started_at::timestamptz[]) AS started_at, unnest(@completed_at::timestamptz[]) AS completed_at, unnest(@tags::text[]) AS tags
        FROM chunk
    ) AS item
    WHERE b.tenant_id = @tenant_id AND b.id = @batch_id::uuid
), payload AS (
    INSERT INTO execution_payloads (execution_id, tenant_id, input, state, result)
    SELECT item.id, @tenant_id, item.input::json, NULLIF(item.state, '')::json, NULLIF(item.result, '')::json
    FROM (
        SELECT unnest(@ids::uuid[]) AS id, unnest(chunk.inputs) AS input, unnest(@states::text[]) AS state, unnest(@results::text[]) AS result
        FROM chunk
    ) AS item
)
SELECT FROM chunk;

-- name: BatchChunkCount :one
-- Adds the items of a chunk to the counters of the batch. It locks the row of the batch
-- last, because other transactions wait for that row until the commit.
UPDATE execution_batches b SET
    items_completed = b.items_completed + @completed::integer,
    items_failed = b.items_failed + @failed::integer,
    items_source_failed = b.items_source_failed + @source_failed_count::integer,
    items_enqueued = GREATEST(b.items_enqueued - @ended::integer, 0),
    output_columns = b.output_columns || ARRAY(SELECT c FROM unnest(@new_columns::text[]) AS c WHERE c <> ALL (b.output_columns)),
    updated_at = now()
WHERE b.tenant_id = @tenant_id AND b.id = @batch_id::uuid
RETURNING b.status, b.retry_mode, b.cancel_requested_at, b.fed_until, b.chunks_fed_until, b.items_enqueued, b.items_total, b.items_completed, b.items_failed, b.validated_items;

-- name: BatchChunkGetState :one
-- Returns the common data of the items of a chunk, whether any of them is still waiting,
-- whether some may have run (the token), and the process that runs them.
SELECT c.token, c.holder_id, EXISTS (
        SELECT FROM processes p WHERE p.id = c.holder_id AND p.heartbeat_at > now() - make_interval(secs => @dead_after_seconds::float8)) AS holder_lives,
    (c.batch_id IS NOT NULL)::boolean AS is_waiting, b.workflow_id, b.custom_input, b.is_test,
    (b.status = 'processing' AND b.cancel_requested_at IS NULL)::boolean AS may_begin
FROM execution_batches b
LEFT JOIN batch_chunks c ON c.tenant_id = b.tenant_id AND c.batch_id = b.id AND c.first_item = @first_item::integer
WHERE b.tenant_id = @tenant_id AND b.id = @batch_id;

-- name: BatchChunkIsRunnable :one
-- Tells whether the items of a chunk may start: the caller still has the chunk, and the
-- batch is neither paused nor cancelled.
SELECT (b.status = 'processing' AND b.cancel_requested_at IS NULL AND EXISTS (
    SELECT FROM batch_chunks c
    WHERE c.tenant_id = b.tenant_id AND c.batch_id = b.id AND c.first_item = @first_item::integer AND c.token = @token::uuid))::boolean AS may_begin
FROM execution_batches b
WHERE b.tenant_id = @tenant_id AND b.id = @batch_id;

-- name: BatchChunkAcquire :one
-- Acquires a chunk from any other process. Its items get new ids unless they have ids
-- that are recent enough. No row: another process was faster, or all items are recorded.
UPDATE batch_chunks c SET token = @token::uuid, holder_id = @holder_id::uuid,
    ids_from = CASE WHEN c.ids_from >= @oldest_ids_from::uuid THEN c.ids_from ELSE @ids_from::uuid END
WHERE c.tenant_id = @tenant_id AND c.batch_id = @batch_id AND c.first_item = @first_item::integer
  AND c.token IS NOT DISTINCT FROM sqlc.narg('held')::uuid
RETURNING c.ids_from::uuid AS ids_from, c.item_indexes, c.row_numbers, c.file_names, c.inputs;

-- name: BatchChunkRelease :exec
-- Releases a chunk unless another process has acquired it.
UPDATE batch_chunks SET holder_id = NULL
WHERE tenant_id = @tenant_id AND batch_id = @batch_id AND first_item = @first_item::integer AND token = @token::uuid;

-- name: BatchChunkShrink :one
-- Removes the recorded items from a chunk that was just acquired.
UPDATE batch_chunks c SET (item_indexes, row_numbers, file_names, inputs) = (
    SELECT COALESCE(array_agg(i.item_index ORDER BY i.item_index), '{}'), COALESCE(array_agg(i.row_number ORDER BY i.item_index), '{}'),
        COALESCE(array_agg(i.file_name ORDER BY i.item_index), '{}'), COALESCE(array_agg(i.input ORDER BY i.item_index), '{}')
    FROM (SELECT unnest(c.item_indexes) AS item_index, unnest(c.row_numbers) AS row_number, unnest(c.file_names) AS file_name, unnest(c.inputs) AS input) AS i
    WHERE NOT EXISTS (
        SELECT FROM executions e
        WHERE e.tenant_id IS NOT DISTINCT FROM c.tenant_id AND e.batch_id = c.batch_id AND e.item_index = i.item_index))
WHERE c.tenant_id = @tenant_id AND c.batch_id = @batch_id AND c.first_item = @first_item::integer AND c.token = @token::uuid
RETURNING c.ids_from::uuid AS ids_from, c.item_indexes, c.row_numbers, c.file_names, c.inputs;

-- name: BatchChunkSplit :execrows
-- Moves the last items of a chunk, from an index on, into a new chunk. No row: a process
-- has acquired the chunk, or it was split before, or the items are recorded.
WITH whole AS (
    SELECT c.tenant_id, c.batch_id, c.first_item, c.item_indexes, c.row_numbers, c.file_names, c.inputs FROM batch_chunks c
    WHERE c.tenant_id = @tenant_id AND c.batch_id = @batch_id AND c.first_item = @first_item::integer AND c.token IS NULL
      AND cardinality(c.item_indexes) = @items::integer
    FOR UPDATE
), shortened AS (
    UPDATE batch_chunks c SET item_indexes = trim_array(c.item_indexes, @moved::integer), row_numbers = trim_array(c.row_numbers, @moved::integer),
        file_names = trim_array(c.file_names, @moved::integer), inputs = trim_array(c.inputs, @moved::integer)
    FROM whole WHERE c.tenant_id = whole.tenant_id AND c.batch_id = whole.batch_id AND c.first_item = whole.first_item
)
INSERT INTO batch_chunks (tenant_id, batch_id, first_item, item_indexes, row_numbers, file_names, inputs)
SELECT whole.tenant_id, whole.batch_id, @moved_from::integer, moved.item_indexes, moved.row_numbers, moved.file_names, moved.inputs
FROM whole CROSS JOIN LATERAL (
    SELECT array_agg(i.item_index ORDER BY i.item_index) AS item_indexes, array_agg(i.row_number ORDER BY i.item_index) AS row_numbers,
        array_agg(i.file_name ORDER BY i.item_index) AS file_names, array_agg(i.input ORDER BY i.item_index) AS inputs
    FROM (SELECT unnest(whole.item_indexes) AS item_index, unnest(whole.row_numbers) AS row_number, unnest(whole.file_names) AS file_name, unnest(whole.inputs) AS input) AS i
    WHERE i.item_index >= @moved_from::integer) AS moved;

-- name: BatchChunkDelete :exec
-- Deletes a chunk whose items are all recorded, unless another process has acquired it.
DELETE FROM batch_chunks
WHERE tenant_id = @tenant_id AND batch_id = @batch_id AND first_item = @first_item::integer AND token = @token::uuid;

-- name: BatchChunkItemsBegin :many
-- Records items of chunks as running executions that are leased to the process, if the
-- caller still has their chunks. Items that are missing from the result belong to
-- another process. A process that acquires a chunk waits for the lock and then sees
-- these executions.
WITH chunk AS (
    SELECT c.token FROM batch_chunks c
    WHERE c.tenant_id = @tenant_id AND c.batch_id = @batch_id::uuid AND c.first_item = ANY (@chunks::integer[]) AND c.token = ANY (@tokens::uuid[])
    FOR SHARE
), item AS (
    SELECT i.id, i.lease_token, i.item_index, i.row_number, i.file_name, i.borrower_id, i.created_at, i.started_at, i.deadline_at,
        i.tasks_completed, i.tasks_failed, i.input, i.state,
        b.id AS batch_id, b.workflow_id, b.workflow_alias, b.workflow_version, b.principal_id, b.is_test
    FROM (
        SELECT unnest(@ids::uuid[]) AS id, unnest(@chunk_tokens::uuid[]) AS chunk_token, unnest(@lease_tokens::uuid[]) AS lease_token,
            unnest(@item_indexes::integer[]) AS item_index, unnest(@row_numbers::integer[]) AS row_number, unnest(@file_names::text[]) AS file_name,
            unnest(@borrower_ids::text[]) AS borrower_id, unnest(@created_at::timestamptz[]) AS created_at,
            unnest(@started_at::timestamptz[]) AS started_at, unnest(@deadline_at::timestamptz[]) AS deadline_at,
            unnest(@tasks_completed::integer[]) AS tasks_completed, unnest(@tasks_failed::integer[]) AS tasks_failed,
            unnest(@inputs::text[]) AS input, unnest(@states::text[]) AS state
    ) AS i, execution_batches b
    WHERE b.tenant_id = @tenant_id AND b.id = @batch_id::uuid AND i.chunk_token = ANY (ARRAY(SELECT token FROM chunk))
), payload AS (
    INSERT INTO execution_payloads (execution_id, tenant_id, input, state)
    SELECT item.id, @tenant_id, item.input::json, item.state::json FROM item
)
INSERT INTO executions (id, tenant_id, workflow_id, workflow_alias, workflow_version, workflow_type, principal_id, borrower_id,
    is_test, batch_id, item_index, row_number, source_file_name, status, tasks_completed, tasks_failed,
    created_at, started_at, deadline_at, lease_token, lease_process_id)
SELECT item.id, @tenant_id, item.workflow_id, item.workflow_alias, item.workflow_version, NULLIF(@workflow_type::text, ''), item.principal_id,
    NULLIF(item.borrower_id, ''), item.is_test, item.batch_id, item.item_index, NULLIF(item.row_number, 0), NULLIF(item.file_name, ''),
    'running', item.tasks_completed, item.tasks_failed, item.created_at, item.started_at, item.deadline_at, item.lease_token, @lease_process_id::uuid
FROM item
RETURNING id;

-- name: BatchChunkItemsRecord :one
-- Records ended items of chunks as executions and counts them, if the caller still has
-- their chunks. Items that are already recorded are not counted again. An item that
-- another transaction is recording causes an error after that transaction commits; ON
-- CONFLICT would skip it but cost a third more per item. The lock is that of
-- BatchChunkItemsBegin. The row of the batch is locked last. No row: nothing was
-- recorded.
WITH chunk AS (
    SELECT c.token FROM batch_chunks c
    WHERE c.tenant_id = @tenant_id AND c.batch_id = @batch_id::uuid AND c.first_item = ANY (@chunks::integer[]) AND c.token = ANY (@tokens::uuid[])
    FOR SHARE
), recorded AS (
    SELECT e.id FROM executions e
    WHERE e.tenant_id IS NOT DISTINCT FROM @tenant_id::uuid AND e.id = ANY (@ids::uuid[]) AND e.id >= @first_id::uuid AND e.id <= @last_id::uuid
), execution AS (
    INSERT INTO executions (id, tenant_id, workflow_id, workflow_alias, workflow_version, workflow_type, principal_id, borrower_id,
        is_test, batch_id, item_index, row_number, source_file_name, status, is_success, source_failed, status_code,
        tasks_completed, tasks_failed, tags, created_at, started_at, completed_at)
    SELECT item.id, b.tenant_id, b.workflow_id, b.workflow_alias, b.workflow_version, NULLIF(@workflow_type::text, ''),
        b.principal_id, NULLIF(item.borrower_id, ''), b.is_test, b.id, item.item_index,
        NULLIF(item.row_number, 0), NULLIF(item.file_name, ''), item.status, item.status = 'completed', item.source_failed,
        NULLIF(item.status_code, 0), item.tasks_completed, item.tasks_failed,
        CASE item.tags WHEN '[]' THEN '{}' ELSE ARRAY(SELECT json_array_elements_text(item.tags::json)) END,
        item.created_at, item.started_at, item.completed_at
    FROM execution_batches b, (
        SELECT unnest(@ids::uuid[]) AS id, unnest(@chunk_tokens::uuid[]) AS chunk_token,
            unnest(@item_indexes::integer[]) AS item_index, unnest(@row_numbers::integer[]) AS row_number, unnest(@file_names::text[]) AS file_name,
            unnest(@borrower_ids::text[]) AS borrower_id, unnest(@statuses::text[]) AS status, unnest(@source_failed::boolean[]) AS source_failed,
            unnest(@status_codes::integer[]) AS status_code, unnest(@tasks_completed::integer[]) AS tasks_completed,
            unnest(@tasks_failed::integer[]) AS tasks_failed, unnest(@tags::text[]) AS tags, unnest(@created_at::timestamptz[]) AS created_at,
            unnest(@started_at::timestamptz[]) AS started_at, unnest(@completed_at::timestamptz[]) AS completed_at
    ) AS item
    WHERE b.tenant_id = @tenant_id AND b.id = @batch_id::uuid
      AND item.chunk_token = ANY (ARRAY(SELECT token FROM chunk)) AND item.id <> ALL (ARRAY(SELECT id FROM recorded))
    RETURNING status, source_failed
), payload AS (
    INSERT INTO execution_payloads (execution_id, tenant_id, input, state, result)
    SELECT item.id, @tenant_id, item.input::json, item.state::json, item.result::json
    FROM (
        SELECT unnest(@ids::uuid[]) AS id, unnest(@chunk_tokens::uuid[]) AS chunk_token,
            unnest(@inputs::text[]) AS input, unnest(@states::text[]) AS state, unnest(@results::text[]) AS result
    ) AS item
    WHERE item.chunk_token = ANY (ARRAY(SELECT token FROM chunk)) AND item.id <> ALL (ARRAY(SELECT id FROM recorded))
), counted AS (
    SELECT count(*) AS items, count(*) FILTER (WHERE status = 'completed') AS completed,
        count(*) FILTER (WHERE status = 'completed' AND source_failed) AS source_failed
    FROM execution
)
UPDATE execution_batches b SET
    items_completed = b.items_completed + counted.completed,
    items_failed = b.items_failed + counted.items - counted.completed,
    items_source_failed = b.items_source_failed + counted.source_failed,
    items_enqueued = GREATEST(b.items_enqueued - counted.items, 0),
    output_columns = b.output_columns || ARRAY(SELECT c FROM unnest(@new_columns::text[]) AS c WHERE c <> ALL (b.output_columns)),
    updated_at = now()
FROM counted
WHERE b.tenant_id = @tenant_id AND b.id = @batch_id::uuid AND counted.items > 0
RETURNING b.status, b.retry_mode, b.cancel_requested_at, b.fed_until, b.chunks_fed_until, b.items_enqueued, b.items_total, b.items_completed, b.items_failed, b.validated_items;
