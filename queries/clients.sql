-- name: ClientInsert :exec
INSERT INTO clients (id, tenant_id, name, scopes, is_sandbox)
VALUES (@id, @tenant_id, @name, @scopes, @is_sandbox);

-- name: ClientSecretInsert :exec
INSERT INTO client_secrets (id, tenant_id, client_id, secret_hash)
VALUES (@id, @tenant_id, @client_id, @secret_hash);

-- name: SysClientGetForLogin :one
-- A login names the client alone; which tenant it is of is the answer.
SELECT c.tenant_id, t.slug AS tenant_slug, c.scopes, c.is_sandbox,
       (c.revoked_at IS NOT NULL OR t.revoked_at IS NOT NULL)::boolean AS is_revoked,
       ARRAY(SELECT s.secret_hash FROM client_secrets s
             WHERE s.client_id = c.id AND s.revoked_at IS NULL)::bytea[] AS secret_hashes
FROM clients c
JOIN tenants t ON t.id = c.tenant_id
WHERE c.id = @id;
