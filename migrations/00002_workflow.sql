-- Workflow definitions, versioned by alias.

-- +goose Up

-- The highest version an alias ever had, kept when versions are deleted.
CREATE TABLE workflow_aliases (
    tenant_id      uuid    NOT NULL REFERENCES tenants (id),
    alias          text    NOT NULL,
    latest_version integer NOT NULL CHECK (latest_version > 0),
    PRIMARY KEY (tenant_id, alias)
);

CREATE TABLE workflows (
    id              uuid        PRIMARY KEY,
    tenant_id       uuid        NOT NULL,
    alias           text        NOT NULL,
    version         integer     NOT NULL,
    name            text        NOT NULL,
    description     text        NOT NULL DEFAULT '',
    status          text        NOT NULL CHECK (status IN ('draft', 'active', 'archived')),
    type            text,
    execution_mode  text        CHECK (execution_mode IN ('sync', 'async')),
    timeout_seconds integer,
    -- json, not jsonb: numbers keep the text they were sent with.
    input_schema    json        NOT NULL,
    tasks           json        NOT NULL,
    edges           json        NOT NULL,
    parent_version  integer,
    -- Counts the writes; the ETag of optimistic locking.
    revision        integer     NOT NULL DEFAULT 1,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    published_at    timestamptz,
    archived_at     timestamptz,
    FOREIGN KEY (tenant_id, alias) REFERENCES workflow_aliases (tenant_id, alias),
    UNIQUE (tenant_id, alias, version),
    UNIQUE (tenant_id, id)
);
CREATE UNIQUE INDEX workflows_one_draft ON workflows (tenant_id, alias) WHERE status = 'draft';
CREATE INDEX workflows_newest ON workflows (tenant_id, id DESC);

-- +goose Down
DROP TABLE workflows, workflow_aliases;
