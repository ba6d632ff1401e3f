-- name: SysTenantInsert :exec
INSERT INTO tenants (id, slug) VALUES (@id, @slug);

-- name: SysTenantGetBySlug :one
SELECT id, slug, created_at, revoked_at FROM tenants WHERE slug = @slug;
