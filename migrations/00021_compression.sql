-- The pieces of files and the inputs of waiting items are compressed with LZ4,
-- which is cheaper than to write several times as many bytes and to log them.
-- A server that was built without it keeps them as they are: PostgreSQL's own
-- method costs more than it saves.

-- +goose Up
-- +goose StatementBegin
DO $$
BEGIN
    ALTER TABLE attachment_chunks ALTER COLUMN data SET COMPRESSION lz4, ALTER COLUMN data SET STORAGE EXTENDED;
    ALTER TABLE batch_chunks ALTER COLUMN inputs SET COMPRESSION lz4, ALTER COLUMN inputs SET STORAGE EXTENDED;
EXCEPTION WHEN feature_not_supported THEN
    RAISE NOTICE 'this server knows no LZ4';
END $$;
-- +goose StatementEnd

-- +goose Down
ALTER TABLE batch_chunks ALTER COLUMN inputs SET STORAGE EXTERNAL, ALTER COLUMN inputs SET COMPRESSION default;
ALTER TABLE attachment_chunks ALTER COLUMN data SET STORAGE EXTERNAL, ALTER COLUMN data SET COMPRESSION default;
