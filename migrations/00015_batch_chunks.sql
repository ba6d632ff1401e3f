-- Items without effects wait in chunks: what runs a chunk removes it in the
-- transaction that records its items as executions, so that each is written
-- once and counted once.

-- +goose Up
CREATE TABLE batch_chunks (
    tenant_id    uuid      NOT NULL,
    batch_id     uuid      NOT NULL,
    first_item   integer   NOT NULL, -- the first index that was read with it
    -- Of every item: its index, its row (0 for one of the request), its file
    -- (empty likewise) and its input, JSON as it is stored with the execution.
    item_indexes integer[] NOT NULL,
    row_numbers  integer[] NOT NULL,
    file_names   text[]    NOT NULL,
    inputs       text[]    NOT NULL,
    PRIMARY KEY (tenant_id, batch_id, first_item),
    FOREIGN KEY (tenant_id, batch_id) REFERENCES execution_batches (tenant_id, id)
);
-- It is read once and gone: compressing it costs more than it saves.
ALTER TABLE batch_chunks ALTER COLUMN inputs SET STORAGE EXTERNAL;
SELECT tenant_rows_protect('batch_chunks');

-- The chunks below have been enqueued; fed_until says so of items that are
-- recorded as executions.
ALTER TABLE execution_batches ADD COLUMN chunks_fed_until integer NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE execution_batches DROP COLUMN chunks_fed_until;
DROP TABLE batch_chunks;
