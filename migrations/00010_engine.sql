-- What the workflow engine needs beside the executions: the secrets that
-- requests carry, and the signals that waiting tasks take.

-- +goose Up
-- A value is sealed under the master key, which is not in the database, and for
-- its row: tenant and name. It may be sent to these hosts and no others.
CREATE TABLE secrets (
    tenant_id  uuid        NOT NULL REFERENCES tenants (id),
    name       text        NOT NULL,
    value      bytea       NOT NULL,
    hosts      text[]      NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, name)
);

-- A wait takes one signal in one attempt of its execution. task_path names the
-- wait within the execution: approve, each[3].approve. Executions are
-- partitioned and dropped by month, so nothing refers to them; signals of ended
-- executions are swept.
CREATE TABLE execution_signals (
    tenant_id    uuid        NOT NULL REFERENCES tenants (id),
    execution_id uuid        NOT NULL,
    attempt      integer     NOT NULL,
    task_path    text        NOT NULL,
    payload      json        NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, execution_id, attempt, task_path)
);
CREATE INDEX execution_signals_created ON execution_signals (created_at);

-- +goose Down
DROP TABLE execution_signals;
DROP TABLE secrets;
