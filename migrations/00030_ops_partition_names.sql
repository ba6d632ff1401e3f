-- The condition of 00027 may be computed for every row of pg_class: also for those of
-- pg_toast, whose names end in numbers that may have six digits and be no month.

-- +goose Up
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION ops.partitions() RETURNS TABLE (parent text, partition text, rows_estimated bigint, size text, until timestamp)
LANGUAGE sql STABLE AS $$
    SELECT i.inhparent::regclass::text, c.relname::text, c.reltuples::bigint, pg_size_pretty(pg_total_relation_size(c.oid)),
        to_date(substring(c.relname FROM '^execution(?:s|_payloads)_([0-9]{6})$'), 'YYYYMM') + interval '1 month'
    FROM pg_inherits i
    JOIN pg_class c ON c.oid = i.inhrelid
    WHERE i.inhparent IN ('executions'::regclass, 'execution_payloads'::regclass)
$$;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION ops.partitions() RETURNS TABLE (parent text, partition text, rows_estimated bigint, size text, until timestamp)
LANGUAGE sql STABLE AS $$
    SELECT i.inhparent::regclass::text, c.relname::text, c.reltuples::bigint, pg_size_pretty(pg_total_relation_size(c.oid)),
        to_date(substring(c.relname FROM '_([0-9]{6})$'), 'YYYYMM') + interval '1 month'
    FROM pg_inherits i
    JOIN pg_class c ON c.oid = i.inhrelid
    WHERE i.inhparent IN ('executions'::regclass, 'execution_payloads'::regclass)
$$;
-- +goose StatementEnd
