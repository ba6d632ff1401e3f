-- name: ExecutionInsert :execrows
-- Records one execution without a job, as SysExecutionInsert does. No row: its workflow
-- is not active. It takes the server half the time of the statement for many, not
-- counting the commit.
WITH execution AS (
    INSERT INTO executions (id, tenant_id, workflow_id, workflow_alias, workflow_version, workflow_type, principal_id,
        billable_id, borrower_id, tags, is_test, rescore_of, status, is_success, source_failed, status_code,
        tasks_completed, tasks_failed, created_at, started_at, completed_at, deadline_at, lease_token, lease_process_id)
    SELECT @id, @tenant_id, @workflow_id, w.alias, w.version, w.type, @principal_id, NULLIF(@billable_id::text, ''), NULLIF(@borrower_id::text, ''),
        @tags, @is_test, NULLIF(@rescore_of::uuid, '00000000-0000-0000-0000-000000000000'), @status::text, @status::text = 'completed', @source_failed,
        NULLIF(@status_code::integer, 0), @tasks_completed, @tasks_failed, @created_at, NULLIF(@started_at::timestamptz, '0001-01-01 00:00:00Z'),
        NULLIF(@completed_at::timestamptz, '0001-01-01 00:00:00Z'), NULLIF(@deadline_at::timestamptz, '0001-01-01 00:00:00Z'),
        NULLIF(@lease_token::uuid, '00000000-0000-0000-0000-000000000000'),
        NULLIF(@lease_process_id::uuid, '00000000-0000-0000-0000-000000000000')
    FROM workflows w WHERE w.tenant_id = @tenant_id AND w.id = @workflow_id AND w.status = 'active'
    RETURNING executions.id
)
INSERT INTO execution_payloads (execution_id, tenant_id, input, state, result)
SELECT execution.id, @tenant_id, @input, sqlc.narg('state')::json, sqlc.narg('result')::json FROM execution;

-- name: SysExecutionInsert :many
-- Records executions with their payloads and jobs, and notifies the workers. An
-- execution without job arguments gets no job. The result has a row for each execution
-- and another row for its job. There is no row if the workflow is not active. Empty
-- texts, the nil UUID, status code 0 and year 1 mean NULL.
WITH request AS (
    SELECT r.id, r.tenant_id, r.workflow_id, w.alias, w.version, w.type, r.principal_id, r.billable_id, r.borrower_id, r.tags, r.is_test,
        r.rescore_of, r.status, r.source_failed, r.status_code, r.tasks_completed, r.tasks_failed, r.created_at, r.started_at,
        r.completed_at, r.deadline_at, r.lease_token, r.lease_process_id, r.input, r.state, r.result, r.job_args
    FROM (
        -- The planner does not look into the subquery for the number of ids. So it keeps
        -- a generic plan instead of a custom plan for each number.
        SELECT unnest((SELECT @ids::uuid[])) AS id, unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@workflow_ids::uuid[]) AS workflow_id,
            unnest(@principal_ids::text[]) AS principal_id, unnest(@billable_ids::text[]) AS billable_id,
            unnest(@borrower_ids::text[]) AS borrower_id, unnest(@tags::text[]) AS tags, unnest(@is_test::boolean[]) AS is_test,
            unnest(@rescores_of::uuid[]) AS rescore_of, unnest(@statuses::text[]) AS status,
            unnest(@source_failed::boolean[]) AS source_failed, unnest(@status_codes::integer[]) AS status_code,
            unnest(@tasks_completed::integer[]) AS tasks_completed, unnest(@tasks_failed::integer[]) AS tasks_failed,
            unnest(@created_at::timestamptz[]) AS created_at, unnest(@started_at::timestamptz[]) AS started_at,
            unnest(@completed_at::timestamptz[]) AS completed_at, unnest(@deadlines_at::timestamptz[]) AS deadline_at,
            unnest(@lease_tokens::uuid[]) AS lease_token, unnest(@lease_process_ids::uuid[]) AS lease_process_id,
            unnest(@inputs::text[]) AS input, unnest(@states::text[]) AS state, unnest(@results::text[]) AS result,
            unnest(@jobs_args::text[]) AS job_args
    ) AS r
    -- LIMIT makes the plan look up each workflow by its key.
    CROSS JOIN LATERAL (
        SELECT wf.alias, wf.version, wf.type FROM workflows wf
        WHERE wf.tenant_id = r.tenant_id AND wf.id = r.workflow_id AND wf.status = 'active' LIMIT 1) w
), execution AS (
    INSERT INTO executions (id, tenant_id, workflow_id, workflow_alias, workflow_version, workflow_type, principal_id,
        billable_id, borrower_id, tags, is_test, rescore_of, status, is_success, source_failed, status_code,
        tasks_completed, tasks_failed, created_at, started_at, completed_at, deadline_at, lease_token, lease_process_id)
    SELECT r.id, r.tenant_id, r.workflow_id, r.alias, r.version, r.type, r.principal_id, NULLIF(r.billable_id, ''), NULLIF(r.borrower_id, ''),
        CASE r.tags WHEN '[]' THEN '{}'::text[] ELSE ARRAY(SELECT json_array_elements_text(r.tags::json)) END, r.is_test,
        NULLIF(r.rescore_of, '00000000-0000-0000-0000-000000000000'::uuid), r.status, r.status = 'completed', r.source_failed,
        NULLIF(r.status_code, 0), r.tasks_completed, r.tasks_failed, r.created_at, NULLIF(r.started_at, '0001-01-01 00:00:00Z'::timestamptz),
        NULLIF(r.completed_at, '0001-01-01 00:00:00Z'::timestamptz), NULLIF(r.deadline_at, '0001-01-01 00:00:00Z'::timestamptz),
        NULLIF(r.lease_token, '00000000-0000-0000-0000-000000000000'::uuid),
        NULLIF(r.lease_process_id, '00000000-0000-0000-0000-000000000000'::uuid)
    FROM request r
), payload AS (
    INSERT INTO execution_payloads (execution_id, tenant_id, input, state, result)
    SELECT r.id, r.tenant_id, r.input::json, NULLIF(r.state, '')::json, NULLIF(r.result, '')::json
    FROM request r
), job AS (
    INSERT INTO river.river_job (kind, queue, max_attempts, args, state)
    SELECT @job_kind, @job_queue, @job_attempts_max, r.job_args::jsonb, 'available'
    FROM request r WHERE r.job_args <> ''
    RETURNING (args ->> 'execution_id')::uuid AS execution_id
)
SELECT request.id::uuid AS id, false AS is_announced FROM request
UNION ALL
SELECT job.execution_id, (pg_notify(@job_channel, @job_notice) IS NOT NULL)::boolean FROM job;

-- name: ExecutionLease :one
-- Leases an execution that is pending or whose process is dead. No row: it has ended,
-- does not exist, or is leased to a live process.
UPDATE executions /*partition*/ e SET
    status = 'running',
    started_at = COALESCE(e.started_at, @now::timestamptz),
    deadline_at = COALESCE(e.deadline_at, @deadline_at::timestamptz),
    lease_token = @lease_token::uuid,
    lease_process_id = @lease_process_id::uuid
FROM execution_payloads /*partition*/ p
WHERE e.tenant_id IS NOT DISTINCT FROM @tenant_id::uuid AND e.id = @id AND p.execution_id = e.id
  AND e.status IN ('pending', 'running')
  AND (e.lease_token IS NULL OR NOT EXISTS (
      SELECT 1 FROM processes
      WHERE processes.id = e.lease_process_id
        AND processes.heartbeat_at > now() - make_interval(secs => @dead_after_seconds::float8)))
RETURNING e.attempt, e.borrower_id, e.tags, e.is_test, e.batch_id, e.deadline_at, p.input, p.state,
    (SELECT b.custom_input FROM execution_batches b WHERE b.tenant_id = e.tenant_id AND b.id = e.batch_id) AS custom_input;

-- name: SysExecutionListRunnable :many
-- Returns all that is needed to run executions that have not started. The state of a
-- started execution comes with its lease.
SELECT e.id, e.tenant_id, e.workflow_id, e.status, e.attempt, e.borrower_id, e.tags, e.is_test, e.batch_id,
    (p.state IS NULL)::boolean AS is_new, (CASE WHEN p.state IS NULL THEN p.input END)::json AS input
-- The ids come from a subquery for the reason given in SysExecutionInsert.
FROM (SELECT unnest((SELECT @ids::uuid[])) AS id, unnest(@tenant_ids::uuid[]) AS tenant_id) AS asked
-- Found by id alone: an index with the tenant would read all of its executions.
JOIN executions e ON e.id = asked.id AND e.tenant_id IS NOT DISTINCT FROM asked.tenant_id
JOIN execution_payloads p ON p.execution_id = e.id;

-- name: ExecutionCheckpoint :execrows
-- Stores the state. No row: the lease is lost.
WITH leased AS (
    UPDATE executions /*partition*/ e SET tasks_completed = @tasks_completed, tasks_failed = @tasks_failed
    WHERE e.tenant_id IS NOT DISTINCT FROM @tenant_id::uuid AND e.id = @id AND e.lease_token = @lease_token::uuid
    RETURNING e.id
)
UPDATE execution_payloads /*partition*/ p SET state = @state::json FROM leased WHERE p.execution_id = leased.id;

-- name: ExecutionFinish :execrows
-- Ends one execution, as SysExecutionFinish does. With OnPartition it takes the server
-- half the time of the statement for many, not counting the commit.
WITH ended AS (
    UPDATE executions /*partition*/ e SET
        status = @status::text, is_success = @status::text = 'completed', source_failed = @source_failed,
        status_code = @status_code::integer, tasks_completed = @tasks_completed, tasks_failed = @tasks_failed,
        started_at = COALESCE(e.started_at, @started_at::timestamptz), deadline_at = COALESCE(e.deadline_at, @deadline_at::timestamptz),
        completed_at = @completed_at::timestamptz, lease_token = NULL, lease_process_id = NULL, tags = @tags
    WHERE e.tenant_id IS NOT DISTINCT FROM @tenant_id::uuid AND e.id = @id AND e.attempt = @attempt AND e.completed_at IS NULL
      AND e.lease_token IS NOT DISTINCT FROM NULLIF(@lease_token::uuid, '00000000-0000-0000-0000-000000000000')
    RETURNING e.id
)
UPDATE execution_payloads /*partition*/ p SET state = sqlc.narg('state')::json, result = @result::json FROM ended WHERE p.execution_id = ended.id;

-- name: SysExecutionFinish :many
-- Ends executions, each only once. An execution without a lease (the nil UUID) must be
-- pending, in the same attempt. No row: the caller may not end it.
WITH ending AS (
    -- A subquery for the reason given in SysExecutionInsert.
    SELECT unnest((SELECT @ids::uuid[])) AS id, unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@attempts::integer[]) AS attempt,
        unnest(@lease_tokens::uuid[]) AS lease_token, unnest(@statuses::text[]) AS status,
        unnest(@source_failed::boolean[]) AS source_failed, unnest(@status_codes::integer[]) AS status_code,
        unnest(@tasks_completed::integer[]) AS tasks_completed, unnest(@tasks_failed::integer[]) AS tasks_failed,
        unnest(@started_at::timestamptz[]) AS started_at, unnest(@deadlines_at::timestamptz[]) AS deadline_at,
        unnest(@completed_at::timestamptz[]) AS completed_at, unnest(@tags::text[]) AS tags,
        unnest(@states::text[]) AS state, unnest(@results::text[]) AS result
), ended AS (
    UPDATE executions e SET
        status = ending.status, is_success = ending.status = 'completed', source_failed = ending.source_failed,
        status_code = ending.status_code, tasks_completed = ending.tasks_completed, tasks_failed = ending.tasks_failed,
        started_at = COALESCE(e.started_at, ending.started_at), deadline_at = COALESCE(e.deadline_at, ending.deadline_at),
        completed_at = ending.completed_at, lease_token = NULL, lease_process_id = NULL,
        tags = CASE ending.tags WHEN '[]' THEN '{}'::text[] ELSE ARRAY(SELECT json_array_elements_text(ending.tags::json)) END
    FROM ending
    -- Found by id alone: an index with the tenant would read all of its executions.
    WHERE e.id = ending.id AND e.tenant_id IS NOT DISTINCT FROM ending.tenant_id AND e.attempt = ending.attempt
      AND e.completed_at IS NULL
      AND e.lease_token IS NOT DISTINCT FROM NULLIF(ending.lease_token, '00000000-0000-0000-0000-000000000000'::uuid)
    RETURNING e.id, ending.lease_token, ending.state, ending.result
)
UPDATE execution_payloads p SET state = NULLIF(ended.state, '')::json, result = ended.result::json
FROM ended WHERE p.execution_id = ended.id
RETURNING p.execution_id, ended.lease_token::uuid AS lease_token;

-- name: ExecutionRelease :execrows
-- Releases an execution, so that another worker can continue it, now or when its next
-- job is due. No row: the lease is lost.
UPDATE executions e SET lease_token = NULL, lease_process_id = NULL
WHERE e.tenant_id IS NOT DISTINCT FROM @tenant_id::uuid AND e.id = @id AND e.lease_token = @lease_token::uuid;

-- name: SysExecutionRelease :many
-- Releases executions. It inserts a job for each execution that needs one, and notifies
-- the workers. No row: the lease has changed, or another transaction has locked the
-- execution; it does not wait for that.
WITH leased AS (
    SELECT e.id, e.tenant_id, asked.lease_token, asked.needs_job
    -- A subquery for the reason given in SysExecutionInsert.
    FROM (
        SELECT unnest((SELECT @ids::uuid[])) AS id, unnest(@tenant_ids::uuid[]) AS tenant_id,
            unnest(@lease_tokens::uuid[]) AS lease_token, unnest(@need_jobs::boolean[]) AS needs_job
    ) AS asked
    -- Found by id alone: an index with the tenant would read all of its executions.
    JOIN executions e ON e.id = asked.id AND e.tenant_id IS NOT DISTINCT FROM asked.tenant_id AND e.lease_token = asked.lease_token
    FOR UPDATE OF e SKIP LOCKED
), released AS (
    UPDATE executions e SET lease_token = NULL, lease_process_id = NULL
    FROM leased WHERE e.id = leased.id
    RETURNING e.id, leased.tenant_id, leased.lease_token, leased.needs_job
), job AS (
    INSERT INTO river.river_job (kind, queue, max_attempts, args, state)
    SELECT @job_kind, @job_queue, @job_attempts_max, jsonb_build_object('tenant_id', released.tenant_id, 'execution_id', released.id), 'available'
    FROM released WHERE released.needs_job
)
SELECT released.id, released.lease_token::uuid AS lease_token,
    (CASE WHEN released.needs_job THEN pg_notify(@job_channel, @job_notice) IS NOT NULL ELSE false END)::boolean AS has_new_job
FROM released;

-- name: ExecutionReleaseForRetry :execrows
-- Releases an execution after an error, so that its job tries again. The time limit of
-- an item begins anew, so that the job of its chunk finds it. No row: the lease is lost.
UPDATE executions /*partition*/ e SET lease_token = NULL, lease_process_id = NULL,
    started_at = CASE WHEN e.batch_id IS NULL THEN e.started_at END, deadline_at = CASE WHEN e.batch_id IS NULL THEN e.deadline_at END
WHERE e.tenant_id IS NOT DISTINCT FROM @tenant_id::uuid AND e.id = @id AND e.lease_token = @lease_token::uuid;

-- name: SysExecutionListAbandoned :many
-- Lists running executions that are leased to the given processes, without items of
-- batches. If includes_expired is set, it includes leases of unknown processes and of
-- processes without a heartbeat in the given number of seconds.
SELECT t.id AS tenant_id, e.id, e.lease_token
FROM tenants t CROSS JOIN LATERAL (
    -- The planner must use the index of statuses with any statistics. Other indexes
    -- would read all executions. So the status and the filter on items are hidden from
    -- it.
    SELECT r.id, r.batch_id, r.lease_token, r.lease_process_id FROM executions r
    WHERE r.tenant_id = t.id AND r.status = (SELECT 'running') AND r.lease_token IS NOT NULL
    OFFSET 0) e
WHERE e.batch_id IS NULL
  AND (e.lease_process_id = ANY (@process_ids::uuid[]) OR @includes_expired::boolean AND NOT EXISTS (
      SELECT FROM processes p
      WHERE p.id = e.lease_process_id AND p.heartbeat_at > now() - make_interval(secs => @dead_after_seconds::float8)))
LIMIT 10000;

-- name: ExecutionGetStatus :one
SELECT status, started_at, completed_at, tasks_completed, tasks_failed
FROM executions /*partition*/ WHERE tenant_id IS NOT DISTINCT FROM @tenant_id::uuid AND id = @id;

-- name: ExecutionGetOutput :one
SELECT e.billable_id, e.borrower_id, e.workflow_id, e.workflow_alias, e.workflow_version, e.workflow_type, e.status, p.result
FROM executions /*partition*/ e JOIN execution_payloads /*partition*/ p ON p.execution_id = e.id
WHERE e.tenant_id IS NOT DISTINCT FROM @tenant_id::uuid AND e.id = @id;

-- name: SysExecutionPartitionsCreate :exec
SELECT execution_partitions_provide(@months_ahead);

-- name: SysExecutionPartitionsCreateFirst :exec
-- Creates partitions if this month has none. Otherwise it takes no lock: creating a
-- partition waits for a dump of the database, for example.
SELECT execution_partitions_provide(@months_ahead)
WHERE to_regclass(to_char(now() AT TIME ZONE 'UTC', '"execution_payloads_"YYYYMM')) IS NULL;

-- name: ExecutionExists :one
SELECT EXISTS (SELECT 1 FROM executions WHERE tenant_id = @tenant_id AND id = @id);

-- name: ExecutionGet :one
-- Returns an execution as the Executions API shows it. ExecutionList returns many.
SELECT e.id, e.principal_id, e.workflow_id, e.workflow_alias, e.workflow_version, e.workflow_type, e.batch_id, e.billable_id,
    e.borrower_id, e.status, e.is_success, e.is_test, e.rescore_of, e.tags,
    e.item_index, e.row_number, e.source_file_name, b.label AS batch_label, b.attempt AS batch_attempt
FROM executions /*partition*/ e LEFT JOIN execution_batches b ON b.tenant_id = e.tenant_id AND b.id = e.batch_id
WHERE e.tenant_id IS NOT DISTINCT FROM @tenant_id::uuid AND e.id = @id;

-- name: ExecutionGetInput :one
SELECT e.workflow_id, e.workflow_alias, e.workflow_version, p.input
FROM executions /*partition*/ e JOIN execution_payloads /*partition*/ p ON p.execution_id = e.id
WHERE e.tenant_id IS NOT DISTINCT FROM @tenant_id::uuid AND e.id = @id;

-- name: ExecutionGetState :one
SELECT e.workflow_id, e.batch_id, e.status, e.attempt, e.started_at, e.completed_at, p.state, p.result
FROM executions /*partition*/ e JOIN execution_payloads /*partition*/ p ON p.execution_id = e.id
WHERE e.tenant_id IS NOT DISTINCT FROM @tenant_id::uuid AND e.id = @id;

-- name: ExecutionGetForUpdate :one
-- Locks an execution for a retry or a cancellation. It also locks the payload. Otherwise
-- a transaction that waited for the execution would read the state from before its wait.
SELECT e.batch_id, e.status, e.attempt, e.tags, e.lease_token, p.state
FROM executions e JOIN execution_payloads p ON p.execution_id = e.id
WHERE e.tenant_id IS NOT DISTINCT FROM @tenant_id::uuid AND e.id = @id
FOR UPDATE OF e, p;

-- name: ExecutionRetry :exec
-- Makes an ended execution pending again.
WITH retried AS (
    UPDATE executions e SET
        status = 'pending', is_success = false, source_failed = false, status_code = NULL, attempt = @attempt,
        tasks_completed = @tasks_completed, tasks_failed = 0, started_at = NULL, completed_at = NULL, deadline_at = NULL, tags = @tags
    WHERE e.tenant_id IS NOT DISTINCT FROM @tenant_id::uuid AND e.id = @id
    RETURNING e.id
)
UPDATE execution_payloads p SET state = @state::json, result = NULL FROM retried WHERE p.execution_id = retried.id;

-- name: ExecutionCancel :exec
-- Ends an execution from outside. Its worker loses the lease.
WITH cancelled AS (
    UPDATE executions e SET
        status = 'cancelled', is_success = false, status_code = @status_code::integer,
        tasks_completed = @tasks_completed, tasks_failed = @tasks_failed, completed_at = @completed_at::timestamptz,
        lease_token = NULL, lease_process_id = NULL
    WHERE e.tenant_id IS NOT DISTINCT FROM @tenant_id::uuid AND e.id = @id
    RETURNING e.id
)
UPDATE execution_payloads p SET state = @state::json, result = @result::json FROM cancelled WHERE p.execution_id = cancelled.id;

-- name: SysNotificationSend :exec
-- Notifies all processes that listen on a channel, when the transaction commits.
SELECT pg_notify(@channel::text, @payload::text);

-- name: SysExecutionListLeaseLost :many
-- Lists the executions that the process no longer has leased.
SELECT id FROM executions WHERE id = ANY (@ids::uuid[]) AND lease_process_id IS DISTINCT FROM @process_id::uuid;

-- name: SysExecutionPartitionsDrop :many
SELECT execution_partitions_drop(@months_kept)::text AS month;
