-- What executions cost to write. Ids ascend with time: an index that ascends with
-- them is filled at its end and its pages are full, one that descends splits its
-- first page for ever and is twice as large. Lists, newest first, read backwards.

-- +goose Up
DROP INDEX executions_newest, executions_single, executions_status, executions_tagged;
CREATE INDEX executions_newest ON executions (tenant_id, id);
CREATE INDEX executions_single ON executions (tenant_id, id) WHERE batch_id IS NULL;
CREATE INDEX executions_status ON executions (tenant_id, status, workflow_id, id) INCLUDE (is_test, batch_id);
CREATE INDEX executions_tagged ON executions (tenant_id, status, workflow_id, id) INCLUDE (is_test, batch_id, tags)
    WHERE cardinality(tags) BETWEEN 1 AND 8;

-- The tenant of the connection is found out once for a statement, not for each of
-- the rows that it writes or reads.
ALTER POLICY insert_of_tenant ON executions WITH CHECK (tenant_id = (SELECT current_tenant()));
ALTER POLICY update_of_tenant ON executions USING (tenant_id IS NOT DISTINCT FROM (SELECT current_tenant()));
ALTER POLICY of_tenant ON execution_payloads USING (tenant_id = (SELECT current_tenant()));

-- +goose Down
ALTER POLICY of_tenant ON execution_payloads USING (tenant_id = current_tenant());
ALTER POLICY update_of_tenant ON executions USING (tenant_id IS NOT DISTINCT FROM current_tenant());
ALTER POLICY insert_of_tenant ON executions WITH CHECK (tenant_id = current_tenant());
DROP INDEX executions_newest, executions_single, executions_status, executions_tagged;
CREATE INDEX executions_newest ON executions (tenant_id, id DESC);
CREATE INDEX executions_single ON executions (tenant_id, id DESC) WHERE batch_id IS NULL;
CREATE INDEX executions_status ON executions (tenant_id, status, workflow_id, id DESC) INCLUDE (is_test, batch_id);
CREATE INDEX executions_tagged ON executions (tenant_id, status, workflow_id, id DESC) INCLUDE (is_test, batch_id, tags)
    WHERE cardinality(tags) BETWEEN 1 AND 8;
