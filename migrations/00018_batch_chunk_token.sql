-- Items with effects wait in chunks too, and become executions when they begin.

-- +goose Up
-- Whoever takes a chunk to begin its items, some at a time, puts a token of its
-- own here: from then on nobody else begins any. NULL: none of them has begun.
ALTER TABLE batch_chunks ADD COLUMN token uuid;

-- +goose Down
ALTER TABLE batch_chunks DROP COLUMN token;
