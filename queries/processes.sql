-- name: SysProcessBeat :exec
INSERT INTO processes (id, role) VALUES (@id, @role)
ON CONFLICT (id) DO UPDATE SET heartbeat_at = clock_timestamp();

-- name: SysProcessLock :one
-- Holds a lock for as long as this session lasts: it ends with the process.
SELECT pg_try_advisory_lock(hashtextextended(CAST(@id::uuid AS text), 0)) AS is_locked;

-- name: SysProcessListDead :many
-- Processes that have died and may have left work; package process has the timeline.
-- A process that was heard of within dead_after_seconds is dead if its session has ended,
-- so that its lock is free: one that only lost its connection has another before it is
-- silent for silent_seconds. Not so where the server was away, when all have lost theirs.
-- So the asker must be steady; or it must still have its first session, and the process
-- must have been heard of since the server began to take sessions: since its start, or its
-- recovery from a crash, which sets its statistics back.
-- A process that was not heard of for dead_after_seconds is dead if the asker is steady.
-- Those of which that was so at the asker's last look were found then.
WITH silent AS MATERIALIZED (
    SELECT p.id, p.heartbeat_at > now() - make_interval(secs => @dead_after_seconds::float8) AS is_heard,
        p.heartbeat_at > GREATEST(pg_postmaster_start_time(), pg_stat_get_bgwriter_stat_reset_time()) AS had_session
    FROM processes p
    WHERE p.heartbeat_at < now() - make_interval(secs => @silent_seconds::float8)
      AND p.heartbeat_at > now() - make_interval(secs => @dead_after_seconds::float8) - make_interval(secs => @since_look_seconds::float8)
)
SELECT s.id FROM silent s
WHERE CASE WHEN s.is_heard
    THEN (@is_steady::boolean OR @is_first_session::boolean AND s.had_session)
        AND pg_try_advisory_xact_lock(hashtextextended(CAST(s.id AS text), 0))
    ELSE @is_steady END;

-- name: SysProcessEnd :many
-- Makes it known that processes are dead whose session has ended.
UPDATE processes p SET heartbeat_at = now() - make_interval(secs => @dead_after_seconds::float8)
FROM (SELECT unnest(@ids::uuid[]) AS id) AS asked
WHERE p.id = asked.id AND CASE
    WHEN p.heartbeat_at < now() - make_interval(secs => @silent_seconds::float8)
        AND p.heartbeat_at > now() - make_interval(secs => @dead_after_seconds::float8)
    THEN pg_try_advisory_xact_lock(hashtextextended(CAST(asked.id AS text), 0)) END
RETURNING p.id;

-- name: SysProcessDelete :exec
DELETE FROM processes WHERE id = @id;

-- name: SysProcessForget :exec
-- The rows of dead processes are kept for an hour for whoever looks.
DELETE FROM processes WHERE heartbeat_at < now() - interval '1 hour';

-- name: SysJobsOfDeadProcesses :many
-- Gives back the running jobs of the given processes; where is_unheard says so, also
-- of those that have not been heard of for the given number of seconds, and of
-- those that nobody knows, and those of the asker that it does not work on: the
-- answer that would have brought them was lost, or what came of them is not told.
-- It returns the execution of each, or the nil UUID.
-- Each gets another id: River asks for nothing but the id when a job is said to have
-- ended, and who was only asleep would end the job of whoever has it by then.
UPDATE river.river_job SET id = DEFAULT, state = 'available', scheduled_at = now()
WHERE id IN (
    SELECT j.id FROM river.river_job j
    WHERE j.state = 'running'
      AND (j.attempted_by[array_length(j.attempted_by, 1)] = ANY (@process_ids::text[]) OR @is_unheard::boolean AND CASE
          WHEN j.attempted_by[array_length(j.attempted_by, 1)] = @asker_id::text
          THEN j.attempted_at < now() - make_interval(secs => @lost_after_seconds::float8) AND j.id <> ALL (@worked_on::bigint[])
          ELSE NOT EXISTS (
              SELECT 1 FROM processes p
              WHERE p.id::text = j.attempted_by[array_length(j.attempted_by, 1)]
                AND p.heartbeat_at > now() - make_interval(secs => @dead_after_seconds::float8)) END)
    ORDER BY j.id
    FOR UPDATE SKIP LOCKED
    LIMIT 10000)
RETURNING COALESCE((args ->> 'execution_id')::uuid, '00000000-0000-0000-0000-000000000000'::uuid)::uuid AS execution_id;

-- name: SysJobSetPriority :exec
-- Of a job that runs, for when it is available again: the least goes first.
UPDATE river.river_job SET priority = @priority WHERE id = @id AND state = 'running';

-- name: SysDatabaseIsReadOnly :one
-- So is one that is a standby, and one whose operator or provider stopped writes.
SELECT current_setting('transaction_read_only') = 'on' AS is_read_only;
