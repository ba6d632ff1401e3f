-- The authorizations of a tenant. Only the queries of the evidence see deleted ones.

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
-- Locks an authorization against changes, signing and deletion until the transaction
-- ends.
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
-- Removes all personal data and keeps the row.
UPDATE authorizations SET
    key = '', label = '', identity_key = '', identity_value = '', form_id = NULL, borrower_id = NULL, ip_address = '',
    policy_link = NULL, external_id = NULL, tags = '{}', search_text = '', updated_at = now(), deleted_at = now()
WHERE tenant_id = @tenant_id AND id = @id;

-- CustomPlan plans the lists and their count. A NULL argument does not filter, and each
-- order is that of an index.

-- name: AuthorizationCount :one
-- Counts the matches up to @count_max. For a search with fewer matches it also returns
-- their ids.
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
-- Lists the newest first.
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
-- Sorts by one field, and by id in the same direction for equal values. NULL comes last.
-- Without a field, or for createdAt, it sorts by id.
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
-- Finds the signed authorization of a key and an identity that expires last. If a
-- borrower is given, the authorization must name the same borrower or none.
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
-- Lists the attachments whose bytes are complete, oldest first.
SELECT f.id, f.tenant_id, f.stored_name, f.file_name, f.content_type, f.size, f.sha256, f.created_at, f.stored_at
FROM authorization_attachments l JOIN attachments f ON f.tenant_id = l.tenant_id AND f.id = l.attachment_id
WHERE l.tenant_id = @tenant_id AND l.authorization_id = @authorization_id AND f.stored_at IS NOT NULL
ORDER BY f.id;

-- name: AuthorizationAttachmentListAll :many
-- Also lists attachments whose bytes have not arrived.
SELECT attachment_id FROM authorization_attachments
WHERE tenant_id = @tenant_id AND authorization_id = @authorization_id;

-- name: AuthorizationAttachmentDeleteUnstored :exec
-- Removes the files whose bytes are not complete. It waits for an upload that is being
-- completed and keeps its file. A later upload finds no file.
DELETE FROM attachments f USING authorization_attachments l
WHERE l.tenant_id = @tenant_id AND l.authorization_id = @authorization_id
    AND f.tenant_id = l.tenant_id AND f.id = l.attachment_id AND f.stored_at IS NULL;

-- name: AuthorizationAttachmentCount :one
SELECT count(*) FROM authorization_attachments WHERE tenant_id = @tenant_id AND authorization_id = @authorization_id;

-- name: AttachmentDelete :exec
-- Also deletes the bytes.
DELETE FROM attachments WHERE tenant_id = @tenant_id AND id = @id;
