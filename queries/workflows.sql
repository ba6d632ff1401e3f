-- The workflows of a tenant, versioned by alias.

-- name: WorkflowAliasLock :one
-- Creates the alias if it is new, and locks it. One transaction at a time decides about
-- its versions.
INSERT INTO workflow_aliases (tenant_id, alias, latest_version)
VALUES (@tenant_id, @alias, 1)
ON CONFLICT (tenant_id, alias) DO UPDATE SET latest_version = workflow_aliases.latest_version
RETURNING latest_version;

-- name: WorkflowAliasAdvance :one
UPDATE workflow_aliases SET latest_version = latest_version + 1
WHERE tenant_id = @tenant_id AND alias = @alias
RETURNING latest_version;

-- name: WorkflowAliasGetVersions :one
-- Tells whether the alias has a version, and whether one of them is a draft.
SELECT count(*) > 0 AS has_version, count(*) FILTER (WHERE status = 'draft') > 0 AS has_draft
FROM workflows
WHERE tenant_id = @tenant_id AND alias = @alias;

-- name: WorkflowInsert :one
INSERT INTO workflows (
    id, tenant_id, alias, version, name, description, status, type, execution_mode, timeout_seconds,
    input_schema, tasks, edges, parent_version
) VALUES (
    @id, @tenant_id, @alias, @version, @name, @description, 'draft', @type, @execution_mode, @timeout_seconds,
    @input_schema, @tasks, @edges, @parent_version
)
RETURNING id, tenant_id, alias, version, name, description, status, type, execution_mode, timeout_seconds,
    input_schema, tasks, edges, parent_version, revision, created_at, updated_at, published_at, archived_at;

-- name: WorkflowGet :one
SELECT id, tenant_id, alias, version, name, description, status, type, execution_mode, timeout_seconds,
    input_schema, tasks, edges, parent_version, revision, created_at, updated_at, published_at, archived_at
FROM workflows
WHERE tenant_id = @tenant_id AND id = @id;

-- name: WorkflowGetForUpdate :one
SELECT id, tenant_id, alias, version, name, description, status, type, execution_mode, timeout_seconds,
    input_schema, tasks, edges, parent_version, revision, created_at, updated_at, published_at, archived_at
FROM workflows
WHERE tenant_id = @tenant_id AND id = @id
FOR UPDATE;

-- name: WorkflowGetByVersion :one
SELECT id, tenant_id, alias, version, name, description, status, type, execution_mode, timeout_seconds,
    input_schema, tasks, edges, parent_version, revision, created_at, updated_at, published_at, archived_at
FROM workflows
WHERE tenant_id = @tenant_id AND alias = @alias AND version = @version;

-- name: WorkflowLatestActive :one
SELECT version
FROM workflows
WHERE tenant_id = @tenant_id AND alias = @alias AND status = 'active'
ORDER BY version DESC
LIMIT 1;

-- name: WorkflowUpdate :one
UPDATE workflows SET
    name = @name, description = @description, type = @type, execution_mode = @execution_mode,
    timeout_seconds = @timeout_seconds, input_schema = @input_schema, tasks = @tasks, edges = @edges,
    revision = revision + 1, updated_at = now()
WHERE tenant_id = @tenant_id AND id = @id
RETURNING id, tenant_id, alias, version, name, description, status, type, execution_mode, timeout_seconds,
    input_schema, tasks, edges, parent_version, revision, created_at, updated_at, published_at, archived_at;

-- name: WorkflowPublish :one
UPDATE workflows SET status = 'active', published_at = now(), revision = revision + 1, updated_at = now()
WHERE tenant_id = @tenant_id AND id = @id AND status = 'draft'
RETURNING id, tenant_id, alias, version, name, description, status, type, execution_mode, timeout_seconds,
    input_schema, tasks, edges, parent_version, revision, created_at, updated_at, published_at, archived_at;

-- name: WorkflowArchive :one
-- An archived workflow has no schedules.
WITH ended AS (
    DELETE FROM schedules s WHERE s.tenant_id = @tenant_id AND s.workflow_id = @id
)
UPDATE workflows SET status = 'archived', archived_at = now(), revision = revision + 1, updated_at = now()
WHERE workflows.tenant_id = @tenant_id AND workflows.id = @id AND workflows.status = 'active'
RETURNING id, tenant_id, alias, version, name, description, status, type, execution_mode, timeout_seconds,
    input_schema, tasks, edges, parent_version, revision, created_at, updated_at, published_at, archived_at;

-- name: WorkflowDelete :exec
DELETE FROM workflows WHERE tenant_id = @tenant_id AND id = @id;

-- name: WorkflowIsReferenced :one
-- Tells whether an execution or a batch of the workflow exists.
SELECT (EXISTS (SELECT FROM executions e WHERE e.tenant_id = @tenant_id AND e.workflow_id = @workflow_id
        AND e.status IN ('pending', 'running', 'completed', 'failed', 'cancelled', 'timeout')) -- first column of the index
    OR EXISTS (SELECT FROM execution_batches b WHERE b.tenant_id = @tenant_id AND b.workflow_id = @workflow_id))::boolean AS is_referenced;

-- name: WorkflowList :many
-- Lists the newest first. CustomPlan plans it.
SELECT id, tenant_id, alias, version, name, description, status, type, parent_version,
    created_at, updated_at, published_at, archived_at
FROM workflows
WHERE tenant_id = @tenant_id
    AND (sqlc.narg('status')::text IS NULL OR status = sqlc.narg('status'))
    AND (sqlc.narg('search')::text IS NULL
        OR strpos(lower(name), lower(sqlc.narg('search'))) > 0 OR strpos(alias, lower(sqlc.narg('search'))) > 0)
    AND (sqlc.narg('before')::uuid IS NULL OR id < sqlc.narg('before'))
ORDER BY id DESC
LIMIT @row_limit OFFSET @row_offset;

-- name: WorkflowCount :one
-- The count is exact up to @count_max.
SELECT count(*) FROM (
    SELECT FROM workflows
    WHERE tenant_id = @tenant_id
        AND (sqlc.narg('status')::text IS NULL OR status = sqlc.narg('status'))
        AND (sqlc.narg('search')::text IS NULL
            OR strpos(lower(name), lower(sqlc.narg('search'))) > 0 OR strpos(alias, lower(sqlc.narg('search'))) > 0)
    LIMIT @count_max::bigint
) AS matching;

-- name: WorkflowListIDs :many
-- Lists the workflows to which a list of executions is filtered. A NULL argument does
-- not filter. search, in lower case, is a prefix or a word of the alias; "-" and "_"
-- separate words.
SELECT id FROM workflows
WHERE tenant_id = @tenant_id
    AND (sqlc.narg('id')::uuid IS NULL OR id = sqlc.narg('id'))
    AND (sqlc.narg('alias')::text IS NULL OR alias = sqlc.narg('alias'))
    AND (sqlc.narg('version')::integer IS NULL OR version = sqlc.narg('version'))
    AND (sqlc.narg('type')::text IS NULL OR type = sqlc.narg('type'))
    AND (sqlc.narg('search')::text IS NULL OR starts_with(alias, sqlc.narg('search'))
        OR sqlc.narg('search') = ANY (regexp_split_to_array(alias, '[-_]')));
