-- name: SysProcessBeat :exec
INSERT INTO processes (id, role) VALUES (@id, @role)
ON CONFLICT (id) DO UPDATE SET heartbeat_at = clock_timestamp();

-- name: SysProcessLock :one
-- Holds a lock for as long as this session lasts: it ends with the process.
SELECT pg_try_advisory_lock(hashtextextended(CAST(@id::uuid AS text), 0)) AS is_locked;

-- name: SysJobsOfEndedSessions :execrows
-- Finds processes dead whose session has ended, so that its lock is free, and
-- gives back their running jobs. One that only lost its connection has another
-- before it is silent for that long; not so after a start of the database, when
-- all have.
WITH silent AS MATERIALIZED (
    SELECT p.id FROM processes p
    WHERE p.heartbeat_at < now() - make_interval(secs => @silent_seconds::float8)
      AND p.heartbeat_at > now() - make_interval(secs => @dead_after_seconds::float8)
      AND pg_postmaster_start_time() < now() - make_interval(secs => @database_up_seconds::float8)
), dead AS (
    UPDATE processes p SET heartbeat_at = now() - make_interval(secs => @dead_after_seconds::float8)
    FROM silent
    WHERE p.id = silent.id AND pg_try_advisory_xact_lock(hashtextextended(CAST(silent.id AS text), 0))
    RETURNING p.id
)
UPDATE river.river_job SET state = 'available', scheduled_at = now()
WHERE id IN (
    SELECT j.id FROM river.river_job j JOIN dead ON dead.id::text = j.attempted_by[array_length(j.attempted_by, 1)]
    WHERE j.state = 'running'
    FOR UPDATE OF j SKIP LOCKED);

-- name: SysProcessDelete :exec
DELETE FROM processes WHERE id = @id;

-- name: SysJobsOfDeadProcesses :execrows
-- Gives back the running jobs whose process has not been heard of for the given
-- number of seconds. The rows of dead processes are kept for an hour for whoever
-- looks.
WITH forgotten AS (
    DELETE FROM processes WHERE heartbeat_at < now() - interval '1 hour'
)
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

-- name: SysJobDeleteWaiting :exec
DELETE FROM river.river_job WHERE id = @id AND state <> 'running';
