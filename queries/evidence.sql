-- The chains of evidence. Records are appended, read and verified, and never changed.

-- name: EvidenceHeadAdvance :one
-- Acquires the next position of a tenant's chain and locks the chain until the
-- transaction ends. It returns the hash of the previous record, which is empty for the
-- first record.
INSERT INTO evidence_heads (tenant_id, count, hash, seal) VALUES (@tenant_id, 1, '', '')
ON CONFLICT (tenant_id) DO UPDATE SET count = evidence_heads.count + 1
RETURNING count, hash, clock_timestamp()::timestamptz AS recorded_at;

-- name: EvidenceAppend :exec
-- Appends a record at the acquired position and moves the end of the chain.
WITH record AS (
    INSERT INTO evidence_records (tenant_id, position, authorization_id, kind, recorded_at, commitment, previous_hash, hash)
    VALUES (@tenant_id, @position, @authorization_id, @kind, @recorded_at, @commitment, @previous_hash, @hash)
), head AS (
    UPDATE evidence_heads SET hash = @hash, seal = @seal WHERE tenant_id = @tenant_id
)
INSERT INTO evidence_contents (tenant_id, position, authorization_id, salt, content)
VALUES (@tenant_id, @position, @authorization_id, @salt, @content);

-- name: EvidenceContentsDelete :exec
-- Deletes the contents and salts of the evidence of an authorization.
DELETE FROM evidence_contents WHERE tenant_id = @tenant_id AND authorization_id = @authorization_id;

-- name: EvidenceListOfAuthorization :many
SELECT r.position, r.authorization_id, r.kind, r.recorded_at, r.commitment, r.previous_hash, r.hash, c.salt, c.content,
       coalesce(c.authorization_id <> r.authorization_id, false)::boolean AS is_misplaced
FROM evidence_records r LEFT JOIN evidence_contents c ON c.tenant_id = r.tenant_id AND c.position = r.position
WHERE r.tenant_id = @tenant_id AND r.authorization_id = @authorization_id
ORDER BY r.position;

-- name: EvidenceListAfter :many
SELECT r.position, r.authorization_id, r.kind, r.recorded_at, r.commitment, r.previous_hash, r.hash, c.salt, c.content,
       coalesce(c.authorization_id <> r.authorization_id, false)::boolean AS is_misplaced
FROM evidence_records r LEFT JOIN evidence_contents c ON c.tenant_id = r.tenant_id AND c.position = r.position
WHERE r.tenant_id = @tenant_id AND r.position > @after
ORDER BY r.position
LIMIT @row_limit;

-- name: EvidenceHeadGet :one
SELECT count, hash, seal FROM evidence_heads WHERE tenant_id = @tenant_id;

-- name: EvidenceGetUnrecorded :one
-- Returns the first authorization without a record of its creation, its signature or its
-- deletion.
SELECT a.id, (CASE WHEN created.found IS NULL THEN 'authorization_created'
    WHEN a.authorized_at IS NOT NULL AND signed.found IS NULL THEN 'signed' ELSE 'authorization_deleted' END)::text AS kind
FROM authorizations a
LEFT JOIN LATERAL (SELECT true AS found FROM evidence_records r
    WHERE r.tenant_id = a.tenant_id AND r.authorization_id = a.id AND r.kind = 'authorization_created' LIMIT 1) AS created ON true
LEFT JOIN LATERAL (SELECT true AS found FROM evidence_records r
    WHERE r.tenant_id = a.tenant_id AND r.authorization_id = a.id AND r.kind = 'signed' LIMIT 1) AS signed ON true
LEFT JOIN LATERAL (SELECT true AS found FROM evidence_records r
    WHERE r.tenant_id = a.tenant_id AND r.authorization_id = a.id AND r.kind = 'authorization_deleted' LIMIT 1) AS deleted ON true
WHERE a.tenant_id = @tenant_id AND (created.found IS NULL OR a.authorized_at IS NOT NULL AND signed.found IS NULL
    OR a.deleted_at IS NOT NULL AND deleted.found IS NULL)
ORDER BY a.id
LIMIT 1;

-- name: EvidenceGetContradicted :one
-- Returns the first record that contradicts an authorization. It compares the last
-- record of the contents, of the signature and of the deletion. An authorization without
-- a row contradicts every record.
SELECT r.position, r.authorization_id, r.kind
FROM evidence_records r
LEFT JOIN evidence_contents c ON c.tenant_id = r.tenant_id AND c.position = r.position
LEFT JOIN authorizations a ON a.tenant_id = r.tenant_id AND a.id = r.authorization_id
CROSS JOIN LATERAL (SELECT c.content::jsonb AS content) AS said
CROSS JOIN LATERAL (SELECT jsonb_strip_nulls(jsonb_build_object(
        'key', a.key, 'label', a.label, 'identityKey', a.identity_key, 'identityValue', a.identity_value,
        'formId', a.form_id, 'borrowerId', a.borrower_id, 'ipAddress', a.ip_address, 'policyLink', a.policy_link,
        'externalId', a.external_id, 'tags', a.tags,
        'expiresAt', to_char(a.expires_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))) AS content,
    to_char(a.authorized_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') AS authorized_at) AS held
WHERE r.tenant_id = @tenant_id AND CASE r.kind
    WHEN 'authorization_deleted' THEN a.deleted_at IS NULL
    WHEN 'signed' THEN a.id IS NULL OR a.deleted_at IS NULL AND (said.content -> 'authorization' IS DISTINCT FROM held.content
        OR said.content ->> 'authorizedAt' IS DISTINCT FROM held.authorized_at)
    WHEN 'authorization_created' THEN a.id IS NULL OR a.deleted_at IS NULL AND said.content -> 'authorization' IS DISTINCT FROM held.content
        AND NOT EXISTS (SELECT FROM evidence_records later WHERE later.tenant_id = r.tenant_id
            AND later.authorization_id = r.authorization_id AND later.kind IN ('authorization_changed', 'signed'))
    WHEN 'authorization_changed' THEN a.deleted_at IS NULL AND said.content -> 'authorization' IS DISTINCT FROM held.content
        AND NOT EXISTS (SELECT FROM evidence_records later WHERE later.tenant_id = r.tenant_id AND later.position > r.position
            AND later.authorization_id = r.authorization_id AND later.kind IN ('authorization_changed', 'signed'))
    ELSE false
END
ORDER BY r.position
LIMIT 1;

-- name: SysEvidenceHeadListForUpdate :many
SELECT tenant_id, seal FROM evidence_heads ORDER BY tenant_id FOR UPDATE;

-- name: EvidenceHeadReseal :exec
UPDATE evidence_heads SET seal = @seal WHERE tenant_id = @tenant_id;
