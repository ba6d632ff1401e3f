-- What is done to the whole installation, as another signing key, belongs to no
-- tenant.

-- +goose Up
ALTER TABLE audit_events ALTER COLUMN tenant_id DROP NOT NULL;

-- +goose Down
ALTER TABLE audit_events DISABLE TRIGGER insert_only;
DELETE FROM audit_events WHERE tenant_id IS NULL;
ALTER TABLE audit_events ENABLE TRIGGER insert_only;
ALTER TABLE audit_events ALTER COLUMN tenant_id SET NOT NULL;
