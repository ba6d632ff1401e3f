-- name: RefreshTokenInsertFamily :exec
-- A login begins a family; its first token is inserted with it.
WITH family AS (
    INSERT INTO refresh_token_families (id, tenant_id, client_id, expires_at)
    VALUES (@family_id, @tenant_id, @client_id, now() + make_interval(secs => @family_seconds))
    RETURNING id, tenant_id
)
INSERT INTO refresh_tokens (token_hash, tenant_id, family_id, expires_at)
SELECT @token_hash, tenant_id, id, now() + make_interval(secs => @idle_seconds) FROM family;
