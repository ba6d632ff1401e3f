-- The policies of executions restrict what is written and do not say how it is
-- found. As "tenant_id = …" they added a condition that has an index; while a
-- partition has no statistics the planner took it for the better way, and read
-- all executions of a tenant to find a few by their ids.

-- +goose Up
ALTER POLICY update_of_tenant ON executions USING (tenant_id IS NOT DISTINCT FROM current_tenant());
ALTER POLICY delete_of_tenant ON executions USING (tenant_id IS NOT DISTINCT FROM current_tenant());

-- +goose Down
ALTER POLICY update_of_tenant ON executions USING (tenant_id = current_tenant());
ALTER POLICY delete_of_tenant ON executions USING (tenant_id = current_tenant());
