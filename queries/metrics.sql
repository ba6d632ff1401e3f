-- Figures of the whole installation for /metrics. Each query reads an index of rows that
-- have not ended.

-- name: SysMetricsListQueues :many
-- Counts the jobs that have not ended, and returns the waiting time of the first available
-- job.
SELECT queue, state::text AS state, count(*) AS jobs,
    (CASE state WHEN 'available' THEN GREATEST(extract(epoch FROM now() - min(scheduled_at)), 0) ELSE 0 END)::float8 AS late_seconds
FROM river.river_job
WHERE state IN ('available', 'pending', 'retryable', 'running', 'scheduled')
GROUP BY queue, state;

-- name: SysMetricsListBatches :many
-- Counts the batches that have not ended.
SELECT status, count(*) AS batches FROM execution_batches
WHERE status NOT IN ('complete', 'cancelled', 'pre_processing_failed', 'post_processing_failed')
GROUP BY status;

-- name: SysMetricsListProcesses :many
-- Counts the living processes.
SELECT role, count(*) AS processes FROM processes
WHERE heartbeat_at > now() - make_interval(secs => @dead_after_seconds::float8)
GROUP BY role;

-- name: SysMetricsGetOpen :one
-- Counts the executions that have not ended, and the schedules that have been due for a
-- minute and have not fired. Schedules of archived workflows and revoked tenants never fire.
SELECT (SELECT count(*) FROM executions WHERE status IN ('pending', 'running')) AS executions,
    (SELECT count(*) FROM schedules s
        JOIN workflows w ON w.tenant_id = s.tenant_id AND w.id = s.workflow_id
        JOIN tenants t ON t.id = s.tenant_id
        WHERE s.next_run_at < now() - interval '1 minute' AND w.status = 'active' AND t.revoked_at IS NULL) AS schedules_late;
