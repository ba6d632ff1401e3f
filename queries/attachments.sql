-- name: AttachmentInsert :one
INSERT INTO attachments (id, tenant_id, stored_name, file_name, content_type)
VALUES (@id, @tenant_id, @stored_name, @file_name, @content_type)
RETURNING created_at;

-- name: AttachmentGet :one
SELECT id, tenant_id, stored_name, file_name, content_type, size, sha256, created_at, stored_at
FROM attachments WHERE tenant_id = @tenant_id AND id = @id;

-- name: AttachmentListStored :many
-- Lists those of the named attachments whose bytes are complete, in any order.
SELECT id, tenant_id, stored_name, file_name, content_type, size, sha256, created_at, stored_at
FROM attachments
WHERE tenant_id = @tenant_id AND stored_name = ANY(@stored_names::text[]) AND stored_at IS NOT NULL;

-- name: AttachmentUploadInsert :execrows
-- No row: the attachment was removed in the meantime.
INSERT INTO attachment_uploads (id, tenant_id, attachment_id, chunk_bytes)
SELECT @id::uuid, a.tenant_id, a.id, @chunk_bytes::integer FROM attachments a WHERE a.tenant_id = @tenant_id AND a.id = @attachment_id
FOR KEY SHARE;

-- name: AttachmentUploadComplete :execrows
-- Makes the bytes of an upload those of the attachment. No row: another upload was
-- first.
WITH stored AS (
    UPDATE attachments a SET size = @size::bigint, sha256 = @sha256::bytea, stored_at = now()
    WHERE a.tenant_id = @tenant_id AND a.id = @attachment_id AND a.stored_at IS NULL
    RETURNING a.id
)
UPDATE attachment_uploads u SET completed_at = now()
FROM stored WHERE u.tenant_id = @tenant_id AND u.id = @upload_id AND u.attachment_id = stored.id;

-- name: AttachmentUploadDelete :exec
DELETE FROM attachment_uploads WHERE tenant_id = @tenant_id AND id = @id AND completed_at IS NULL;

-- name: SysAttachmentUploadDeleteAbandoned :execrows
-- Removes some of the uploads that never became complete. It skips an upload that is
-- completed at the same time.
DELETE FROM attachment_uploads u
WHERE u.id = ANY(ARRAY(
    SELECT o.id FROM attachment_uploads o
    WHERE o.completed_at IS NULL AND o.created_at < now() - make_interval(secs => @older_than_seconds::float8)
    LIMIT @uploads_max
    FOR UPDATE SKIP LOCKED));

-- name: SysAttachmentDeleteAbandoned :execrows
-- Removes some of the announced files whose bytes never arrived. It keeps files of
-- packages and authorizations. It skips a file whose upload begins at the same time.
DELETE FROM attachments f
WHERE f.id = ANY(ARRAY(
    SELECT a.id FROM attachments a
    WHERE a.stored_at IS NULL AND a.created_at < now() - make_interval(secs => @older_than_seconds::float8)
      AND NOT EXISTS (SELECT FROM package_attachments p WHERE p.attachment_id = a.id)
      AND NOT EXISTS (SELECT FROM authorization_attachments e WHERE e.attachment_id = a.id)
      AND NOT EXISTS (SELECT FROM attachment_uploads u WHERE u.attachment_id = a.id)
    ORDER BY a.created_at LIMIT @files_max
    FOR UPDATE SKIP LOCKED));

-- name: AttachmentUploadGetComplete :one
SELECT id, chunk_bytes FROM attachment_uploads
WHERE tenant_id = @tenant_id AND attachment_id = @attachment_id AND completed_at IS NOT NULL;

-- name: AttachmentChunkInsert :execrows
-- No row: the upload was removed in the meantime.
INSERT INTO attachment_chunks (upload_id, position, data)
SELECT u.id, @position, @data FROM attachment_uploads u WHERE u.tenant_id = @tenant_id AND u.id = @upload_id
FOR KEY SHARE;

-- name: AttachmentChunkGet :one
SELECT c.data FROM attachment_chunks c JOIN attachment_uploads u ON u.id = c.upload_id
WHERE u.tenant_id = @tenant_id AND c.upload_id = @upload_id AND c.position = @position;
