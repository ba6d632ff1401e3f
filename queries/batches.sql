-- name: BatchInsert :execrows
-- Records a batch if its workflow is active. No row: it is not.
INSERT INTO execution_batches (id, tenant_id, workflow_id, workflow_alias, workflow_version, principal_id, label, description,
    is_test, status, items, custom_input, raw_package_id, source_package_ids, created_at, updated_at)
SELECT @id, @tenant_id, w.id, w.alias, w.version, @principal_id, @label, @description,
    @is_test, 'pending', @items::json, sqlc.narg('custom_input')::json, sqlc.narg('raw_package_id')::uuid, @source_package_ids::uuid[],
    @created_at::timestamptz, @created_at::timestamptz
FROM workflows w
WHERE w.tenant_id = @tenant_id AND w.id = @workflow_id AND w.status = 'active';

-- name: BatchInsertRepeated :execrows
-- Records a batch with the sources of its workflow's newest batch. Only a test repeats a
-- test. A custom input replaces the repeated one. No row: the workflow has no batch.
INSERT INTO execution_batches (id, tenant_id, workflow_id, workflow_alias, workflow_version, principal_id, label,
    is_test, status, items, custom_input, raw_package_id, source_package_ids, created_at, updated_at)
SELECT @id, b.tenant_id, b.workflow_id, b.workflow_alias, b.workflow_version, @principal_id, @label,
    @is_test, 'pending', b.items, COALESCE(sqlc.narg('custom_input')::json, b.custom_input), b.raw_package_id, b.source_package_ids,
    @created_at::timestamptz, @created_at::timestamptz
FROM execution_batches b
WHERE b.tenant_id = @tenant_id AND b.workflow_id = @workflow_id AND (@is_test OR NOT b.is_test)
ORDER BY b.id DESC
LIMIT 1;

-- name: BatchGet :one
SELECT id, workflow_id, workflow_alias, workflow_version, label, description, is_test, status, attempt,
    raw_package_id, output_package_id, earlier_package_ids, pre_processing_result, validated_items,
    items_total, items_completed, items_failed, items_source_failed, notices, cancel_requested_at, created_at, updated_at, completed_at
FROM execution_batches WHERE tenant_id = @tenant_id AND id = @id;

-- name: BatchList :many
-- Lists the newest first. CustomPlan plans it.
SELECT id, workflow_id, workflow_alias, workflow_version, label, description, is_test, status, attempt,
    raw_package_id, output_package_id, earlier_package_ids, pre_processing_result, validated_items,
    items_total, items_completed, items_failed, items_source_failed, notices, cancel_requested_at, created_at, updated_at, completed_at
FROM execution_batches
WHERE tenant_id = @tenant_id
    AND (sqlc.narg('status')::text IS NULL OR status = sqlc.narg('status'))
    AND (sqlc.narg('workflow_alias')::text IS NULL OR workflow_alias = sqlc.narg('workflow_alias'))
    AND (sqlc.narg('before')::uuid IS NULL OR id < sqlc.narg('before'))
ORDER BY id DESC
LIMIT @row_limit OFFSET @row_offset;

-- name: BatchCount :one
-- The count is exact up to @count_max.
SELECT count(*) FROM (
    SELECT FROM execution_batches
    WHERE tenant_id = @tenant_id
        AND (sqlc.narg('status')::text IS NULL OR status = sqlc.narg('status'))
        AND (sqlc.narg('workflow_alias')::text IS NULL OR workflow_alias = sqlc.narg('workflow_alias'))
    LIMIT @count_max::bigint
) AS matching;

-- name: BatchPreProcessingBegin :one
-- Begins pre-processing of the given attempt (0: any), or continues it after a crash. No
-- row: the batch or the attempt is past that stage.
UPDATE execution_batches SET status = 'pre_processing', updated_at = now()
WHERE tenant_id = @tenant_id AND id = @id AND status IN ('pending', 'pre_processing')
  AND (@attempt::integer = 0 OR attempt = @attempt)
RETURNING attempt, workflow_id, items, raw_package_id, source_package_ids, items_read, input_columns;

-- name: BatchPreProcessingEnd :execrows
-- No row: the batch or the given attempt (0: any) is past that stage.
UPDATE execution_batches b SET status = @status, pre_processing_result = @result, updated_at = now(),
    fed_until = CASE WHEN EXISTS (
        SELECT FROM executions e WHERE e.tenant_id IS NOT DISTINCT FROM b.tenant_id AND e.batch_id = b.id AND e.status = 'pending') THEN 0 ELSE b.items_total END,
    completed_at = CASE @status::text WHEN 'pre_processing_failed' THEN now() END
WHERE b.tenant_id = @tenant_id AND b.id = @id AND b.status = 'pre_processing' AND (@attempt::integer = 0 OR b.attempt = @attempt);

-- name: BatchProgressGetForUpdate :one
SELECT status, retry_mode, cancel_requested_at, fed_until, chunks_fed_until, items_enqueued, items_total, items_completed, items_failed, validated_items
FROM execution_batches WHERE tenant_id = @tenant_id AND id = @id
FOR UPDATE;

-- name: BatchSetDispatched :exec
UPDATE execution_batches SET status = 'processing', fed_until = @fed_until, chunks_fed_until = @chunks_fed_until,
    items_enqueued = items_enqueued + @fed::integer, updated_at = now()
WHERE tenant_id = @tenant_id AND id = @id;

-- name: BatchProcessingEnd :exec
-- Ends the processing of a batch whose items are all recorded. It also deletes chunks
-- that a crash left behind.
WITH chunk AS (
    DELETE FROM batch_chunks c WHERE c.tenant_id = @tenant_id AND c.batch_id = @id
)
UPDATE execution_batches b SET status = 'post_processing', updated_at = now()
WHERE b.tenant_id = @tenant_id AND b.id = @id AND b.status = 'processing';

-- name: BatchGetForReport :one
SELECT id, workflow_id, workflow_alias, workflow_version, label, status, attempt, input_columns, output_columns, draft_package_id,
    validated_items, items_total, items_completed, items_failed, items_source_failed, created_at
FROM execution_batches WHERE tenant_id = @tenant_id AND id = @id;

-- name: BatchPackageBegin :execrows
-- Sets the package that is being written for the batch. No row: another process has
-- begun another package, or the batch has another attempt.
UPDATE execution_batches SET draft_package_id = @new_package_id::uuid, updated_at = now()
WHERE tenant_id = @tenant_id AND id = @id AND status = 'post_processing' AND attempt = @attempt
  AND draft_package_id IS NOT DISTINCT FROM sqlc.narg('old_package_id')::uuid;

-- name: BatchComplete :execrows
-- No row: another process writes the package.
UPDATE execution_batches SET status = CASE WHEN cancel_requested_at IS NULL THEN 'complete' ELSE 'cancelled' END, output_package_id = draft_package_id, draft_package_id = NULL,
    updated_at = now(), completed_at = now()
WHERE tenant_id = @tenant_id AND id = @id AND status = 'post_processing' AND draft_package_id = @package_id::uuid;

-- name: BatchPostProcessingFail :execrows
UPDATE execution_batches SET status = 'post_processing_failed', notices = (notices::jsonb || @notice::jsonb)::json,
    updated_at = now(), completed_at = now()
WHERE tenant_id = @tenant_id AND id = @id AND status = 'post_processing';

-- name: BatchPause :execrows
-- No row: there is no such batch, or its status does not allow a pause.
UPDATE execution_batches SET status = 'paused', paused_from = status, updated_at = now()
WHERE tenant_id = @tenant_id AND id = @id AND cancel_requested_at IS NULL
  AND status IN ('pending', 'pre_processing', 'pre_processing_complete', 'processing', 'post_processing');

-- name: BatchResume :one
-- Returns the batch to the phase in which it was paused. Items that were dispatched but
-- did not start are dispatched again. No row: the batch is not paused.
UPDATE execution_batches b SET status = b.paused_from, paused_from = NULL, updated_at = now(),
    fed_until = COALESCE((
        SELECT min(e.item_index) FROM executions e
        WHERE e.tenant_id IS NOT DISTINCT FROM b.tenant_id AND e.batch_id = b.id AND e.status = 'pending'), b.items_total),
    chunks_fed_until = 0,
    items_enqueued = (
        SELECT count(*) FROM executions e
        WHERE e.tenant_id IS NOT DISTINCT FROM b.tenant_id AND e.batch_id = b.id AND e.status = 'running')
WHERE b.tenant_id = @tenant_id AND b.id = @id AND b.status = 'paused'
RETURNING b.status, b.retry_mode, b.cancel_requested_at, b.fed_until, b.chunks_fed_until, b.items_enqueued, b.items_total, b.items_completed, b.items_failed, b.validated_items;

-- name: BatchCancelRequest :one
-- Requests the cancellation of a batch. No row: there is no such batch, or it has ended.
UPDATE execution_batches b SET cancel_requested_at = now(), retry_mode = NULL, paused_from = NULL, updated_at = now(),
    pre_processing_result = CASE b.pre_processing_result WHEN 'pending' THEN @unread::text ELSE b.pre_processing_result END,
    status = CASE WHEN 'post_processing' IN (b.status, b.paused_from) THEN 'post_processing' ELSE 'processing' END
FROM execution_batches before
WHERE b.tenant_id = @tenant_id AND b.id = @id AND before.tenant_id = b.tenant_id AND before.id = b.id AND b.cancel_requested_at IS NULL
  AND b.status IN ('pending', 'pre_processing', 'pre_processing_complete', 'processing', 'post_processing', 'paused')
RETURNING b.status, before.status = 'paused' AS was_paused;

-- name: BatchGetForUpdate :one
SELECT status, attempt, items_total, pre_processing_result FROM execution_batches WHERE tenant_id = @tenant_id AND id = @id FOR UPDATE;

-- name: BatchRetry :exec
-- Begins another attempt of an ended batch.
UPDATE execution_batches SET
    status = @status, retry_mode = sqlc.narg('retry_mode')::text, retry_from = 0, attempt = attempt + 1,
    cancel_requested_at = CASE WHEN @is_uncancelled::boolean THEN NULL ELSE cancel_requested_at END,
    earlier_package_ids = array_remove(earlier_package_ids || output_package_id, NULL), output_package_id = NULL,
    updated_at = now(), completed_at = NULL
WHERE tenant_id = @tenant_id AND id = @id;

-- name: BatchSourcesReplace :exec
UPDATE execution_batches SET items = @items::json, custom_input = sqlc.narg('custom_input')::json,
    raw_package_id = sqlc.narg('raw_package_id')::uuid, source_package_ids = @source_package_ids::uuid[]
WHERE tenant_id = @tenant_id AND id = @id;

-- name: BatchPreProcessingReset :exec
UPDATE execution_batches SET pre_processing_result = 'pending' WHERE tenant_id = @tenant_id AND id = @id;

-- name: BatchRetryGet :one
-- Returns the kind of a retry and the index from which items are still to be prepared.
-- No row: there is none.
SELECT attempt, workflow_id, retry_mode::text AS retry_mode, retry_from FROM execution_batches
WHERE tenant_id = @tenant_id AND id = @id AND status = 'processing' AND retry_mode IS NOT NULL;

-- name: BatchRetryEnd :one
-- Ends the preparation of a retry; all of its items can be dispatched. No row: the batch
-- was paused or cancelled, another process was first, or the batch has another attempt.
UPDATE execution_batches b SET retry_mode = NULL, fed_until = 0, items_enqueued = 0, updated_at = now()
WHERE b.tenant_id = @tenant_id AND b.id = @id AND b.status = 'processing' AND b.attempt = @attempt AND b.retry_mode IS NOT NULL
RETURNING b.status, b.retry_mode, b.cancel_requested_at, b.fed_until, b.chunks_fed_until, b.items_enqueued, b.items_total, b.items_completed, b.items_failed, b.validated_items;

-- name: BatchNoticeAdd :exec
-- Adds a notice. A batch has one notice for each code and source.
UPDATE execution_batches SET notices = (notices::jsonb || @notice::jsonb)::json, updated_at = now()
WHERE tenant_id = @tenant_id AND id = @id AND NOT EXISTS (
    SELECT FROM json_array_elements(notices) AS n WHERE n ->> 'code' = @code::text AND n ->> 'source' = @source::text);
