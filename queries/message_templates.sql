-- The message templates of a tenant.

-- name: MessageTemplateGet :one
SELECT id, subject, body, created_at, updated_at FROM message_templates WHERE tenant_id = @tenant_id AND id = @id;

-- name: MessageTemplateSet :one
INSERT INTO message_templates (tenant_id, id, subject, body) VALUES (@tenant_id, @id, @subject, @body)
ON CONFLICT (tenant_id, id) DO UPDATE SET subject = excluded.subject, body = excluded.body, updated_at = now()
RETURNING created_at, updated_at;

-- name: MessageTemplateDelete :execrows
DELETE FROM message_templates WHERE tenant_id = @tenant_id AND id = @id;

-- name: MessageTemplateCount :one
SELECT count(*) FROM message_templates WHERE tenant_id = @tenant_id;
