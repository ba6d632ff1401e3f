-- name: AuditEventInsert :exec
-- Without a tenant: of the whole installation.
INSERT INTO audit_events (id, tenant_id, actor, action, subject, request_id)
VALUES (@id, sqlc.narg(tenant_id), @actor, @action, @subject, sqlc.narg(request_id));

-- name: AuditEventList :many
-- Oldest first of the newest. The least id that an event of the time can have
-- keeps it from going through all that is older.
SELECT id, at, actor, action, subject, request_id FROM (
    SELECT e.id, e.at, e.actor, e.action, e.subject, e.request_id
    FROM audit_events e
    WHERE e.tenant_id = @tenant_id::uuid AND e.id >= @first_id::uuid AND e.at >= @since AND starts_with(e.action, @action::text)
    ORDER BY e.id DESC LIMIT @count_max
) newest
ORDER BY id;

-- name: SysAuditEventList :many
-- Those of the whole installation, in the same way.
SELECT id, at, actor, action, subject, request_id FROM (
    SELECT e.id, e.at, e.actor, e.action, e.subject, e.request_id
    FROM audit_events e
    WHERE e.tenant_id IS NULL AND e.id >= @first_id::uuid AND e.at >= @since AND starts_with(e.action, @action::text)
    ORDER BY e.id DESC LIMIT @count_max
) newest
ORDER BY id;

-- name: SysDeniedRequestAdd :exec
-- Refusals of a minute are counted by every process; here they meet.
INSERT INTO audit_refusals (minute, tenant_id, client_id, status, reason, count)
VALUES (@minute, sqlc.narg(tenant_id), sqlc.narg(client_id), @status, @reason, @count)
ON CONFLICT (minute, tenant_id, client_id, status, reason) DO UPDATE SET count = audit_refusals.count + excluded.count;

-- name: SysDeniedRequestList :many
-- Those of a tenant, or, without one, of requests that no token assigned to any.
SELECT minute, client_id, status, reason, count FROM (
    SELECT r.minute, r.client_id, r.status, r.reason, r.count
    FROM audit_refusals r
    WHERE (r.tenant_id = sqlc.narg(tenant_id)::uuid OR sqlc.narg(tenant_id)::uuid IS NULL AND r.tenant_id IS NULL) AND r.minute >= @since
    ORDER BY r.minute DESC LIMIT @count_max
) newest
ORDER BY minute, status, reason;

-- name: SysDeniedRequestDeleteOld :execrows
-- Forgets some of the counts of minutes that are over for the given number of seconds.
DELETE FROM audit_refusals r
WHERE r.ctid = ANY(ARRAY(
    SELECT o.ctid FROM audit_refusals o
    WHERE o.minute < now() - make_interval(secs => @older_than_seconds::float8)
    ORDER BY o.minute LIMIT @counts_max
    FOR UPDATE SKIP LOCKED));
