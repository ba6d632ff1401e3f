-- name: SecretPut :one
INSERT INTO secrets (tenant_id, name, value, hosts)
VALUES (@tenant_id, @name, @value, @hosts::text[])
ON CONFLICT (tenant_id, name) DO UPDATE SET value = excluded.value, hosts = excluded.hosts, updated_at = now()
RETURNING name, hosts, created_at, updated_at;

-- name: SecretGet :one
SELECT name, hosts, created_at, updated_at FROM secrets WHERE tenant_id = @tenant_id AND name = @name;

-- name: SecretGetValue :one
SELECT value, hosts, updated_at FROM secrets WHERE tenant_id = @tenant_id AND name = @name;

-- name: SecretCount :one
SELECT count(*) FROM secrets WHERE tenant_id = @tenant_id AND name <> @name;

-- name: SecretDelete :execrows
DELETE FROM secrets WHERE tenant_id = @tenant_id AND name = @name;

-- name: SysSecretListForUpdate :many
SELECT tenant_id, name, value FROM secrets ORDER BY tenant_id, name FOR UPDATE;

-- name: SecretReseal :exec
-- The value is the same, so its time does not change.
UPDATE secrets SET value = @value WHERE tenant_id = @tenant_id AND name = @name;
