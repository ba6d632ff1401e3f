-- name: IdempotencyKeyInsert :execrows
-- Acquires a key that is unused or older than the given number of seconds. No row: the
-- key is in use.
INSERT INTO idempotency_keys AS k (tenant_id, client_id, key, fingerprint, status, answer, execution_id)
VALUES (@tenant_id, @client_id, @key, @fingerprint, sqlc.narg('status'), sqlc.narg('answer'), sqlc.narg('execution_id'))
ON CONFLICT (tenant_id, client_id, key) DO UPDATE SET
    fingerprint = excluded.fingerprint, status = excluded.status, answer = excluded.answer,
    execution_id = excluded.execution_id, result = NULL, created_at = now()
WHERE k.created_at < now() - make_interval(secs => @older_than_seconds::float8);

-- name: IdempotencyKeyGet :one
SELECT k.fingerprint, k.status, k.answer, k.execution_id, COALESCE(k.result, p.result)::json AS result
FROM idempotency_keys k LEFT JOIN execution_payloads p ON p.execution_id = k.execution_id
WHERE k.tenant_id = @tenant_id AND k.client_id = @client_id AND k.key = @key
    AND k.created_at >= now() - make_interval(secs => @younger_than_seconds::float8);

-- name: IdempotencyKeySetResponse :execrows
-- Stores the response for an execution that still runs. No row: the execution has ended.
WITH ongoing AS MATERIALIZED (
    SELECT e.id FROM executions e
    WHERE e.tenant_id = @tenant_id AND e.id = @execution_id AND e.status IN ('pending', 'running')
    FOR SHARE
)
UPDATE idempotency_keys k SET status = @status::smallint, answer = @answer::json
FROM ongoing
WHERE k.tenant_id = @tenant_id AND k.client_id = @client_id AND k.key = @key AND k.execution_id = ongoing.id AND k.answer IS NULL;

-- name: IdempotencyKeySetResult :exec
-- Stores the result of an execution for the keys whose response contains it.
UPDATE idempotency_keys k SET result = p.result
FROM execution_payloads p
WHERE k.tenant_id = @tenant_id AND k.execution_id = @execution_id::uuid AND k.answer IS NULL AND k.result IS NULL
    AND p.execution_id = @execution_id::uuid;

-- name: SysIdempotencyKeyDeleteOld :execrows
-- Deletes some of the keys that are older than the given number of seconds. It skips a
-- key that is acquired at the same time.
DELETE FROM idempotency_keys k
WHERE (k.tenant_id, k.client_id, k.key) IN (
    SELECT o.tenant_id, o.client_id, o.key FROM idempotency_keys o
    WHERE o.created_at < now() - make_interval(secs => @older_than_seconds::float8)
    ORDER BY o.created_at LIMIT @keys_max
    FOR UPDATE SKIP LOCKED);
