-- Executions: a narrow row for lists and filters, and a payload row beside it
-- that lists never touch. Both are partitioned by month of their UUIDv7 id, so
-- that retention is the dropping of partitions.

-- +goose Up
CREATE TABLE executions (
    id               uuid        NOT NULL,
    tenant_id        uuid        NOT NULL,
    workflow_id      uuid        NOT NULL,
    workflow_alias   text        NOT NULL,
    workflow_version integer     NOT NULL,
    workflow_type    text,
    principal_id     text        NOT NULL,
    billable_id      text,
    borrower_id      text,
    tags             text[]      NOT NULL DEFAULT '{}',
    is_test          boolean     NOT NULL DEFAULT false,
    rescore_of       uuid,
    batch_id         uuid,
    item_index       integer,    -- position in the batch, from 0
    row_number       integer,    -- line of the source file's table, header = 1; null for items of the request
    source_file_name text,
    status           text        NOT NULL CHECK (status IN ('pending', 'running', 'completed', 'failed', 'cancelled', 'timeout')),
    is_success       boolean     NOT NULL DEFAULT false,
    -- A completed execution of which a data source failed under onError continue.
    source_failed    boolean     NOT NULL DEFAULT false,
    status_code      integer,
    attempt          integer     NOT NULL DEFAULT 1,
    tasks_completed  integer     NOT NULL DEFAULT 0,
    tasks_failed     integer     NOT NULL DEFAULT 0,
    created_at       timestamptz NOT NULL,
    started_at       timestamptz,
    completed_at     timestamptz,
    -- When the workflow's time limit ends it; set when it starts.
    deadline_at      timestamptz,
    -- Whoever runs the execution holds its lease; every write is fenced by the
    -- token. The lease lasts as long as its process lives.
    lease_token      uuid,
    lease_process_id uuid,
    PRIMARY KEY (id)
) PARTITION BY RANGE (id);
CREATE INDEX executions_newest ON executions (tenant_id, id DESC);
CREATE INDEX executions_workflow ON executions (tenant_id, workflow_id, id DESC);
CREATE INDEX executions_batch ON executions (batch_id, item_index) WHERE batch_id IS NOT NULL;
-- What lists look for among many executions of other kinds: rare statuses,
-- single executions beside the items of batches, and whom or what they are about,
-- by prefix too.
CREATE INDEX executions_status ON executions (tenant_id, status, id DESC) WHERE status <> 'completed';
CREATE INDEX executions_single ON executions (tenant_id, id DESC) WHERE batch_id IS NULL;
CREATE INDEX executions_borrower ON executions (tenant_id, borrower_id COLLATE "C", id DESC) WHERE borrower_id IS NOT NULL;
CREATE INDEX executions_billable ON executions (tenant_id, billable_id COLLATE "C", id DESC) WHERE billable_id IS NOT NULL;
CREATE INDEX executions_tags ON executions USING gin (tags);

CREATE TABLE execution_payloads (
    execution_id uuid NOT NULL,
    tenant_id    uuid NOT NULL,
    -- json, not jsonb: numbers keep their text and payloads are never searched.
    input        json NOT NULL,
    state        json,
    result       json,
    PRIMARY KEY (execution_id)
) PARTITION BY RANGE (execution_id);

-- Makes the partitions of the months from now on that do not exist yet.
-- UUIDv7 begins with 48 bits of Unix milliseconds: a month's bounds are ids.
-- The first partition of a table also takes every older id.
-- +goose StatementBegin
CREATE FUNCTION execution_partitions_make(months_ahead integer) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    parent  text;
    month   timestamp;
    lower   text;
    upper   text;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('execution_partitions_make'));
    FOREACH parent IN ARRAY ARRAY['executions', 'execution_payloads'] LOOP
        FOR i IN 0..months_ahead LOOP
            month := date_trunc('month', now() AT TIME ZONE 'UTC') + make_interval(months => i);
            CONTINUE WHEN to_regclass(format('%I', parent || to_char(month, '_YYYYMM'))) IS NOT NULL;
            IF EXISTS (SELECT 1 FROM pg_inherits WHERE inhparent = parent::regclass) THEN
                lower := quote_literal(uuid_at(month));
            ELSE
                lower := 'MINVALUE';
            END IF;
            upper := quote_literal(uuid_at(month + interval '1 month'));
            EXECUTE format('CREATE TABLE %I PARTITION OF %I FOR VALUES FROM (%s) TO (%s) WITH (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02)',
                parent || to_char(month, '_YYYYMM'), parent, lower, upper);
        END LOOP;
    END LOOP;
END $$;
-- +goose StatementEnd

-- The least UUIDv7 of a moment (UTC).
-- +goose StatementBegin
CREATE FUNCTION uuid_at(moment timestamp) RETURNS uuid
LANGUAGE sql IMMUTABLE AS $$
    SELECT rpad(lpad(to_hex((extract(epoch FROM moment) * 1000)::bigint), 12, '0'), 32, '0')::uuid
$$;
-- +goose StatementEnd

SELECT execution_partitions_make(3);

-- Every running process of the service, kept alive by its heartbeat. Executions
-- are leased to a process and River's jobs name it: when it is dead, others take
-- its work over (internal/process).
CREATE TABLE processes (
    id           uuid        PRIMARY KEY,
    role         text        NOT NULL CHECK (role IN ('all', 'api', 'worker')),
    started_at   timestamptz NOT NULL DEFAULT now(),
    heartbeat_at timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50);


-- +goose Down
DROP TABLE processes;
DROP TABLE execution_payloads, executions;
DROP FUNCTION execution_partitions_make;
DROP FUNCTION uuid_at;
