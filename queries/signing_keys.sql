-- name: SysSigningKeyList :many
-- Newest first. A retired key still verifies the tokens it signed: none lives
-- longer than a day. A key that was made just now may be unknown to those who
-- keep the published set.
SELECT id, private_key,
       (retired_at IS NULL OR retired_at > clock_timestamp())::boolean AS is_live,
       (created_at <= clock_timestamp() - make_interval(secs => @published_seconds::float8))::boolean AS is_published
FROM signing_keys
WHERE retired_at IS NULL OR retired_at > now() - interval '25 hours'
ORDER BY created_at DESC, id DESC;

-- name: SysSigningKeyLock :exec
-- Held until the transaction ends: processes that start together make one key.
SELECT pg_advisory_xact_lock(hashtext('tranche signing_keys'));

-- name: SysSigningKeyInsert :exec
INSERT INTO signing_keys (id, private_key) VALUES (@id, @private_key);

-- name: SysSigningKeyRetireOthers :exec
-- Every other key signs for so many seconds more and verifies for a day after.
UPDATE signing_keys SET retired_at = clock_timestamp() + make_interval(secs => @seconds::float8)
WHERE id <> @id AND (retired_at IS NULL OR retired_at > clock_timestamp() + make_interval(secs => @seconds::float8));

-- name: SysSigningKeyWithdrawOthers :exec
-- No other key verifies anything any more.
DELETE FROM signing_keys WHERE id <> @id;

-- name: SysSigningKeyListForUpdate :many
-- Those that SysSigningKeyList returns.
SELECT id, private_key FROM signing_keys
WHERE retired_at IS NULL OR retired_at > now() - interval '25 hours'
ORDER BY id
FOR UPDATE;

-- name: SysSigningKeyReseal :exec
UPDATE signing_keys SET private_key = @private_key WHERE id = @id;
