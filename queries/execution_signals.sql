-- name: ExecutionGetForSignal :one
-- Locks an execution and its payload, as ExecutionGetForUpdate does. A worker has either
-- released the execution before or finds the signal when it releases it.
SELECT e.status, e.attempt, p.state
FROM executions e JOIN execution_payloads p ON p.execution_id = e.id
WHERE e.tenant_id = @tenant_id AND e.id = @id
FOR UPDATE OF e, p;

-- name: ExecutionSignalInsert :execrows
-- No row: the wait has its signal already.
INSERT INTO execution_signals (tenant_id, execution_id, attempt, task_path, payload)
VALUES (@tenant_id, @execution_id, @attempt, @task_path, @payload::json)
ON CONFLICT DO NOTHING;

-- name: ExecutionSignalList :many
SELECT task_path, payload FROM execution_signals
WHERE tenant_id = @tenant_id AND execution_id = @execution_id AND attempt = @attempt;

-- name: ExecutionSignalCount :one
SELECT count(*) FROM execution_signals
WHERE tenant_id = @tenant_id AND execution_id = @execution_id AND attempt = @attempt;

-- name: SysExecutionSignalDeleteOld :execrows
-- Deletes some of the signals of executions that have ended or no longer exist.
DELETE FROM execution_signals s
WHERE s.ctid = ANY(ARRAY(
    SELECT o.ctid FROM execution_signals o
    WHERE o.created_at < @before::timestamptz
      AND NOT EXISTS (SELECT 1 FROM executions e WHERE e.id = o.execution_id AND e.status IN ('pending', 'running'))
    ORDER BY o.created_at LIMIT @signals_max
    FOR UPDATE SKIP LOCKED));
