-- The chains of evidence: appended to, read, verified; never changed.

-- name: EvidenceHeadAdvance :one
-- Takes the next position of a tenant's chain and holds the chain until the
-- transaction ends. The hash is that of the record before; empty for none.
INSERT INTO evidence_heads (tenant_id, count, hash, seal) VALUES (@tenant_id, 1, '', '')
ON CONFLICT (tenant_id) DO UPDATE SET count = evidence_heads.count + 1
RETURNING count, hash, clock_timestamp()::timestamptz AS recorded_at;

-- name: EvidenceInsert :exec
WITH record AS (
    INSERT INTO evidence_records (tenant_id, position, authorization_id, kind, recorded_at, commitment, previous_hash, hash)
    VALUES (@tenant_id, @position, @authorization_id, @kind, @recorded_at, @commitment, @previous_hash, @hash)
)
INSERT INTO evidence_contents (tenant_id, position, authorization_id, salt, content)
VALUES (@tenant_id, @position, @authorization_id, @salt, @content);

-- name: EvidenceHeadSet :exec
UPDATE evidence_heads SET hash = @hash, seal = @seal WHERE tenant_id = @tenant_id;

-- name: EvidenceContentsDelete :exec
-- Removes what the evidence of an authorization says, and the salts with it.
DELETE FROM evidence_contents WHERE tenant_id = @tenant_id AND authorization_id = @authorization_id;

-- name: EvidenceListOfAuthorization :many
SELECT r.position, r.authorization_id, r.kind, r.recorded_at, r.commitment, r.previous_hash, r.hash, c.salt, c.content
FROM evidence_records r LEFT JOIN evidence_contents c ON c.tenant_id = r.tenant_id AND c.position = r.position
WHERE r.tenant_id = @tenant_id AND r.authorization_id = @authorization_id
ORDER BY r.position;

-- name: EvidenceListAfter :many
SELECT r.position, r.authorization_id, r.kind, r.recorded_at, r.commitment, r.previous_hash, r.hash, c.salt, c.content
FROM evidence_records r LEFT JOIN evidence_contents c ON c.tenant_id = r.tenant_id AND c.position = r.position
WHERE r.tenant_id = @tenant_id AND r.position > @after
ORDER BY r.position
LIMIT @row_limit;

-- name: EvidenceHeadGet :one
SELECT count, hash, seal FROM evidence_heads WHERE tenant_id = @tenant_id;

-- name: EvidenceGetUnrecorded :one
-- The first authorization that has no record of its creation, or is signed and
-- has none of its signature.
SELECT a.id, (CASE WHEN created.found IS NULL THEN 'authorization_created' ELSE 'signed' END)::text AS kind
FROM authorizations a
LEFT JOIN LATERAL (SELECT true AS found FROM evidence_records r
    WHERE r.tenant_id = a.tenant_id AND r.authorization_id = a.id AND r.kind = 'authorization_created' LIMIT 1) AS created ON true
LEFT JOIN LATERAL (SELECT true AS found FROM evidence_records r
    WHERE r.tenant_id = a.tenant_id AND r.authorization_id = a.id AND r.kind = 'signed' LIMIT 1) AS signed ON true
WHERE a.tenant_id = @tenant_id AND (created.found IS NULL OR a.authorized_at IS NOT NULL AND signed.found IS NULL)
ORDER BY a.id
LIMIT 1;
