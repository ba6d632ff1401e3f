-- name: SysTenantInsert :exec
INSERT INTO tenants (id, slug) VALUES (@id, @slug);

-- name: SysTenantGetBySlug :one
SELECT id, slug, created_at, revoked_at FROM tenants WHERE slug = @slug;

-- name: SysTenantList :many
SELECT id, slug, created_at, revoked_at FROM tenants ORDER BY slug;

-- name: TenantLimitSet :exec
-- A NULL per_minute means unlimited.
INSERT INTO tenant_limits (tenant_id, category, per_minute)
VALUES (@tenant_id, @category, sqlc.narg(per_minute))
ON CONFLICT (tenant_id, category) DO UPDATE SET per_minute = excluded.per_minute;

-- name: TenantLimitList :many
SELECT category, per_minute FROM tenant_limits WHERE tenant_id = @tenant_id;

-- name: SysTenantLimitListSet :many
-- Lists the limits that were set within the given number of seconds.
SELECT tenant_id, category, per_minute FROM tenant_limits WHERE set_at > now() - make_interval(secs => @seconds::float8);

-- name: SysTenantRevoke :execrows
UPDATE tenants SET revoked_at = now() WHERE id = @id AND revoked_at IS NULL;
