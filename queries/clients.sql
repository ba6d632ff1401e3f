-- name: ClientInsert :exec
INSERT INTO clients (id, tenant_id, name, scopes, is_sandbox)
VALUES (@id, @tenant_id, @name, @scopes, @is_sandbox);

-- name: ClientSecretInsert :exec
INSERT INTO client_secrets (id, tenant_id, client_id, secret_hash)
VALUES (@id, @tenant_id, @client_id, @secret_hash);

-- name: SysClientGetForLogin :one
-- A login names only the client. The result contains its tenant.
SELECT c.tenant_id, t.slug AS tenant_slug, c.scopes, c.is_sandbox,
       (c.revoked_at IS NOT NULL OR t.revoked_at IS NOT NULL)::boolean AS is_revoked,
       ARRAY(SELECT s.secret_hash FROM client_secrets s
             WHERE s.client_id = c.id AND s.revoked_at IS NULL)::bytea[] AS secret_hashes
FROM clients c
JOIN tenants t ON t.id = c.tenant_id
WHERE c.id = @id;

-- name: SysClientGet :one
-- Commands name only the client.
SELECT c.id, c.tenant_id, t.slug AS tenant_slug, c.name, c.scopes, c.is_sandbox, c.revoked_at,
       t.revoked_at AS tenant_revoked_at
FROM clients c
JOIN tenants t ON t.id = c.tenant_id
WHERE c.id = @id;

-- name: ClientList :many
SELECT c.id, c.tenant_id, t.slug AS tenant_slug, c.name, c.scopes, c.is_sandbox, c.revoked_at,
       t.revoked_at AS tenant_revoked_at
FROM clients c
JOIN tenants t ON t.id = c.tenant_id
WHERE c.tenant_id = @tenant_id
ORDER BY c.id;

-- name: ClientRevoke :execrows
UPDATE clients SET revoked_at = now() WHERE tenant_id = @tenant_id AND id = @id AND revoked_at IS NULL;

-- name: ClientLock :exec
-- Serializes the rotations of one client's secrets.
SELECT id FROM clients WHERE tenant_id = @tenant_id AND id = @id FOR UPDATE;

-- name: ClientSecretRevokeOlder :exec
-- Revokes all secrets except the newest ones.
UPDATE client_secrets s SET revoked_at = now()
WHERE s.tenant_id = @tenant_id AND s.client_id = @client_id AND s.revoked_at IS NULL
  AND s.id NOT IN (
    SELECT n.id FROM client_secrets n
    WHERE n.tenant_id = @tenant_id AND n.client_id = @client_id AND n.revoked_at IS NULL
    ORDER BY n.id DESC LIMIT @keep::integer);
