-- The schedules of workflows and their firings.

-- name: SysTimeGet :one
-- Returns the time of the database, which all processes share.
SELECT clock_timestamp()::timestamptz AS now;

-- name: ScheduleWorkflowLock :one
-- Returns the status of a workflow and locks it until the transaction ends.
SELECT status FROM workflows WHERE tenant_id = @tenant_id AND id = @id FOR SHARE;

-- name: ScheduleUpsert :execrows
-- If the times do not change, neither does the next run. A test never replaces a
-- schedule that is no test: no row is written then.
INSERT INTO schedules (tenant_id, workflow_id, slot, cron, utc_delta_hours, next_run_at, is_test, input, batch)
VALUES (@tenant_id, @workflow_id, @slot, @cron, @utc_delta_hours, @next_run_at, @is_test, sqlc.narg('input'), sqlc.narg('batch'))
ON CONFLICT (tenant_id, workflow_id, slot) DO UPDATE SET
    cron = excluded.cron, utc_delta_hours = excluded.utc_delta_hours,
    next_run_at = CASE WHEN (schedules.cron, schedules.utc_delta_hours) = (excluded.cron, excluded.utc_delta_hours)
        THEN LEAST(schedules.next_run_at, excluded.next_run_at) ELSE excluded.next_run_at END,
    is_test = excluded.is_test, input = excluded.input, batch = excluded.batch, updated_at = now()
WHERE schedules.is_test OR NOT excluded.is_test;

-- name: ScheduleList :many
SELECT slot, cron, utc_delta_hours, next_run_at, input, batch
FROM schedules WHERE tenant_id = @tenant_id AND workflow_id = @workflow_id;

-- name: ScheduleDelete :many
DELETE FROM schedules
WHERE tenant_id = @tenant_id AND workflow_id = @workflow_id AND slot = ANY(@slots::text[])
RETURNING slot, is_test;

-- name: ScheduleFiringListNewest :many
SELECT slot, scheduled_at, fired_at, status, reason, execution_id, batch_id
FROM schedule_firings WHERE tenant_id = @tenant_id AND workflow_id = @workflow_id
ORDER BY scheduled_at DESC, slot
LIMIT @firings_max;

-- name: SysScheduleGetNextRun :one
-- Returns the time of the first due schedule. No row: there is no schedule.
SELECT next_run_at FROM schedules ORDER BY next_run_at LIMIT 1;

-- name: SysScheduleClaim :many
-- Locks due schedules and skips locked ones. Schedules of revoked tenants and of
-- inactive workflows must not fire. It locks the workflows too: archiving a workflow
-- waits for the firing, and a workflow that is being archived does not fire.
SELECT s.tenant_id, s.workflow_id, s.slot, s.cron, s.utc_delta_hours, s.next_run_at, s.is_test, s.input, s.batch, w.alias,
    (w.status = 'active' AND t.revoked_at IS NULL)::boolean AS may_fire
FROM schedules s
JOIN workflows w ON w.tenant_id = s.tenant_id AND w.id = s.workflow_id
JOIN tenants t ON t.id = s.tenant_id
WHERE s.next_run_at <= @now::timestamptz
ORDER BY s.next_run_at
LIMIT @schedules_max
FOR UPDATE OF s SKIP LOCKED FOR KEY SHARE OF w SKIP LOCKED;

-- name: SysScheduleListRunning :many
-- Lists the slots whose last run has not ended, by position from 1.
WITH claimed AS (
    SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@workflow_ids::uuid[]) AS workflow_id,
        unnest(@slots::text[]) AS slot, generate_subscripts(@slots::text[], 1) AS position
)
SELECT claimed.position::integer AS position
FROM claimed CROSS JOIN LATERAL (
    SELECT f.execution_id, f.batch_id FROM schedule_firings f
    WHERE f.tenant_id = claimed.tenant_id AND f.workflow_id = claimed.workflow_id AND f.slot = claimed.slot AND f.status = 'started'
    ORDER BY f.scheduled_at DESC
    LIMIT 1
) AS last
WHERE EXISTS (SELECT FROM executions e WHERE e.id = last.execution_id AND e.status IN ('pending', 'running'))
   OR EXISTS (SELECT FROM execution_batches b WHERE b.id = last.batch_id
       AND b.status NOT IN ('pre_processing_failed', 'post_processing_failed', 'complete', 'cancelled'));

-- name: SysScheduleFiringInsertMany :many
-- Records firings and returns their positions, from 1. The result omits firings of times
-- that have fired before.
WITH firing AS (
    SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@workflow_ids::uuid[]) AS workflow_id,
        unnest(@slots::text[]) AS slot, generate_subscripts(@slots::text[], 1) AS position,
        unnest(@scheduled_at::timestamptz[]) AS scheduled_at, unnest(@statuses::text[]) AS status,
        unnest(@reasons::text[]) AS reason, unnest(@run_ids::uuid[]) AS run_id
), fired AS (
    INSERT INTO schedule_firings (tenant_id, workflow_id, slot, scheduled_at, fired_at, status, reason, execution_id, batch_id)
    SELECT f.tenant_id, f.workflow_id, f.slot, f.scheduled_at, @fired_at::timestamptz, f.status, NULLIF(f.reason, ''),
        CASE WHEN f.status = 'started' AND f.slot = 'schedule' THEN f.run_id END,
        CASE WHEN f.status = 'started' AND f.slot = 'scheduleBatch' THEN f.run_id END
    FROM firing f
    ON CONFLICT DO NOTHING
    RETURNING tenant_id, workflow_id, slot
)
SELECT firing.position::integer AS position
FROM fired JOIN firing ON firing.tenant_id = fired.tenant_id AND firing.workflow_id = fired.workflow_id AND firing.slot = fired.slot;

-- name: ScheduleFiringSetFailed :exec
-- Records that a firing could not start its run.
UPDATE schedule_firings SET status = @status, reason = @reason::text, execution_id = NULL, batch_id = NULL
WHERE tenant_id = @tenant_id AND workflow_id = @workflow_id AND slot = @slot AND scheduled_at = @scheduled_at;

-- name: SysScheduleAdvance :exec
WITH claimed AS (
    SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@workflow_ids::uuid[]) AS workflow_id,
        unnest(@slots::text[]) AS slot, unnest(@next_run_at::timestamptz[]) AS next_run_at
)
UPDATE schedules s SET next_run_at = claimed.next_run_at
FROM claimed
WHERE s.tenant_id = claimed.tenant_id AND s.workflow_id = claimed.workflow_id AND s.slot = claimed.slot;

-- name: SysScheduleFiringDeleteOld :exec
-- Keeps the newest firings of slots and the newest firing that started a run. While that
-- run continues, any number of firings can be skipped.
WITH claimed AS (
    SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@workflow_ids::uuid[]) AS workflow_id, unnest(@slots::text[]) AS slot
)
DELETE FROM schedule_firings f
USING claimed CROSS JOIN LATERAL (
    SELECT k.scheduled_at FROM schedule_firings k
    WHERE k.tenant_id = claimed.tenant_id AND k.workflow_id = claimed.workflow_id AND k.slot = claimed.slot
    ORDER BY k.scheduled_at DESC
    OFFSET @firings_kept::integer
    LIMIT 1
) AS oldest
WHERE f.tenant_id = claimed.tenant_id AND f.workflow_id = claimed.workflow_id AND f.slot = claimed.slot
  AND f.scheduled_at <= oldest.scheduled_at
  AND f.scheduled_at IS DISTINCT FROM (
    SELECT max(n.scheduled_at) FROM schedule_firings n
    WHERE n.tenant_id = f.tenant_id AND n.workflow_id = f.workflow_id AND n.slot = f.slot AND n.status = 'started'
  );
