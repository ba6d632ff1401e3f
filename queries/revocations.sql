-- name: SysRevocationListRecent :many
-- Lists the clients, tenants and families of refresh tokens that were revoked within the
-- given number of seconds.
SELECT c.id, c.revoked_at::timestamptz AS revoked_at FROM clients c WHERE c.revoked_at > now() - make_interval(secs => @seconds::float8)
UNION ALL
SELECT t.id, t.revoked_at::timestamptz FROM tenants t WHERE t.revoked_at > now() - make_interval(secs => @seconds::float8)
UNION ALL
SELECT f.id, f.revoked_at::timestamptz FROM refresh_token_families f WHERE f.revoked_at > now() - make_interval(secs => @seconds::float8);
