-- name: AuditEventInsert :exec
-- Without a tenant, the event concerns the whole installation.
INSERT INTO audit_events (id, tenant_id, actor, action, subject, request_id)
VALUES (@id, sqlc.narg(tenant_id), @actor, @action, @subject, sqlc.narg(request_id));

-- name: AuditEventList :many
-- Lists the newest events, oldest first. The lowest id that an event of the time can have
-- keeps the scan away from older events.
SELECT id, at, actor, action, subject, request_id FROM (
    SELECT e.id, e.at, e.actor, e.action, e.subject, e.request_id
    FROM audit_events e
    WHERE e.tenant_id = @tenant_id::uuid AND e.id >= @first_id::uuid AND e.at >= @since AND starts_with(e.action, @action::text)
    ORDER BY e.id DESC LIMIT @count_max
) newest
ORDER BY id;

-- name: SysAuditEventList :many
-- Lists the events of the whole installation.
SELECT id, at, actor, action, subject, request_id FROM (
    SELECT e.id, e.at, e.actor, e.action, e.subject, e.request_id
    FROM audit_events e
    WHERE e.tenant_id IS NULL AND e.id >= @first_id::uuid AND e.at >= @since AND starts_with(e.action, @action::text)
    ORDER BY e.id DESC LIMIT @count_max
) newest
ORDER BY id;

-- name: SysDeniedRequestAdd :exec
-- Adds the count of one process to the sum of all processes.
INSERT INTO audit_refusals (minute, tenant_id, client_id, status, reason, count)
VALUES (@minute, sqlc.narg(tenant_id), sqlc.narg(client_id), @status, @reason, @count)
ON CONFLICT (minute, tenant_id, client_id, status, reason) DO UPDATE SET count = audit_refusals.count + excluded.count;

-- name: SysDeniedRequestList :many
-- Lists the counts of a tenant or, without one, of requests without a tenant.
SELECT minute, client_id, status, reason, count FROM (
    SELECT r.minute, r.client_id, r.status, r.reason, r.count
    FROM audit_refusals r
    WHERE (r.tenant_id = sqlc.narg(tenant_id)::uuid OR sqlc.narg(tenant_id)::uuid IS NULL AND r.tenant_id IS NULL) AND r.minute >= @since
    ORDER BY r.minute DESC LIMIT @count_max
) newest
ORDER BY minute, status, reason;

-- name: SysDeniedRequestDeleteOld :execrows
-- Deletes some of the counts that are older than the given number of seconds.
DELETE FROM audit_refusals r
WHERE r.ctid = ANY(ARRAY(
    SELECT o.ctid FROM audit_refusals o
    WHERE o.minute < now() - make_interval(secs => @older_than_seconds::float8)
    ORDER BY o.minute LIMIT @counts_max
    FOR UPDATE SKIP LOCKED));
