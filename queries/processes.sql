-- name: SysProcessBeat :exec
INSERT INTO processes (id, role) VALUES (@id, @role)
ON CONFLICT (id) DO UPDATE SET heartbeat_at = clock_timestamp();

-- name: SysProcessDelete :exec
DELETE FROM processes WHERE id = @id;

-- name: SysProcessDeleteDead :exec
-- Rows are kept for an hour for whoever looks.
DELETE FROM processes WHERE heartbeat_at < now() - interval '1 hour';

-- name: SysJobsOfDeadProcesses :execrows
-- Gives back the running jobs whose process has not been heard of for the given
-- number of seconds.
UPDATE river.river_job SET state = 'available', scheduled_at = now()
WHERE id IN (
    SELECT j.id FROM river.river_job j
    WHERE j.state = 'running'
      AND NOT EXISTS (
          SELECT 1 FROM processes p
          WHERE p.id::text = j.attempted_by[array_length(j.attempted_by, 1)]
            AND p.heartbeat_at > now() - make_interval(secs => @dead_after_seconds::float8))
    ORDER BY j.id
    FOR UPDATE SKIP LOCKED
    LIMIT 10000);

-- name: SysJobRelease :exec
-- Makes a job that waits for later available at once.
UPDATE river.river_job SET state = 'available', scheduled_at = now() WHERE id = @id AND state = 'scheduled';

-- name: SysJobDeleteWaiting :exec
DELETE FROM river.river_job WHERE id = @id AND state <> 'running';
