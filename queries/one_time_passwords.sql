-- The one-time passwords that sign authorizations.

-- name: SysOTPContactLock :exec
-- Serializes requests for codes to one contact.
SELECT pg_advisory_xact_lock(hashtextextended(concat(@tenant_id::uuid, encode(@contact_hash::bytea, 'hex')), 0));

-- name: OTPListRecent :many
-- Lists the times of the last day at which codes were sent to a contact or requested for
-- an authorization, newest first, and the current time.
SELECT created_at, (contact_hash = ANY(@contact_hashes::bytea[]))::boolean AS same_contact,
    (authorization_id = @authorization_id)::boolean AS same_authorization, now()::timestamptz AS asked_at
FROM one_time_passwords
WHERE tenant_id = @tenant_id AND (contact_hash = ANY(@contact_hashes::bytea[]) OR authorization_id = @authorization_id)
    AND created_at > now() - interval '1 day'
ORDER BY created_at DESC
LIMIT 100;

-- name: OTPCount :one
SELECT count(*) FROM one_time_passwords WHERE tenant_id = @tenant_id AND authorization_id = @authorization_id;

-- name: OTPSupersede :one
-- Ends the open password. No row: there is none.
UPDATE one_time_passwords SET superseded_at = now(), message = NULL
WHERE tenant_id = @tenant_id AND authorization_id = @authorization_id AND superseded_at IS NULL AND verified_at IS NULL
RETURNING id;

-- name: OTPInsert :one
INSERT INTO one_time_passwords (
    id, tenant_id, authorization_id, contact_method, contact_masked, contact_hash, code_hash, message,
    template_id, template_hash, client_id, attempts_max, expires_at
) VALUES (
    @id, @tenant_id, @authorization_id, @contact_method, @contact_masked, @contact_hash, @code_hash, @message,
    @template_id, @template_hash, @client_id, @attempts_max, now() + make_interval(secs => @expires_in_seconds::float8)
)
RETURNING expires_at;

-- name: OTPAttempt :one
-- Counts an attempt if the password is open. The caller commits it before it compares
-- the code.
UPDATE one_time_passwords o SET attempts = o.attempts + 1
FROM authorizations a
WHERE o.tenant_id = @tenant_id AND o.id = @id AND o.authorization_id = @authorization_id
    AND o.superseded_at IS NULL AND o.verified_at IS NULL AND o.attempts < o.attempts_max AND o.expires_at > now()
    AND a.tenant_id = o.tenant_id AND a.id = o.authorization_id
    AND a.deleted_at IS NULL AND a.authorized_at IS NULL AND a.expires_at > now()
RETURNING o.attempts, o.attempts_max, o.code_hash;

-- name: OTPGetState :one
-- Returns the reasons for which a password may not be open.
SELECT o.attempts, o.attempts_max, o.superseded_at, o.verified_at,
    (a.expires_at <= now())::boolean AS is_authorization_expired, a.authorized_at
FROM one_time_passwords o JOIN authorizations a ON a.tenant_id = o.tenant_id AND a.id = o.authorization_id
WHERE o.tenant_id = @tenant_id AND o.id = @id AND o.authorization_id = @authorization_id AND a.deleted_at IS NULL;

-- name: OTPVerify :one
UPDATE one_time_passwords SET verified_at = now(), message = NULL
WHERE tenant_id = @tenant_id AND id = @id AND superseded_at IS NULL AND verified_at IS NULL AND expires_at > now()
RETURNING contact_method, contact_masked, contact_hash, template_hash, sent_at, provider, provider_message_id, attempts;

-- name: OTPGetForDelivery :one
-- Also returns how long the password is still valid, by the clock of the database.
SELECT authorization_id, contact_method, contact_masked, message, extract(epoch FROM expires_at - now())::float8 AS valid_seconds
FROM one_time_passwords
WHERE tenant_id = @tenant_id AND id = @id AND message IS NOT NULL
    AND superseded_at IS NULL AND verified_at IS NULL;

-- name: SysOTPListUnsent :many
-- Lists passwords that expired at least a minute ago and whose message was not sent.
SELECT tenant_id, id, authorization_id, contact_method, contact_masked FROM one_time_passwords
WHERE message IS NOT NULL AND expires_at < now() - interval '1 minute'
ORDER BY expires_at
LIMIT @row_limit;

-- name: OTPSetSent :one
UPDATE one_time_passwords SET sent_at = now(), provider = @provider, provider_message_id = @provider_message_id, message = NULL
WHERE tenant_id = @tenant_id AND id = @id AND sent_at IS NULL
RETURNING now()::timestamptz AS sent_at;

-- name: OTPSetFailed :execrows
UPDATE one_time_passwords SET failed_at = now(), message = NULL
WHERE tenant_id = @tenant_id AND id = @id AND sent_at IS NULL AND failed_at IS NULL;

-- name: OTPErase :exec
UPDATE one_time_passwords SET contact_masked = '', message = NULL, provider_message_id = NULL,
    superseded_at = CASE WHEN verified_at IS NULL THEN coalesce(superseded_at, now()) END
WHERE tenant_id = @tenant_id AND authorization_id = @authorization_id;

-- name: SignatureList :many
SELECT o.id, o.contact_method, o.contact_masked, o.template_id, o.client_id, o.created_at, o.sent_at, o.provider,
    o.provider_message_id, o.attempts, o.verified_at
FROM one_time_passwords o JOIN authorizations a ON a.tenant_id = o.tenant_id AND a.id = o.authorization_id
WHERE o.tenant_id = @tenant_id AND o.authorization_id = @authorization_id AND o.verified_at IS NOT NULL AND a.deleted_at IS NULL;
