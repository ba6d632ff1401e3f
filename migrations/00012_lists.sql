-- The indexes of lists of executions, anew. Whatever is combined with a status or
-- a workflow is counted in one index without reading the table; so are the tags of
-- most executions, and those without tags cost nothing.

-- +goose Up
DROP INDEX executions_workflow, executions_status, executions_tags;
CREATE INDEX executions_status ON executions (tenant_id, status, workflow_id, id DESC) INCLUDE (is_test, batch_id);
CREATE INDEX executions_open ON executions (id) WHERE status IN ('pending', 'running');
-- 8 tags fit into an index's row whatever they are. Rare tags, and those of the
-- executions that have more, are looked up.
CREATE INDEX executions_tagged ON executions (tenant_id, status, workflow_id, id DESC) INCLUDE (is_test, batch_id, tags)
    WHERE cardinality(tags) BETWEEN 1 AND 8;
CREATE INDEX executions_tags ON executions USING gin (tags) WHERE tags <> '{}';
CREATE INDEX executions_many_tags ON executions USING gin (tags) WHERE cardinality(tags) > 8;

-- +goose Down
DROP INDEX executions_status, executions_open, executions_tagged, executions_tags, executions_many_tags;
CREATE INDEX executions_workflow ON executions (tenant_id, workflow_id, id DESC);
CREATE INDEX executions_status ON executions (tenant_id, status, id DESC) WHERE status <> 'completed';
CREATE INDEX executions_tags ON executions USING gin (tags);
