-- Row-level security: a connection of the application sees the rows of the
-- tenant that it names (docs/decisions/tenant-isolation.md). The roles exist
-- before this runs, and get their privileges after it (roles.go).

-- +goose Up

-- The tenant that the connection or its transaction names; null, which no row
-- has, where it names none.
CREATE FUNCTION current_tenant() RETURNS uuid
LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT NULLIF(current_setting('tranche.tenant_id', true), '')::uuid
$$;

-- Shows the rows of tables to their tenant and to work that serves all tenants,
-- and to nobody else, their owner included. For every table of tenants: later
-- migrations call it with theirs.
-- +goose StatementBegin
CREATE FUNCTION tenant_rows_protect(VARIADIC tables regclass[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    protected regclass;
BEGIN
    FOREACH protected IN ARRAY tables LOOP
        EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', protected);
        EXECUTE format('ALTER TABLE %s FORCE ROW LEVEL SECURITY', protected);
        EXECUTE format('CREATE POLICY of_tenant ON %s TO tranche_app USING (tenant_id = current_tenant())', protected);
        EXECUTE format('CREATE POLICY of_all ON %s TO tranche_system USING (true)', protected);
    END LOOP;
END $$;
-- +goose StatementEnd

SELECT tenant_rows_protect(
    'clients', 'client_secrets', 'refresh_token_families', 'refresh_tokens',
    'workflows', 'workflow_aliases',
    'execution_payloads', 'execution_signals', 'execution_batches',
    'attachments', 'attachment_uploads', 'packages', 'package_attachments',
    'schedules', 'schedule_firings',
    'authorizations', 'authorization_attachments', 'one_time_passwords',
    'evidence_records', 'evidence_contents', 'evidence_heads', 'message_templates',
    'secrets', 'idempotency_keys', 'audit_events', 'audit_refusals');

-- A piece of a file belongs to whom its upload belongs to, who alone sees that.
ALTER TABLE attachment_chunks ENABLE ROW LEVEL SECURITY;
ALTER TABLE attachment_chunks FORCE ROW LEVEL SECURITY;
CREATE POLICY of_tenant ON attachment_chunks TO tranche_app
    USING (EXISTS (SELECT FROM attachment_uploads u WHERE u.id = upload_id));
CREATE POLICY of_all ON attachment_chunks TO tranche_system USING (true);

-- Executions have no payload. Their lists find tags by an index whose operator
-- PostgreSQL does not use under a policy, so anybody reads, and the tenant writes.
ALTER TABLE executions ENABLE ROW LEVEL SECURITY;
ALTER TABLE executions FORCE ROW LEVEL SECURITY;
CREATE POLICY read_by_all ON executions FOR SELECT TO tranche_app USING (true);
CREATE POLICY insert_of_tenant ON executions FOR INSERT TO tranche_app WITH CHECK (tenant_id = current_tenant());
CREATE POLICY update_of_tenant ON executions FOR UPDATE TO tranche_app USING (tenant_id = current_tenant());
CREATE POLICY delete_of_tenant ON executions FOR DELETE TO tranche_app USING (tenant_id = current_tenant());
CREATE POLICY of_all ON executions TO tranche_system USING (true);

-- Partitions are made and dropped by their owner, for the system alone.
ALTER FUNCTION execution_partitions_make(integer) SECURITY DEFINER SET search_path = public, pg_temp;
ALTER FUNCTION execution_partitions_drop(integer) SECURITY DEFINER SET search_path = public, pg_temp;
REVOKE EXECUTE ON FUNCTION execution_partitions_make(integer), execution_partitions_drop(integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION execution_partitions_make(integer), execution_partitions_drop(integer) TO tranche_system;

-- +goose Down
-- +goose StatementBegin
DO $$
DECLARE
    protected record;
BEGIN
    FOR protected IN SELECT polname AS policy, polrelid::regclass AS name FROM pg_policy LOOP
        EXECUTE format('DROP POLICY %I ON %s', protected.policy, protected.name);
        EXECUTE format('ALTER TABLE %s NO FORCE ROW LEVEL SECURITY', protected.name);
        EXECUTE format('ALTER TABLE %s DISABLE ROW LEVEL SECURITY', protected.name);
    END LOOP;
END $$;
-- +goose StatementEnd
DROP FUNCTION tenant_rows_protect, current_tenant;
ALTER FUNCTION execution_partitions_make(integer) SECURITY INVOKER RESET search_path;
ALTER FUNCTION execution_partitions_drop(integer) SECURITY INVOKER RESET search_path;
GRANT EXECUTE ON FUNCTION execution_partitions_make(integer), execution_partitions_drop(integer) TO PUBLIC;
