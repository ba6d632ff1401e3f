-- name: ExecutionGetForSignal :one
-- Holds the execution, so that whoever drives it either has let it go before or
-- finds the signal when it does; with its payload, as ExecutionGetForUpdate.
SELECT e.status, e.attempt, p.state
FROM executions e JOIN execution_payloads p ON p.execution_id = e.id
WHERE e.tenant_id = @tenant_id AND e.id = @id
FOR UPDATE OF e, p;

-- name: ExecutionSignalInsert :execrows
-- No row: the wait has got its signal.
INSERT INTO execution_signals (tenant_id, execution_id, attempt, task_path, payload)
VALUES (@tenant_id, @execution_id, @attempt, @task_path, @payload::json)
ON CONFLICT DO NOTHING;

-- name: ExecutionSignalList :many
SELECT task_path, payload FROM execution_signals
WHERE tenant_id = @tenant_id AND execution_id = @execution_id AND attempt = @attempt;

-- name: ExecutionSignalCount :one
SELECT count(*) FROM execution_signals
WHERE tenant_id = @tenant_id AND execution_id = @execution_id AND attempt = @attempt;

-- name: SysExecutionSignalDeleteOld :exec
-- Signals of executions that have ended or are gone.
DELETE FROM execution_signals s
WHERE s.created_at < @before::timestamptz
  AND NOT EXISTS (SELECT 1 FROM executions e WHERE e.id = s.execution_id AND e.status IN ('pending', 'running'));
