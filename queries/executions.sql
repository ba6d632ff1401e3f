-- name: ExecutionInsert :execrows
-- Records an execution with its payload if its workflow is still active; no row
-- means that it is not, or is gone.
WITH active AS (
    SELECT w.id, w.alias, w.version, w.type FROM workflows w
    WHERE w.tenant_id = @tenant_id AND w.id = @workflow_id AND w.status = 'active'
), execution AS (
    INSERT INTO executions (id, tenant_id, workflow_id, workflow_alias, workflow_version, workflow_type, principal_id,
        billable_id, borrower_id, tags, is_test, rescore_of, status, is_success, source_failed, status_code,
        tasks_completed, tasks_failed, created_at, started_at, completed_at, deadline_at, lease_token, lease_process_id)
    SELECT @id, @tenant_id, active.id, active.alias, active.version, active.type, @principal_id,
        sqlc.narg('billable_id'), sqlc.narg('borrower_id'), @tags::text[], @is_test, sqlc.narg('rescore_of')::uuid, @status, @is_success,
        @source_failed, sqlc.narg('status_code')::integer, @tasks_completed, @tasks_failed, @created_at::timestamptz,
        sqlc.narg('started_at')::timestamptz, sqlc.narg('completed_at')::timestamptz, sqlc.narg('deadline_at')::timestamptz,
        sqlc.narg('lease_token')::uuid, sqlc.narg('lease_process_id')::uuid
    FROM active
    RETURNING id
)
INSERT INTO execution_payloads (execution_id, tenant_id, input, state, result)
SELECT execution.id, @tenant_id, @input::json, sqlc.narg('state')::json, sqlc.narg('result')::json FROM execution;

-- name: SysExecutionInsertMany :execrows
-- Records pending executions with their payloads, those whose workflow is active.
WITH request AS (
    SELECT unnest(@ids::uuid[]) AS id, unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@workflow_ids::uuid[]) AS workflow_id,
        unnest(@principal_ids::text[]) AS principal_id, unnest(@borrower_ids::text[]) AS borrower_id,
        unnest(@is_test::boolean[]) AS is_test, unnest(@created_at::timestamptz[]) AS created_at, unnest(@inputs::text[]) AS input
), execution AS (
    INSERT INTO executions (id, tenant_id, workflow_id, workflow_alias, workflow_version, workflow_type, principal_id, borrower_id,
        is_test, status, created_at)
    SELECT request.id, w.tenant_id, w.id, w.alias, w.version, w.type, request.principal_id, NULLIF(request.borrower_id, ''),
        request.is_test, 'pending', request.created_at
    FROM request JOIN workflows w ON w.tenant_id = request.tenant_id AND w.id = request.workflow_id AND w.status = 'active'
    RETURNING id
)
INSERT INTO execution_payloads (execution_id, tenant_id, input)
SELECT request.id, request.tenant_id, request.input::json FROM request JOIN execution ON execution.id = request.id;

-- name: ExecutionLease :one
-- Starts an execution or takes it over from a process that is dead. No row: it
-- is finished, unknown, or held by a process that lives.
UPDATE executions e SET
    status = 'running',
    started_at = COALESCE(e.started_at, @now::timestamptz),
    deadline_at = COALESCE(e.deadline_at, @deadline_at::timestamptz),
    lease_token = @lease_token::uuid,
    lease_process_id = @lease_process_id::uuid
FROM execution_payloads p
WHERE e.tenant_id = @tenant_id AND e.id = @id AND p.execution_id = e.id
  AND e.status IN ('pending', 'running')
  AND (e.lease_token IS NULL OR NOT EXISTS (
      SELECT 1 FROM processes
      WHERE processes.id = e.lease_process_id
        AND processes.heartbeat_at > now() - make_interval(secs => @dead_after_seconds::float8)))
RETURNING e.attempt, e.borrower_id, e.tags, e.is_test, e.batch_id, e.created_at, e.started_at, e.deadline_at, p.input, p.state,
    (SELECT b.custom_input FROM execution_batches b WHERE b.tenant_id = e.tenant_id AND b.id = e.batch_id) AS custom_input;

-- name: ExecutionGetForRun :one
SELECT workflow_id, status FROM executions WHERE tenant_id = @tenant_id AND id = @id;

-- name: ExecutionCheckpoint :execrows
-- Makes the state durable. No row: the lease is lost.
WITH held AS (
    UPDATE executions e SET tasks_completed = @tasks_completed, tasks_failed = @tasks_failed
    WHERE e.tenant_id = @tenant_id AND e.id = @id AND e.lease_token = @lease_token::uuid
    RETURNING e.id
)
UPDATE execution_payloads p SET state = @state::json FROM held WHERE p.execution_id = held.id;

-- name: ExecutionFinish :execrows
-- Ends an execution and removes the job that would have taken it over. No row:
-- the lease is lost.
WITH held AS (
    UPDATE executions e SET
        status = @status, is_success = @is_success, source_failed = @source_failed, status_code = @status_code::integer,
        tasks_completed = @tasks_completed, tasks_failed = @tasks_failed, completed_at = @completed_at::timestamptz,
        tags = @tags::text[], lease_token = NULL, lease_process_id = NULL
    WHERE e.tenant_id = @tenant_id AND e.id = @id AND e.lease_token = @lease_token::uuid
    RETURNING e.id
), safety_net AS (
    DELETE FROM river.river_job USING held
    WHERE river_job.id = sqlc.narg('job_id')::bigint AND river_job.state <> 'running'
)
UPDATE execution_payloads p SET state = sqlc.narg('state')::json, result = @result::json FROM held WHERE p.execution_id = held.id;

-- name: ExecutionUnlease :execrows
-- Lets go of an execution that others may go on with, now or when its next job
-- is due. No row: the lease was lost before.
UPDATE executions e SET lease_token = NULL, lease_process_id = NULL
WHERE e.tenant_id = @tenant_id AND e.id = @id AND e.lease_token = @lease_token::uuid;

-- name: ExecutionGetStatus :one
SELECT id, status, started_at, completed_at, tasks_completed, tasks_failed
FROM executions WHERE tenant_id = @tenant_id AND id = @id;

-- name: ExecutionGetOutput :one
SELECT e.id, e.billable_id, e.borrower_id, e.workflow_id, e.workflow_alias, e.workflow_version, e.workflow_type,
       e.status, e.created_at, p.result
FROM executions e JOIN execution_payloads p ON p.execution_id = e.id
WHERE e.tenant_id = @tenant_id AND e.id = @id;

-- name: SysExecutionPartitionsMake :exec
SELECT execution_partitions_make(@months_ahead);

-- name: ExecutionExists :one
SELECT EXISTS (SELECT 1 FROM executions WHERE tenant_id = @tenant_id AND id = @id);

-- name: ExecutionGet :one
-- An execution as the Executions API shows it; ExecutionList gives many.
SELECT e.id, e.principal_id, e.workflow_id, e.workflow_alias, e.workflow_version, e.workflow_type, e.batch_id, e.billable_id,
    e.borrower_id, e.status, e.is_success, e.is_test, e.rescore_of, e.tags, e.created_at,
    e.item_index, e.row_number, e.source_file_name, b.label AS batch_label, b.attempt AS batch_attempt
FROM executions e LEFT JOIN execution_batches b ON b.tenant_id = e.tenant_id AND b.id = e.batch_id
WHERE e.tenant_id = @tenant_id AND e.id = @id;

-- name: ExecutionGetInput :one
SELECT e.id, e.workflow_id, e.workflow_alias, e.workflow_version, e.created_at, p.input
FROM executions e JOIN execution_payloads p ON p.execution_id = e.id
WHERE e.tenant_id = @tenant_id AND e.id = @id;

-- name: ExecutionGetState :one
SELECT e.workflow_id, e.batch_id, e.status, e.attempt, e.started_at, e.completed_at, p.state
FROM executions e JOIN execution_payloads p ON p.execution_id = e.id
WHERE e.tenant_id = @tenant_id AND e.id = @id;

-- name: ExecutionGetForUpdate :one
-- An execution that is about to be retried or cancelled.
SELECT e.batch_id, e.status, e.attempt, e.tags, e.started_at, e.lease_token, p.state
FROM executions e JOIN execution_payloads p ON p.execution_id = e.id
WHERE e.tenant_id = @tenant_id AND e.id = @id
FOR UPDATE OF e;

-- name: ExecutionRetry :exec
-- Makes an ended execution pending again.
WITH retried AS (
    UPDATE executions e SET
        status = 'pending', is_success = false, source_failed = false, status_code = NULL, attempt = @attempt,
        tasks_completed = @tasks_completed, tasks_failed = 0, started_at = NULL, completed_at = NULL, deadline_at = NULL
    WHERE e.tenant_id = @tenant_id AND e.id = @id
    RETURNING e.id
)
UPDATE execution_payloads p SET state = @state::json, result = NULL FROM retried WHERE p.execution_id = retried.id;

-- name: ExecutionCancel :exec
-- Ends an execution from outside; whoever drives it has lost its lease.
WITH cancelled AS (
    UPDATE executions e SET
        status = 'cancelled', is_success = false, status_code = @status_code::integer,
        tasks_completed = @tasks_completed, tasks_failed = @tasks_failed, completed_at = @completed_at::timestamptz,
        lease_token = NULL, lease_process_id = NULL
    WHERE e.tenant_id = @tenant_id AND e.id = @id
    RETURNING e.id
)
UPDATE execution_payloads p SET state = @state::json, result = @result::json FROM cancelled WHERE p.execution_id = cancelled.id;

-- name: SysNotify :exec
-- Tells every process that listens on a channel, once the transaction commits.
SELECT pg_notify(@channel::text, @payload::text);

-- name: SysExecutionListLost :many
-- Those of the executions that the process does not hold any more.
SELECT id FROM executions WHERE id = ANY (@ids::uuid[]) AND lease_process_id IS DISTINCT FROM @process_id::uuid;

-- name: SysExecutionPartitionsDrop :many
SELECT execution_partitions_drop(@months_kept)::text AS month;
