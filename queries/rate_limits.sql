-- name: SysRateLimitTake :one
-- The subject is a tenant, or a client at the token endpoint.
SELECT admitted::boolean AS admitted, remaining::integer AS remaining, free_in_ms::integer AS free_in_ms
FROM rate_limit_take(@subject::uuid, @category::text, @per_minute::integer, @taking::boolean);

-- name: SysRateLimitSweep :exec
-- Forgets whatever has had no hit for two windows.
WITH quiet AS (
    DELETE FROM rate_limits WHERE last_at < now() - interval '2 minutes' RETURNING subject, category
)
DELETE FROM rate_limit_hits h USING quiet q WHERE h.subject = q.subject AND h.category = q.category;
