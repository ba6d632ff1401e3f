-- name: SysSigningKeyList :many
-- Lists the newest first. A retired key still verifies the tokens that it signed; no
-- token lives longer than a day. Clients that cache the published keys may not know a
-- new key yet.
SELECT id, private_key,
       (retired_at IS NULL OR retired_at > clock_timestamp())::boolean AS is_live,
       (created_at <= clock_timestamp() - make_interval(secs => @published_seconds::float8))::boolean AS is_published
FROM signing_keys
WHERE retired_at IS NULL OR retired_at > now() - interval '25 hours'
ORDER BY created_at DESC, id DESC;

-- name: SysSigningKeyLock :exec
-- Processes that start at the same time create one key. The lock lasts until the
-- transaction ends.
SELECT pg_advisory_xact_lock(hashtext('tranche signing_keys'));

-- name: SysSigningKeyInsert :exec
INSERT INTO signing_keys (id, private_key) VALUES (@id, @private_key);

-- name: SysSigningKeyRetireOthers :exec
-- Lets every other key sign for the given number of seconds and verify for a day after
-- that.
UPDATE signing_keys SET retired_at = clock_timestamp() + make_interval(secs => @seconds::float8)
WHERE id <> @id AND (retired_at IS NULL OR retired_at > clock_timestamp() + make_interval(secs => @seconds::float8));

-- name: SysSigningKeyWithdrawOthers :exec
-- Lets no other key verify tokens any more.
DELETE FROM signing_keys WHERE id <> @id;

-- name: SysSigningKeyListForUpdate :many
-- Lists the keys of SysSigningKeyList.
SELECT id, private_key FROM signing_keys
WHERE retired_at IS NULL OR retired_at > now() - interval '25 hours'
ORDER BY id
FOR UPDATE;

-- name: SysSigningKeyReseal :exec
UPDATE signing_keys SET private_key = @private_key WHERE id = @id;
