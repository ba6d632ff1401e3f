-- What the sweep of files that were announced and never came looks for, and what
-- the removal of a file asks of the packages.

-- +goose Up
CREATE INDEX attachments_announced ON attachments (created_at) WHERE stored_at IS NULL;
CREATE INDEX package_attachments_attachment ON package_attachments (attachment_id);

-- +goose Down
DROP INDEX package_attachments_attachment, attachments_announced;
