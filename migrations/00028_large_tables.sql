-- What is read of tables that have become large.

-- +goose Up
-- The orders and filters of the list of authorizations, of which a tenant may have
-- millions.
CREATE INDEX authorizations_key ON authorizations (tenant_id, key, id) WHERE deleted_at IS NULL;
CREATE INDEX authorizations_label ON authorizations (tenant_id, label, id) WHERE deleted_at IS NULL;
CREATE INDEX authorizations_updated ON authorizations (tenant_id, updated_at, id) WHERE deleted_at IS NULL;
CREATE INDEX authorizations_expires ON authorizations (tenant_id, expires_at, id) WHERE deleted_at IS NULL;
-- Those that are not signed come last both ways.
CREATE INDEX authorizations_signed_oldest ON authorizations (tenant_id, authorized_at, id) WHERE deleted_at IS NULL;
CREATE INDEX authorizations_signed_newest ON authorizations (tenant_id, authorized_at DESC NULLS LAST, id DESC) WHERE deleted_at IS NULL;

-- What is asked with each look at the figures: how many batches are open.
CREATE INDEX execution_batches_open ON execution_batches (status)
    WHERE status NOT IN ('complete', 'cancelled', 'pre_processing_failed', 'post_processing_failed');

-- Every process asks every two seconds which limits have been set lately. It comes last,
-- because from here on nobody can ask: requests would be refused while indexes are built.
ALTER TABLE tenant_limits ADD COLUMN set_at timestamptz NOT NULL DEFAULT now();
CREATE INDEX tenant_limits_set ON tenant_limits (set_at);
-- Programs of the version before, which set limits beside, know nothing of it.
-- +goose StatementBegin
CREATE FUNCTION tenant_limits_note_set() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.set_at := now();
    RETURN NEW;
END $$;
-- +goose StatementEnd
CREATE TRIGGER note_set BEFORE UPDATE OF per_minute ON tenant_limits
FOR EACH ROW EXECUTE FUNCTION tenant_limits_note_set();

-- +goose Down
DROP INDEX execution_batches_open;
DROP INDEX authorizations_key, authorizations_label, authorizations_updated, authorizations_expires,
    authorizations_signed_oldest, authorizations_signed_newest;
DROP TRIGGER note_set ON tenant_limits;
DROP FUNCTION tenant_limits_note_set;
ALTER TABLE tenant_limits DROP COLUMN set_at;
