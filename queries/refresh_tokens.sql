-- name: RefreshTokenInsertFamily :exec
-- Inserts a family of refresh tokens and its first token, for a login. It deletes
-- families of the client whose last access tokens have expired.
WITH family AS (
    INSERT INTO refresh_token_families (id, tenant_id, client_id, expires_at)
    VALUES (@family_id, @tenant_id, @client_id, now() + make_interval(secs => @family_seconds))
    RETURNING id, tenant_id
), ended AS (
    SELECT e.id FROM refresh_token_families e
    WHERE e.tenant_id = @tenant_id AND e.client_id = @client_id AND e.expires_at < now() - interval '2 days'
    ORDER BY e.expires_at LIMIT 100
), ended_tokens AS (
    DELETE FROM refresh_tokens r WHERE r.tenant_id = @tenant_id AND r.family_id IN (SELECT id FROM ended)
), ended_families AS (
    DELETE FROM refresh_token_families f WHERE f.tenant_id = @tenant_id AND f.id IN (SELECT id FROM ended)
)
INSERT INTO refresh_tokens (token_hash, tenant_id, family_id, expires_at)
SELECT @token_hash, tenant_id, id, now() + make_interval(secs => @idle_seconds) FROM family;

-- name: SysRefreshTokenGetForUpdate :one
-- A refresh names only the token. Refreshes with the same token are serialized. A used
-- token has no idle timeout: a caller that presents it again has lost the response or
-- has stolen the token.
SELECT r.tenant_id, t.slug AS tenant_slug, f.client_id, r.family_id, c.scopes, c.is_sandbox,
       (f.revoked_at IS NOT NULL OR c.revoked_at IS NOT NULL OR t.revoked_at IS NOT NULL
        OR f.expires_at <= clock_timestamp() OR (r.used_at IS NULL AND r.expires_at <= clock_timestamp()))::boolean AS is_over,
       (r.used_at IS NOT NULL)::boolean AS is_used,
       (r.used_at IS NOT NULL AND r.used_at <= clock_timestamp() - make_interval(secs => @grace_seconds::float8))::boolean AS is_reused
FROM refresh_tokens r
JOIN refresh_token_families f ON f.tenant_id = r.tenant_id AND f.id = r.family_id
JOIN clients c ON c.tenant_id = f.tenant_id AND c.id = f.client_id
JOIN tenants t ON t.id = r.tenant_id
WHERE r.token_hash = @token_hash
FOR UPDATE OF r;

-- name: RefreshTokenRotate :exec
-- Marks a token used and inserts its successor, which expires no later than the family.
WITH used AS (
    UPDATE refresh_tokens r SET used_at = clock_timestamp()
    WHERE r.tenant_id = @tenant_id AND r.token_hash = @token_hash
    RETURNING r.tenant_id, r.family_id
)
INSERT INTO refresh_tokens (token_hash, tenant_id, family_id, expires_at)
SELECT @successor_hash, u.tenant_id, u.family_id,
       least(clock_timestamp() + make_interval(secs => @idle_seconds::float8), f.expires_at)
FROM used u JOIN refresh_token_families f ON f.tenant_id = u.tenant_id AND f.id = u.family_id;

-- name: RefreshTokenExists :one
SELECT EXISTS (SELECT 1 FROM refresh_tokens
               WHERE tenant_id = @tenant_id AND family_id = @family_id AND token_hash = @token_hash);

-- name: RefreshTokenFamilyRevoke :execrows
UPDATE refresh_token_families SET revoked_at = clock_timestamp()
WHERE tenant_id = @tenant_id AND id = @id AND revoked_at IS NULL;
