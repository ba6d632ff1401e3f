-- name: PackageInsert :exec
INSERT INTO packages (id, tenant_id, kind) VALUES (@id, @tenant_id, @kind);

-- name: PackageListExisting :many
-- Lists those of the named packages that exist, in any order.
SELECT id FROM packages WHERE tenant_id = @tenant_id AND id = ANY(@ids::uuid[]);

-- name: PackageLock :exec
-- Waits for transactions that add files to a package, and lets no other begin.
SELECT FROM packages WHERE tenant_id = @tenant_id AND id = @id FOR UPDATE;

-- name: PackageDelete :exec
-- Deletes a package with its attachments and their bytes.
WITH entries AS (
    DELETE FROM package_attachments pa WHERE pa.tenant_id = @tenant_id AND pa.package_id = @id RETURNING pa.attachment_id
), files AS (
    DELETE FROM attachments a USING entries WHERE a.tenant_id = @tenant_id AND a.id = entries.attachment_id
)
DELETE FROM packages p WHERE p.tenant_id = @tenant_id AND p.id = @id;

-- name: PackageAttachmentInsert :exec
INSERT INTO package_attachments (tenant_id, package_id, position, attachment_id, role)
VALUES (@tenant_id, @package_id, @position, @attachment_id, @role);

-- name: PackageAttachmentSetRows :exec
UPDATE package_attachments SET row_count = @row_count::integer
WHERE tenant_id = @tenant_id AND package_id = @package_id AND position = @position;

-- name: PackageAttachmentList :many
-- Lists the complete attachments of a package, in the order of its files.
SELECT pa.role, pa.row_count, a.id, a.stored_name, a.file_name, a.content_type, a.size, a.sha256, a.created_at, a.stored_at
FROM package_attachments pa JOIN attachments a ON a.tenant_id = pa.tenant_id AND a.id = pa.attachment_id
WHERE pa.tenant_id = @tenant_id AND pa.package_id = @package_id AND a.stored_at IS NOT NULL
ORDER BY pa.position;
