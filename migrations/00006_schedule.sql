-- Schedules: the two slots of a workflow, and what came of their firings.

-- +goose Up
CREATE TABLE schedules (
    tenant_id       uuid        NOT NULL,
    workflow_id     uuid        NOT NULL,
    slot            text        NOT NULL CHECK (slot IN ('schedule', 'scheduleBatch')),
    cron            text        NOT NULL,
    utc_delta_hours integer     NOT NULL CHECK (utc_delta_hours BETWEEN -12 AND 14),
    -- The time of the next firing. Whoever fires it moves it on in the same
    -- transaction.
    next_run_at     timestamptz NOT NULL,
    -- A sandbox client configured it: its runs are tests.
    is_test         boolean     NOT NULL,
    -- What slot schedule executes on; defaults are filled in.
    input           json,
    -- What slot scheduleBatch starts a batch with (internal/schedule, Batch).
    batch           json,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, workflow_id, slot),
    FOREIGN KEY (tenant_id, workflow_id) REFERENCES workflows (tenant_id, id) ON DELETE CASCADE,
    CHECK ((slot = 'schedule') = (input IS NOT NULL) AND (slot = 'scheduleBatch') = (batch IS NOT NULL))
) WITH (fillfactor = 70);
CREATE INDEX schedules_due ON schedules (next_run_at);

-- The key is what makes a firing happen once: it outlives the schedule, so that
-- one that is deleted and configured again does not repeat a time either.
CREATE TABLE schedule_firings (
    tenant_id    uuid        NOT NULL,
    workflow_id  uuid        NOT NULL,
    slot         text        NOT NULL CHECK (slot IN ('schedule', 'scheduleBatch')),
    scheduled_at timestamptz NOT NULL,
    fired_at     timestamptz NOT NULL,
    status       text        NOT NULL CHECK (status IN ('started', 'skipped', 'failed')),
    reason       text,       -- why no run was started
    execution_id uuid,
    batch_id     uuid,
    PRIMARY KEY (tenant_id, workflow_id, slot, scheduled_at),
    FOREIGN KEY (tenant_id, workflow_id) REFERENCES workflows (tenant_id, id) ON DELETE CASCADE,
    CHECK ((status = 'started') = (num_nonnulls(execution_id, batch_id) = 1) AND (status = 'started') = (reason IS NULL))
);

-- A scheduled batch may repeat the sources of its workflow's newest one.
CREATE INDEX execution_batches_workflow ON execution_batches (tenant_id, workflow_id, id DESC);

-- +goose Down
DROP INDEX execution_batches_workflow;
DROP TABLE schedule_firings, schedules;
