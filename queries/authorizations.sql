-- The authorizations of a tenant. A deleted one is a tombstone that no query
-- but those of the evidence sees.

-- name: AuthorizationInsert :one
INSERT INTO authorizations (
    id, tenant_id, key, label, identity_key, identity_value, form_id, borrower_id, ip_address, policy_link,
    external_id, tags, search_text, expires_at
) VALUES (
    @id, @tenant_id, @key, @label, @identity_key, @identity_value, @form_id, @borrower_id, @ip_address, @policy_link,
    @external_id, @tags, @search_text, coalesce(sqlc.narg('expires_at')::timestamptz, now() + interval '1 year')
)
RETURNING created_at, expires_at;

-- name: AuthorizationGet :one
SELECT a.id, a.key, a.label, a.identity_key, a.identity_value, a.form_id, a.borrower_id, a.ip_address, a.policy_link,
    a.external_id, a.tags, a.expires_at, a.authorized_at, a.created_at, a.updated_at,
    EXISTS (SELECT FROM authorization_attachments l JOIN attachments f ON f.tenant_id = l.tenant_id AND f.id = l.attachment_id
        WHERE l.tenant_id = a.tenant_id AND l.authorization_id = a.id AND f.stored_at IS NOT NULL) AS has_attachments
FROM authorizations a
WHERE a.tenant_id = @tenant_id AND a.id = @id AND a.deleted_at IS NULL;

-- name: AuthorizationLock :one
-- Nobody else changes, signs or deletes it before the transaction ends.
SELECT a.key, a.label, a.identity_key, a.identity_value, a.form_id, a.borrower_id, a.ip_address, a.policy_link,
    a.external_id, a.tags, a.expires_at, a.authorized_at, (a.expires_at <= now())::boolean AS is_expired,
    now()::timestamptz AS asked_at
FROM authorizations a
WHERE a.tenant_id = @tenant_id AND a.id = @id AND a.deleted_at IS NULL
FOR UPDATE;

-- name: AuthorizationUpdate :exec
UPDATE authorizations SET
    label = @label, form_id = @form_id, borrower_id = @borrower_id, policy_link = @policy_link,
    external_id = @external_id, tags = @tags, search_text = @search_text, expires_at = @expires_at, updated_at = now()
WHERE tenant_id = @tenant_id AND id = @id;

-- name: AuthorizationSign :one
UPDATE authorizations SET authorized_at = now(), updated_at = now()
WHERE tenant_id = @tenant_id AND id = @id AND authorized_at IS NULL
RETURNING now()::timestamptz AS authorized_at;

-- name: AuthorizationErase :exec
-- Removes all that is personal and leaves the row.
UPDATE authorizations SET
    key = '', label = '', identity_key = '', identity_value = '', form_id = NULL, borrower_id = NULL, ip_address = '',
    policy_link = NULL, external_id = NULL, tags = '{}', search_text = '', updated_at = now(), deleted_at = now()
WHERE tenant_id = @tenant_id AND id = @id;

-- The lists and their count are planned by CustomPlan: what is absent narrows nothing,
-- and each order is that of an index.

-- name: AuthorizationCount :one
-- How many match, exact up to @count_max, and of a search that fewer match, which.
SELECT count(*) AS total, (CASE WHEN sqlc.narg('search')::text IS NOT NULL AND count(*) < @count_max::bigint THEN array_agg(matching.id) END)::uuid[] AS found
FROM (
    SELECT a.id FROM authorizations a
    WHERE a.tenant_id = @tenant_id AND a.deleted_at IS NULL
        AND (sqlc.narg('borrower_id')::text IS NULL OR a.borrower_id = sqlc.narg('borrower_id'))
        AND (sqlc.narg('key')::text IS NULL OR a.key = sqlc.narg('key'))
        AND (sqlc.narg('search')::text IS NULL OR strpos(a.search_text, sqlc.narg('search')) > 0)
    LIMIT @count_max::bigint
) AS matching;

-- name: AuthorizationListNewest :many
-- Newest first.
SELECT a.id, a.key, a.label, a.identity_key, a.identity_value, a.form_id, a.borrower_id, a.ip_address, a.policy_link,
    a.external_id, a.tags, a.expires_at, a.authorized_at, a.created_at, a.updated_at,
    EXISTS (SELECT FROM authorization_attachments l JOIN attachments f ON f.tenant_id = l.tenant_id AND f.id = l.attachment_id
        WHERE l.tenant_id = a.tenant_id AND l.authorization_id = a.id AND f.stored_at IS NOT NULL) AS has_attachments
FROM authorizations a
WHERE a.tenant_id = @tenant_id AND a.deleted_at IS NULL
    AND (sqlc.narg('borrower_id')::text IS NULL OR a.borrower_id = sqlc.narg('borrower_id'))
    AND (sqlc.narg('key')::text IS NULL OR a.key = sqlc.narg('key'))
    AND (sqlc.narg('search')::text IS NULL OR strpos(a.search_text, sqlc.narg('search')) > 0)
    AND (sqlc.narg('found')::uuid[] IS NULL OR a.id = ANY(sqlc.narg('found')::uuid[]))
    AND (sqlc.narg('before')::uuid IS NULL OR a.id < sqlc.narg('before'))
ORDER BY a.id DESC
LIMIT @row_limit OFFSET @row_offset;

-- name: AuthorizationListSorted :many
-- By one field, ties by id in the same direction; absent values come last. By
-- nothing, as by createdAt, they are in the order of their ids.
SELECT a.id, a.key, a.label, a.identity_key, a.identity_value, a.form_id, a.borrower_id, a.ip_address, a.policy_link,
    a.external_id, a.tags, a.expires_at, a.authorized_at, a.created_at, a.updated_at,
    EXISTS (SELECT FROM authorization_attachments l JOIN attachments f ON f.tenant_id = l.tenant_id AND f.id = l.attachment_id
        WHERE l.tenant_id = a.tenant_id AND l.authorization_id = a.id AND f.stored_at IS NOT NULL) AS has_attachments
FROM authorizations a
CROSS JOIN LATERAL (SELECT
    CASE @sort_by::text WHEN 'updatedAt' THEN a.updated_at WHEN 'expiresAt' THEN a.expires_at END AS moment,
    CASE @sort_by::text WHEN 'authorizedAt' THEN a.authorized_at END AS signed,
    CASE @sort_by::text WHEN 'key' THEN a.key WHEN 'label' THEN a.label END AS name) AS sort
WHERE a.tenant_id = @tenant_id AND a.deleted_at IS NULL
    AND (sqlc.narg('borrower_id')::text IS NULL OR a.borrower_id = sqlc.narg('borrower_id'))
    AND (sqlc.narg('key')::text IS NULL OR a.key = sqlc.narg('key'))
    AND (sqlc.narg('search')::text IS NULL OR strpos(a.search_text, sqlc.narg('search')) > 0)
    AND (sqlc.narg('found')::uuid[] IS NULL OR a.id = ANY(sqlc.narg('found')::uuid[]))
ORDER BY
    CASE WHEN @descending::boolean THEN sort.moment END DESC,
    CASE WHEN NOT @descending::boolean THEN sort.moment END,
    CASE WHEN @descending::boolean THEN sort.signed END DESC NULLS LAST,
    CASE WHEN NOT @descending::boolean THEN sort.signed END,
    CASE WHEN @descending::boolean THEN sort.name END DESC,
    CASE WHEN NOT @descending::boolean THEN sort.name END,
    CASE WHEN @descending::boolean THEN a.id END DESC,
    a.id
LIMIT @row_limit OFFSET @row_offset;

-- name: AuthorizationFindSigned :one
-- The signed authorization of a key and an identity that holds longest. Where a
-- borrower is named it must not be another borrower's; one that names none holds
-- for any.
SELECT id, authorized_at, expires_at FROM authorizations
WHERE tenant_id = @tenant_id AND deleted_at IS NULL AND authorized_at IS NOT NULL AND expires_at > now()
    AND key = @key AND identity_key = @identity_key AND identity_value = @identity_value
    AND (sqlc.narg('borrower_id')::text IS NULL OR borrower_id IS NULL OR borrower_id = sqlc.narg('borrower_id'))
ORDER BY expires_at DESC, id DESC
LIMIT 1;

-- name: AuthorizationAttachmentInsert :exec
INSERT INTO authorization_attachments (attachment_id, tenant_id, authorization_id)
VALUES (@attachment_id, @tenant_id, @authorization_id);

-- name: AuthorizationAttachmentList :many
-- Those whose bytes are complete, oldest first.
SELECT f.id, f.tenant_id, f.stored_name, f.file_name, f.content_type, f.size, f.sha256, f.created_at, f.stored_at
FROM authorization_attachments l JOIN attachments f ON f.tenant_id = l.tenant_id AND f.id = l.attachment_id
WHERE l.tenant_id = @tenant_id AND l.authorization_id = @authorization_id AND f.stored_at IS NOT NULL
ORDER BY f.id;

-- name: AuthorizationAttachmentListAll :many
-- Also those whose bytes have not come.
SELECT attachment_id FROM authorization_attachments
WHERE tenant_id = @tenant_id AND authorization_id = @authorization_id;

-- name: AuthorizationAttachmentDeleteUnstored :exec
-- Withdraws the files whose bytes are not complete. An upload that is becoming
-- complete meanwhile is waited for and stays; one that comes later finds nothing.
DELETE FROM attachments f USING authorization_attachments l
WHERE l.tenant_id = @tenant_id AND l.authorization_id = @authorization_id
    AND f.tenant_id = l.tenant_id AND f.id = l.attachment_id AND f.stored_at IS NULL;

-- name: AuthorizationAttachmentCount :one
SELECT count(*) FROM authorization_attachments WHERE tenant_id = @tenant_id AND authorization_id = @authorization_id;

-- name: AttachmentDelete :exec
-- Takes its bytes with it.
DELETE FROM attachments WHERE tenant_id = @tenant_id AND id = @id;
