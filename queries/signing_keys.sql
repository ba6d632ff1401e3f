-- name: SysSigningKeyList :many
-- Newest first. A retired key still verifies the tokens it signed: none lives
-- longer than a day.
SELECT id, private_key, retired_at FROM signing_keys
WHERE retired_at IS NULL OR retired_at > now() - interval '25 hours'
ORDER BY created_at DESC, id DESC;

-- name: SysSigningKeyLock :exec
-- Held until the transaction ends: processes that start together make one key.
SELECT pg_advisory_xact_lock(hashtext('tranche signing_keys'));

-- name: SysSigningKeyInsert :exec
INSERT INTO signing_keys (id, private_key) VALUES (@id, @private_key);
