-- name: BatchChunksList :many
-- The chunks from an index on, in their order, and how many items of each are
-- not recorded. One in which nothing is left is not among them.
SELECT c.first_item, c.item_indexes[cardinality(c.item_indexes)]::integer + 1 AS end_item,
    (cardinality(c.item_indexes) - CASE WHEN c.token IS NULL THEN 0 ELSE (
        SELECT count(*) FROM executions e
        WHERE e.tenant_id IS NOT DISTINCT FROM c.tenant_id AND e.batch_id = c.batch_id AND e.item_index = ANY (c.item_indexes)) END)::integer AS items
FROM batch_chunks c
WHERE c.tenant_id = @tenant_id AND c.batch_id = @batch_id AND c.first_item >= @first_item::integer AND cardinality(c.item_indexes) > 0
ORDER BY c.first_item LIMIT @chunks_max;

-- name: BatchChunkGet :one
-- A chunk, what it takes to run it, who runs items of it, and whether its batch
-- lets it begin or wants it cancelled. No row: its items are recorded.
SELECT c.token, c.holder_id, EXISTS (
        SELECT FROM processes p WHERE p.id = c.holder_id AND p.heartbeat_at > now() - make_interval(secs => @dead_after_seconds::float8)) AS holder_lives,
    c.ids_from, c.item_indexes, c.row_numbers, c.file_names, c.inputs, b.workflow_id, b.custom_input, b.is_test,
    (b.status = 'processing' AND b.cancel_requested_at IS NULL)::boolean AS may_begin,
    (b.status = 'processing' AND b.cancel_requested_at IS NOT NULL)::boolean AS is_cancelled
FROM batch_chunks c JOIN execution_batches b ON b.tenant_id = c.tenant_id AND b.id = c.batch_id
WHERE c.tenant_id = @tenant_id AND c.batch_id = @batch_id AND c.first_item = @first_item::integer;

-- name: BatchChunkRecord :execrows
-- Records the items of a chunk, which have ended, as executions, in the order of
-- the chunk; BatchChunkCount is to follow in the transaction. No row: they were
-- recorded before, or another has taken or split the chunk.
-- Executions and payloads expand the arrays each for itself: a common table of
-- the items would hold a copy of every text.
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
-- Adds how many items of a chunk have ended how. The row of the batch is the last
-- to be locked, for others wait for it until the commit.
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
-- What the items of a chunk share, whether any wait in it still, whether some may
-- have run (its token), and who runs them.
SELECT c.token, c.holder_id, EXISTS (
        SELECT FROM processes p WHERE p.id = c.holder_id AND p.heartbeat_at > now() - make_interval(secs => @dead_after_seconds::float8)) AS holder_lives,
    (c.batch_id IS NOT NULL)::boolean AS is_waiting, b.workflow_id, b.custom_input, b.is_test,
    (b.status = 'processing' AND b.cancel_requested_at IS NULL)::boolean AS may_begin
FROM execution_batches b
LEFT JOIN batch_chunks c ON c.tenant_id = b.tenant_id AND c.batch_id = b.id AND c.first_item = @first_item::integer
WHERE b.tenant_id = @tenant_id AND b.id = @batch_id;

-- name: BatchChunkIsRunnable :one
-- Whether the items of a chunk may begin: it is the caller's still, and its batch
-- is neither paused nor cancelled.
SELECT (b.status = 'processing' AND b.cancel_requested_at IS NULL AND EXISTS (
    SELECT FROM batch_chunks c
    WHERE c.tenant_id = b.tenant_id AND c.batch_id = b.id AND c.first_item = @first_item::integer AND c.token = @token::uuid))::boolean AS may_begin
FROM execution_batches b
WHERE b.tenant_id = @tenant_id AND b.id = @batch_id;

-- name: BatchChunkAcquire :one
-- Takes a chunk from whoever had it, and gives its items ids unless they have
-- some that are not too old. No row: another was faster, or all of its items are
-- recorded.
UPDATE batch_chunks c SET token = @token::uuid, holder_id = @holder_id::uuid,
    ids_from = CASE WHEN c.ids_from >= @oldest_ids_from::uuid THEN c.ids_from ELSE @ids_from::uuid END
WHERE c.tenant_id = @tenant_id AND c.batch_id = @batch_id AND c.first_item = @first_item::integer
  AND c.token IS NOT DISTINCT FROM sqlc.narg('held')::uuid
RETURNING c.ids_from::uuid AS ids_from, c.item_indexes, c.row_numbers, c.file_names, c.inputs;

-- name: BatchChunkRelease :exec
-- Leaves a chunk to whoever comes next, unless another has taken it.
UPDATE batch_chunks SET holder_id = NULL
WHERE tenant_id = @tenant_id AND batch_id = @batch_id AND first_item = @first_item::integer AND token = @token::uuid;

-- name: BatchChunkShrink :one
-- Leaves of a chunk that was just taken the items that are not recorded.
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
-- Makes a chunk of its own of the last items of one that nobody has taken, those
-- from an index on. No row: somebody has, or has split it, or they are recorded.
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
-- Removes a chunk all of whose items are recorded, unless another has taken it.
DELETE FROM batch_chunks
WHERE tenant_id = @tenant_id AND batch_id = @batch_id AND first_item = @first_item::integer AND token = @token::uuid;

-- name: BatchChunkItemsBegin :many
-- Makes items of chunks executions that run, leased to the process, as long as
-- their chunks are the caller's. An item that is missing here is another's. The
-- lock keeps who takes a chunk meanwhile waiting until it can see which these are.
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
-- Makes items of chunks executions that have ended, and counts them, as long as
-- their chunks are the caller's. One that is recorded already is not counted
-- again; one that is being recorded just now is an error when that is done. (ON
-- CONFLICT would pass it over, and cost every item a third more.) The lock is as in
-- BatchChunkItemsBegin; the row of the batch is locked last. No row: nothing was
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
