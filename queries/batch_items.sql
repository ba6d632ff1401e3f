-- Statements about items find them by batch and index or by id. They compare the tenant
-- with IS NOT DISTINCT FROM, which uses no index. With "=" PostgreSQL would read the
-- index of all executions of the tenant while it has no statistics.

-- name: BatchItemsInsert :execrows
-- Records items and the progress of the batch. Items with a status become executions,
-- failed ones with their result; items of the chunk wait in it. No row: another process
-- was first, or the batch has another attempt.
WITH batch AS (
    UPDATE execution_batches b SET
        items_read = b.items_read + @item_count::integer,
        items_total = b.items_total + @item_count::integer,
        items_failed = b.items_failed + @failed::integer,
        validated_items = b.validated_items + @validated::integer,
        input_columns = @input_columns::text[],
        updated_at = now()
    WHERE b.tenant_id = @tenant_id AND b.id = @batch_id AND b.status = 'pre_processing' AND b.attempt = @attempt AND b.items_read = @first_item::integer
    RETURNING b.id, b.tenant_id, b.workflow_id, b.workflow_alias, b.workflow_version, b.principal_id, b.is_test
), item AS (
    SELECT unnest(@ids::uuid[]) AS id, unnest(@indexes::integer[]) AS item_index, unnest(@row_numbers::integer[]) AS row_number,
        unnest(@file_names::text[]) AS file_name, unnest(@borrower_ids::text[]) AS borrower_id,
        unnest(@inputs::text[]) AS input, unnest(@results::text[]) AS result
), execution AS (
    INSERT INTO executions (id, tenant_id, workflow_id, workflow_alias, workflow_version, workflow_type, principal_id, borrower_id,
        is_test, batch_id, item_index, row_number, source_file_name, status, status_code, created_at, completed_at)
    SELECT item.id, batch.tenant_id, batch.workflow_id, batch.workflow_alias, batch.workflow_version, NULLIF(@workflow_type::text, ''),
        batch.principal_id, NULLIF(item.borrower_id, ''), batch.is_test, batch.id, item.item_index,
        NULLIF(item.row_number, 0), NULLIF(item.file_name, ''),
        CASE item.result WHEN '' THEN 'pending' ELSE 'failed' END,
        CASE item.result WHEN '' THEN NULL ELSE @failed_status_code::integer END,
        @created_at::timestamptz,
        CASE item.result WHEN '' THEN NULL ELSE @created_at::timestamptz END
    FROM batch, item
), payload AS (
    INSERT INTO execution_payloads (execution_id, tenant_id, input, result)
    SELECT item.id, batch.tenant_id, item.input::json, NULLIF(item.result, '')::json FROM batch, item
), chunk AS (
    INSERT INTO batch_chunks (tenant_id, batch_id, first_item, item_indexes, row_numbers, file_names, inputs)
    SELECT batch.tenant_id, batch.id, @first_item, @chunk_indexes::integer[], @chunk_row_numbers::integer[],
        @chunk_file_names::text[], @chunk_inputs::text[]
    FROM batch WHERE cardinality(@chunk_indexes::integer[]) > 0
)
SELECT FROM batch;

-- name: BatchItemFirstError :one
-- Returns the error of the first failed item of a batch.
SELECT (p.result ->> 'errorMessage')::text AS error_message
FROM executions e JOIN execution_payloads p ON p.execution_id = e.id
WHERE e.tenant_id = @tenant_id AND e.batch_id = @batch_id::uuid AND e.item_index = 0;

-- name: BatchItemsDelete :exec
-- Deletes the items of a batch. None of them has run.
WITH execution AS (
    DELETE FROM executions e WHERE e.tenant_id = @tenant_id AND e.batch_id = @batch_id::uuid RETURNING e.id
), payload AS (
    DELETE FROM execution_payloads p USING execution WHERE p.execution_id = execution.id
), chunk AS (
    DELETE FROM batch_chunks c WHERE c.tenant_id = @tenant_id AND c.batch_id = @batch_id::uuid
)
UPDATE execution_batches b SET items_read = 0, items_total = 0, items_failed = 0, validated_items = 0, input_columns = '{}', fed_until = 0, chunks_fed_until = 0
WHERE b.tenant_id = @tenant_id AND b.id = @batch_id::uuid;

-- name: BatchItemsListPending :many
-- Lists the items to run from an index on, in order.
SELECT item_index::integer FROM executions
WHERE tenant_id IS NOT DISTINCT FROM @tenant_id::uuid AND batch_id = @batch_id::uuid AND item_index >= @first_item::integer AND status = 'pending'
ORDER BY item_index LIMIT @items_max;

-- name: BatchGetForItems :one
-- Returns the common data of the items of a batch, and whether pending items may start.
SELECT workflow_id, custom_input, (status = 'processing' AND cancel_requested_at IS NULL)::boolean AS may_begin
FROM execution_batches WHERE tenant_id = @tenant_id AND id = @id;

-- name: BatchItemsGet :many
-- Returns items and their states. It includes the input of an item that has no state.
SELECT e.item_index::integer AS item_index, e.id, e.borrower_id, e.is_test, e.attempt, e.tags,
    (e.status = 'running')::boolean AS is_running, (e.status = 'running' OR p.state IS NOT NULL)::boolean AS has_begun,
    (e.status = 'pending' AND p.state IS NULL)::boolean AS is_fresh, CASE WHEN e.status = 'pending' AND p.state IS NULL THEN p.input END::json AS fresh_input
FROM unnest(@indexes::integer[]) AS wanted (item_index)
CROSS JOIN LATERAL (
    SELECT * FROM executions x
    WHERE x.tenant_id IS NOT DISTINCT FROM @tenant_id::uuid AND x.batch_id = @batch_id::uuid AND x.item_index = wanted.item_index LIMIT 1) AS e
JOIN execution_payloads p ON p.execution_id = e.id;

-- name: BatchItemsCheckpoint :many
-- Stores the states of items. New items become leased to this process if the batch lets
-- them start. Items that are missing from the result belong to another process.
WITH item AS (
    SELECT unnest(@ids::uuid[]) AS id, unnest(@lease_tokens::uuid[]) AS lease_token, unnest(@begins::boolean[]) AS begins,
        unnest(@started_at::timestamptz[]) AS started_at, unnest(@deadline_at::timestamptz[]) AS deadline_at, unnest(@states::text[]) AS state,
        unnest(@tasks_completed::integer[]) AS tasks_completed, unnest(@tasks_failed::integer[]) AS tasks_failed
), leased AS (
    UPDATE executions e SET
        status = 'running', lease_token = item.lease_token, lease_process_id = @lease_process_id::uuid,
        started_at = COALESCE(e.started_at, item.started_at), deadline_at = COALESCE(e.deadline_at, item.deadline_at),
        tasks_completed = item.tasks_completed, tasks_failed = item.tasks_failed
    FROM item
    WHERE e.tenant_id IS NOT DISTINCT FROM @tenant_id::uuid AND e.id = item.id AND e.batch_id IS NOT DISTINCT FROM @batch_id::uuid
      AND (e.lease_token = item.lease_token OR item.begins AND e.status = 'pending' AND e.lease_token IS NULL AND EXISTS (
          SELECT FROM execution_batches b
          WHERE b.tenant_id = @tenant_id AND b.id = @batch_id::uuid AND b.status = 'processing' AND b.cancel_requested_at IS NULL))
    RETURNING e.id, item.state
), payload AS (
    UPDATE execution_payloads p SET state = leased.state::json
    FROM leased WHERE p.execution_id = leased.id
)
SELECT id FROM leased;

-- name: BatchItemsGetPending :many
-- Returns all that is needed to run the pending items of a range. An item that has
-- started continues from its state.
SELECT e.id, e.item_index::integer AS item_index, e.is_test, e.attempt, e.tags, p.input,
    (p.state IS NOT NULL)::boolean AS has_begun
FROM executions e JOIN execution_payloads p ON p.execution_id = e.id
WHERE e.tenant_id IS NOT DISTINCT FROM @tenant_id::uuid AND e.batch_id = @batch_id::uuid
  AND e.item_index >= @first_item::integer AND e.item_index < @end_item::integer AND e.status = 'pending'
ORDER BY e.item_index;

-- name: BatchItemsFinish :one
-- Ends items and counts each once, when its row leaves pending or running. The lease
-- must be the one with which the item ran (the nil UUID for none). No row: the caller
-- may end none of them.
WITH item AS (
    SELECT unnest(@ids::uuid[]) AS id, unnest(@lease_tokens::uuid[]) AS lease_token, unnest(@statuses::text[]) AS status,
        unnest(@source_failed::boolean[]) AS source_failed, unnest(@status_codes::integer[]) AS status_code,
        unnest(@tasks_completed::integer[]) AS tasks_completed, unnest(@tasks_failed::integer[]) AS tasks_failed,
        unnest(@started_at::timestamptz[]) AS started_at, unnest(@completed_at::timestamptz[]) AS completed_at,
        unnest(@tags::text[]) AS tags, unnest(@states::text[]) AS state, unnest(@results::text[]) AS result
), ended AS (
    UPDATE executions e SET
        status = item.status, is_success = item.status = 'completed', source_failed = item.source_failed,
        status_code = item.status_code, tasks_completed = item.tasks_completed, tasks_failed = item.tasks_failed,
        started_at = COALESCE(e.started_at, item.started_at), completed_at = item.completed_at,
        tags = CASE item.tags WHEN '[]' THEN e.tags ELSE ARRAY(SELECT json_array_elements_text(item.tags::json)) END, lease_token = NULL, lease_process_id = NULL
    FROM item
    WHERE e.tenant_id IS NOT DISTINCT FROM @tenant_id::uuid AND e.id = item.id AND e.batch_id IS NOT DISTINCT FROM @batch_id::uuid AND e.completed_at IS NULL
      AND e.lease_token IS NOT DISTINCT FROM NULLIF(item.lease_token, '00000000-0000-0000-0000-000000000000'::uuid)
    RETURNING e.id, e.status, e.source_failed, item.state, item.result
), payload AS (
    UPDATE execution_payloads p SET state = NULLIF(ended.state, '')::json, result = ended.result::json
    FROM ended WHERE p.execution_id = ended.id
), counted AS (
    SELECT count(*) AS items, count(*) FILTER (WHERE ended.status = 'completed') AS completed,
        count(*) FILTER (WHERE ended.status = 'completed' AND ended.source_failed) AS source_failed
    FROM ended
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

-- name: BatchItemsListResults :many
-- Lists a page of ended items with their payloads, in order.
SELECT e.id, e.item_index::integer AS item_index, e.row_number, e.source_file_name, e.status, e.status_code, p.input, p.result
FROM executions e JOIN execution_payloads p ON p.execution_id = e.id
WHERE e.tenant_id IS NOT DISTINCT FROM @tenant_id::uuid AND e.batch_id = @batch_id::uuid
  AND e.item_index >= @first_item::integer AND e.item_index < @end_item::integer
ORDER BY e.item_index;

-- name: BatchItemsCancel :one
-- Ends some of the items that have not started, and counts them. No row: none is left.
WITH item AS (
    SELECT e.id FROM executions e JOIN execution_batches b ON b.tenant_id = e.tenant_id AND b.id = e.batch_id
    WHERE e.tenant_id IS NOT DISTINCT FROM @tenant_id::uuid AND e.batch_id = @batch_id::uuid AND e.status = 'pending'
      AND b.status = 'processing' AND b.cancel_requested_at IS NOT NULL
    ORDER BY e.item_index LIMIT @items_max
    FOR UPDATE OF e SKIP LOCKED
), ended AS (
    UPDATE executions e SET status = 'cancelled', status_code = @status_code::integer, completed_at = now()
    FROM item WHERE e.id = item.id AND e.tenant_id = @tenant_id
    RETURNING e.id
), payload AS (
    UPDATE execution_payloads p SET result = @result::json FROM ended WHERE p.execution_id = ended.id
), counted AS (
    SELECT count(*) AS items FROM ended
)
UPDATE execution_batches b SET items_failed = b.items_failed + counted.items, updated_at = now()
FROM counted
WHERE b.tenant_id = @tenant_id AND b.id = @batch_id::uuid AND counted.items > 0
RETURNING counted.items;

-- name: BatchItemsListPostponed :many
-- Lists started items that no process has leased.
SELECT id FROM executions
WHERE tenant_id IS NOT DISTINCT FROM @tenant_id::uuid AND batch_id = @batch_id::uuid AND status = 'running' AND lease_token IS NULL
ORDER BY item_index LIMIT @items_max;

-- name: BatchItemsCount :one
-- Counts the items that exist and the items to retry. Retention may have dropped some.
SELECT count(*)::integer AS kept, count(*) FILTER (
    WHERE @failed::boolean AND status IN ('failed', 'cancelled', 'timeout') OR @source_failed::boolean AND status = 'completed' AND source_failed
)::integer AS to_retry
FROM executions
WHERE tenant_id IS NOT DISTINCT FROM @tenant_id::uuid AND batch_id = @batch_id::uuid;

-- name: BatchItemsListRetrySizes :many
-- Lists the items to retry from an index on, in order, and the sizes of their states if
-- the retry keeps states. Sizes are read for one page only, because each state must be
-- read.
SELECT e.item_index::integer AS item_index, COALESCE(octet_length(p.state::text), 0)::integer AS state_bytes
FROM (
    SELECT id, item_index FROM executions
    WHERE tenant_id IS NOT DISTINCT FROM @tenant_id::uuid AND batch_id = @batch_id::uuid AND item_index >= @first_item::integer
      AND (@failed::boolean AND status IN ('failed', 'cancelled', 'timeout') OR @source_failed::boolean AND status = 'completed' AND source_failed)
    ORDER BY item_index LIMIT @items_max
) AS e LEFT JOIN execution_payloads p ON p.execution_id = e.id AND @with_states::boolean
ORDER BY e.item_index;

-- name: BatchItemsListRetryable :many
-- Lists the items to retry of a range, in order, with their states if the retry keeps
-- states. It marks items that never started because their input is invalid.
SELECT e.id, e.status, e.attempt, (e.status = 'failed' AND e.started_at IS NULL)::boolean AS is_refused, p.state
FROM executions e LEFT JOIN execution_payloads p ON p.execution_id = e.id AND @with_states::boolean
WHERE e.tenant_id IS NOT DISTINCT FROM @tenant_id::uuid AND e.batch_id = @batch_id::uuid
  AND e.item_index >= @first_item::integer AND e.item_index < @end_item::integer
  AND (@failed::boolean AND e.status IN ('failed', 'cancelled', 'timeout') OR @source_failed::boolean AND e.status = 'completed' AND e.source_failed)
ORDER BY e.item_index;

-- name: BatchItemsRetry :execrows
-- Makes items pending again and changes the counters. Items with invalid input fail once
-- more. No row: the batch was paused or cancelled, another process was first, or the
-- batch has another attempt.
WITH batch AS (
    UPDATE execution_batches b SET retry_from = @next_item::integer, updated_at = now(),
        items_completed = b.items_completed - @completed::integer,
        items_failed = b.items_failed - @failed::integer,
        items_source_failed = b.items_source_failed - @completed::integer
    WHERE b.tenant_id = @tenant_id AND b.id = @batch_id AND b.status = 'processing' AND b.retry_mode IS NOT NULL
      AND b.attempt = @attempt AND b.retry_from = @first_item::integer
    RETURNING b.id, b.tenant_id
), refused AS (
    UPDATE executions e SET attempt = e.attempt + 1
    FROM batch WHERE e.tenant_id IS NOT DISTINCT FROM batch.tenant_id AND e.batch_id IS NOT DISTINCT FROM batch.id AND e.id = ANY (@refused_ids::uuid[])
), item AS (
    SELECT unnest(@ids::uuid[]) AS id, unnest(@states::text[]) AS state, unnest(@tasks_completed::integer[]) AS tasks_completed
), retried AS (
    UPDATE executions e SET
        status = 'pending', is_success = false, source_failed = false, status_code = NULL, attempt = e.attempt + 1,
        tasks_completed = item.tasks_completed, tasks_failed = 0, started_at = NULL, completed_at = NULL, deadline_at = NULL,
        tags = '{}' -- the tags of an item come from its end
    FROM batch, item WHERE e.tenant_id IS NOT DISTINCT FROM batch.tenant_id AND e.batch_id IS NOT DISTINCT FROM batch.id AND e.id = item.id
    RETURNING e.id, item.state
), payload AS (
    UPDATE execution_payloads p SET state = NULLIF(retried.state, '')::json, result = NULL
    FROM retried WHERE p.execution_id = retried.id
)
SELECT FROM batch;

-- name: BatchItemList :many
-- Lists a page of items in order, after the item with the given id. It does not read the
-- payloads of earlier pages.
SELECT e.id, e.item_index::integer AS item_index, e.row_number, e.source_file_name, e.borrower_id, e.status, e.source_failed, e.status_code, e.attempt,
    e.started_at, e.completed_at, COALESCE(p.result ->> 'errorMessage', '')::text AS error_message
FROM (
    SELECT x.id, x.item_index, x.row_number, x.source_file_name, x.borrower_id, x.status, x.source_failed, x.status_code, x.attempt,
        x.started_at, x.completed_at
    FROM executions x
    WHERE x.tenant_id IS NOT DISTINCT FROM @tenant_id::uuid AND x.batch_id = @batch_id::uuid
      AND (sqlc.narg('status')::text IS NULL OR x.status = sqlc.narg('status'))
      AND (sqlc.narg('after')::uuid IS NULL OR x.item_index > (
          SELECT a.item_index FROM executions a WHERE a.tenant_id = @tenant_id AND a.id = sqlc.narg('after')))
    ORDER BY x.item_index
    LIMIT @row_limit OFFSET @row_offset
) AS e JOIN execution_payloads p ON p.execution_id = e.id
ORDER BY e.item_index;

-- name: BatchItemCount :one
-- The count is exact up to @count_max.
SELECT count(*) FROM (
    SELECT FROM executions
    WHERE tenant_id IS NOT DISTINCT FROM @tenant_id::uuid AND batch_id = @batch_id::uuid
      AND (sqlc.narg('status')::text IS NULL OR status = sqlc.narg('status'))
    LIMIT @count_max::bigint
) AS matching;

-- name: BatchItemFindByStatus :one
-- Counts the items of a batch with a status up to @count_max, and returns the ids if
-- there are fewer. It uses the index of statuses, in which executions of one workflow
-- and time are adjacent.
SELECT count(*) AS total, (CASE WHEN count(*) < @count_max::bigint THEN array_agg(matching.id) END)::uuid[] AS found
FROM (
    SELECT e.id FROM executions e
    WHERE e.tenant_id = @tenant_id AND e.status = @status AND e.workflow_id = @workflow_id
      AND e.id >= @first_id::uuid AND e.id < @last_id::uuid AND e.batch_id IS NOT DISTINCT FROM @batch_id::uuid
    LIMIT @count_max::bigint
) AS matching;

-- name: BatchItemListByID :many
-- Lists the named items as BatchItemList does.
SELECT e.id, e.item_index::integer AS item_index, e.row_number, e.source_file_name, e.borrower_id, e.status, e.source_failed, e.status_code, e.attempt,
    e.started_at, e.completed_at, COALESCE(p.result ->> 'errorMessage', '')::text AS error_message
FROM (
    SELECT x.id, x.item_index, x.row_number, x.source_file_name, x.borrower_id, x.status, x.source_failed, x.status_code, x.attempt,
        x.started_at, x.completed_at
    FROM executions x
    WHERE x.tenant_id IS NOT DISTINCT FROM @tenant_id::uuid AND x.id = ANY (@ids::uuid[])
      AND (sqlc.narg('after')::uuid IS NULL OR x.item_index > (
          SELECT a.item_index FROM executions a WHERE a.tenant_id = @tenant_id AND a.id = sqlc.narg('after')))
    ORDER BY x.item_index
    LIMIT @row_limit OFFSET @row_offset
) AS e JOIN execution_payloads p ON p.execution_id = e.id
ORDER BY e.item_index;

-- name: BatchItemPostpone :execrows
-- Releases an item whose target is down. The item continues later from the given state
-- with a new time limit. No row: the lease is lost.
WITH leased AS (
    UPDATE executions e SET lease_token = NULL, lease_process_id = NULL, started_at = NULL, deadline_at = NULL
    WHERE e.tenant_id = @tenant_id AND e.id = @id AND e.batch_id = @batch_id::uuid AND e.lease_token = @lease_token::uuid
    RETURNING e.id
)
UPDATE execution_payloads p SET state = @state::json FROM leased WHERE p.execution_id = leased.id;

-- name: BatchItemsListStarted :many
-- Lists the started items of a range that a process has leased, and whether that process
-- is alive. It includes items without a lease whose target was down. Waiting items have
-- jobs of their own.
SELECT e.id, (e.lease_token IS NOT NULL AND EXISTS (
    SELECT FROM processes
    WHERE processes.id = e.lease_process_id
      AND processes.heartbeat_at > now() - make_interval(secs => @dead_after_seconds::float8)))::boolean AS is_held
FROM executions e
WHERE e.tenant_id IS NOT DISTINCT FROM @tenant_id::uuid AND e.batch_id = @batch_id::uuid
  AND e.item_index >= @first_item::integer AND e.item_index < @end_item::integer
  AND e.status = 'running' AND (e.lease_token IS NOT NULL OR e.started_at IS NULL)
ORDER BY e.item_index;
