-- Items with effects that make no second call become executions when they end. A
-- chunk therefore says who runs its items, and the ids that they will have.

-- +goose Up
ALTER TABLE batch_chunks
    -- The process that runs items of the chunk, while it lives. NULL: none does.
    ADD COLUMN holder_id uuid,
    -- A UUIDv7 that the ids of the items follow from, so that a call that is
    -- repeated after a crash bears the same key. NULL: none of them has run.
    ADD COLUMN ids_from uuid;

-- +goose Down
ALTER TABLE batch_chunks DROP COLUMN ids_from, DROP COLUMN holder_id;
