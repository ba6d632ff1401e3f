-- name: SysRateLimitAcquire :one
-- The subject is a tenant, or a client at the token endpoint.
SELECT admitted::boolean AS admitted, remaining::integer AS remaining, free_in_ms::integer AS free_in_ms
FROM rate_limit_take(@subject::uuid, @category::text, @per_minute::integer, @taking::boolean);

-- name: SysRateLimitDeleteOld :one
-- Deletes some of the counters and hits that had no hit for two windows. It skips locked
-- rows.
WITH quiet AS MATERIALIZED (
    SELECT r.subject, r.category FROM rate_limits r
    WHERE r.last_at < now() - interval '2 minutes'
    LIMIT @part::bigint FOR UPDATE SKIP LOCKED
), old AS MATERIALIZED (
    SELECT h.subject, h.category, h.number FROM quiet q
    CROSS JOIN LATERAL (SELECT * FROM rate_limit_hits x WHERE x.subject = q.subject AND x.category = q.category) AS h
    LIMIT @part::bigint
), hits AS (
    DELETE FROM rate_limit_hits h USING old o WHERE h.subject = o.subject AND h.category = o.category AND h.number = o.number
), counters AS ( -- none of their hits can exist any more
    DELETE FROM rate_limits r USING quiet q
    WHERE r.subject = q.subject AND r.category = q.category AND (SELECT count(*) FROM old) < @part::bigint
)
SELECT ((SELECT count(*) FROM quiet) = @part::bigint OR (SELECT count(*) FROM old) = @part::bigint)::boolean AS has_more;
