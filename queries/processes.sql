-- name: SysProcessHeartbeat :exec
INSERT INTO processes (id, role) VALUES (@id, @role)
ON CONFLICT (id) DO UPDATE SET heartbeat_at = clock_timestamp();

-- name: SysProcessLock :one
-- Takes a lock that lasts as long as this session. The session ends with the process.
SELECT pg_try_advisory_lock(hashtextextended(CAST(@id::uuid AS text), 0)) AS is_locked;

-- name: SysProcessListDead :many
-- Lists processes that have died and may have left work. Package liveness has the timeline.
-- A process with a heartbeat within dead_after_seconds is dead if its session has ended, so
-- that its lock is free: a process that only lost its connection has a new one before its
-- heartbeat is session_dead_after_seconds old. After an outage of the server, all sessions
-- have ended. So the asker must be steady. Or it must still have its first session, and the
-- process must have written a heartbeat since the server began to accept sessions: since
-- its start, or since its recovery from a crash, which resets its statistics.
-- A process with an older heartbeat is dead if the asker is steady. The last sweep of the
-- asker found those that were dead then.
WITH silent AS MATERIALIZED (
    SELECT p.id, p.heartbeat_at > now() - make_interval(secs => @dead_after_seconds::float8) AS is_fresh,
        p.heartbeat_at > GREATEST(pg_postmaster_start_time(), pg_stat_get_bgwriter_stat_reset_time()) AS had_session
    FROM processes p
    WHERE p.heartbeat_at < now() - make_interval(secs => @session_dead_after_seconds::float8)
      AND p.heartbeat_at > now() - make_interval(secs => @dead_after_seconds::float8) - make_interval(secs => @since_sweep_seconds::float8)
)
SELECT s.id FROM silent s
WHERE CASE WHEN s.is_fresh
    THEN (@is_steady::boolean OR @is_first_session::boolean AND s.had_session)
        AND pg_try_advisory_xact_lock(hashtextextended(CAST(s.id AS text), 0))
    ELSE @is_steady END;

-- name: SysProcessMarkDead :many
-- Makes the heartbeat of processes old whose session has ended.
UPDATE processes p SET heartbeat_at = now() - make_interval(secs => @dead_after_seconds::float8)
FROM (SELECT unnest(@ids::uuid[]) AS id) AS asked
WHERE p.id = asked.id AND CASE
    WHEN p.heartbeat_at < now() - make_interval(secs => @session_dead_after_seconds::float8)
        AND p.heartbeat_at > now() - make_interval(secs => @dead_after_seconds::float8)
    THEN pg_try_advisory_xact_lock(hashtextextended(CAST(asked.id AS text), 0)) END
RETURNING p.id;

-- name: SysProcessDelete :exec
DELETE FROM processes WHERE id = @id;

-- name: SysProcessDeleteExpired :exec
-- The rows of dead processes remain for an hour, for operators.
DELETE FROM processes WHERE heartbeat_at < now() - interval '1 hour';

-- name: SysJobRequeueAbandoned :many
-- Makes the running jobs of the given processes available again. If includes_expired is
-- set, it includes the jobs of processes without a heartbeat in dead_after_seconds, the
-- jobs of unknown processes, and jobs of the asker that it does not run: it did not receive
-- the response that assigned them, or their end was not recorded. It returns the execution
-- of each job, or the nil UUID.
-- Each job gets a new id. River completes a job by its id alone, so a suspended process
-- that continues would otherwise complete the job of the process that has it by then.
UPDATE river.river_job SET id = DEFAULT, state = 'available', scheduled_at = now()
WHERE id IN (
    SELECT j.id FROM river.river_job j
    WHERE j.state = 'running'
      AND (j.attempted_by[array_length(j.attempted_by, 1)] = ANY (@process_ids::text[]) OR @includes_expired::boolean AND CASE
          WHEN j.attempted_by[array_length(j.attempted_by, 1)] = @asker_id::text
          THEN j.attempted_at < now() - make_interval(secs => @lost_after_seconds::float8) AND j.id <> ALL (@running_jobs::bigint[])
          ELSE NOT EXISTS (
              SELECT 1 FROM processes p
              WHERE p.id::text = j.attempted_by[array_length(j.attempted_by, 1)]
                AND p.heartbeat_at > now() - make_interval(secs => @dead_after_seconds::float8)) END)
    ORDER BY j.id
    FOR UPDATE SKIP LOCKED
    LIMIT 10000)
RETURNING COALESCE((args ->> 'execution_id')::uuid, '00000000-0000-0000-0000-000000000000'::uuid)::uuid AS execution_id;

-- name: SysJobSetPriority :exec
-- Sets the priority that a running job has when it is available again. The lowest number
-- runs first.
UPDATE river.river_job SET priority = @priority WHERE id = @id AND state = 'running';

-- name: SysDatabaseIsReadOnly :one
-- A database is read-only if it is a standby, or if its operator or provider stopped writes.
SELECT current_setting('transaction_read_only') = 'on' AS is_read_only;
