-- Batches: one row each, with its counters and how far every stage has come.
-- The items are executions with batch_id and item_index.

-- +goose Up
CREATE TABLE execution_batches (
    id                    uuid        PRIMARY KEY,
    tenant_id             uuid        NOT NULL REFERENCES tenants (id),
    workflow_id           uuid        NOT NULL,
    workflow_alias        text        NOT NULL,
    workflow_version      integer     NOT NULL,
    principal_id          text        NOT NULL,
    label                 text        NOT NULL,
    description           text        NOT NULL DEFAULT '',
    is_test               boolean     NOT NULL DEFAULT false,
    status                text        NOT NULL CHECK (status IN ('pending', 'pre_processing', 'pre_processing_complete',
        'pre_processing_failed', 'processing', 'post_processing', 'post_processing_failed', 'complete', 'paused', 'cancelled')),
    attempt               integer     NOT NULL DEFAULT 1,
    paused_from           text,       -- the status that resuming goes back to
    cancel_requested_at   timestamptz,
    -- While the items of a retry are made ready: which, and from what index on.
    retry_mode            text,
    retry_from            integer     NOT NULL DEFAULT 0,
    -- The sources of items, in their order (decisions 6.2).
    items                 json        NOT NULL DEFAULT '[]',
    custom_input          json,
    raw_package_id        uuid,       -- the files named by the request
    source_package_ids    uuid[]      NOT NULL DEFAULT '{}',
    output_package_id     uuid,
    -- The output packages of earlier attempts, oldest first.
    earlier_package_ids   uuid[]      NOT NULL DEFAULT '{}',
    -- The output package that is being written: a writer that crashed left it
    -- incomplete, and the next one replaces it.
    draft_package_id      uuid,
    -- Columns of the package's tables, in the order in which they were met:
    -- dotted paths into the items' inputs and outputs.
    input_columns         text[]      NOT NULL DEFAULT '{}',
    output_columns        text[]      NOT NULL DEFAULT '{}',
    -- Progress of pre-processing: items of the sources that are recorded.
    items_read            integer     NOT NULL DEFAULT 0,
    pre_processing_result text        NOT NULL DEFAULT 'pending',
    validated_items       integer     NOT NULL DEFAULT 0,
    -- Progress of processing: the pending ones of the items below fed_until have
    -- been enqueued, and items_enqueued of them have not ended.
    fed_until             integer     NOT NULL DEFAULT 0,
    items_enqueued        integer     NOT NULL DEFAULT 0,
    -- Counters: total = completed + failed + pending at every moment.
    items_total           integer     NOT NULL DEFAULT 0,
    items_completed       integer     NOT NULL DEFAULT 0,
    items_failed          integer     NOT NULL DEFAULT 0,
    items_source_failed   integer     NOT NULL DEFAULT 0,
    -- What befell it, for people.
    notices               json        NOT NULL DEFAULT '[]',
    created_at            timestamptz NOT NULL DEFAULT now(),
    updated_at            timestamptz NOT NULL DEFAULT now(),
    completed_at          timestamptz,
    UNIQUE (tenant_id, id),
    FOREIGN KEY (tenant_id, raw_package_id) REFERENCES packages (tenant_id, id),
    FOREIGN KEY (tenant_id, output_package_id) REFERENCES packages (tenant_id, id),
    FOREIGN KEY (tenant_id, draft_package_id) REFERENCES packages (tenant_id, id)
) WITH (fillfactor = 50);
CREATE INDEX execution_batches_newest ON execution_batches (tenant_id, id DESC);

-- +goose Down
DROP TABLE execution_batches;
