-- A condition on a column of ops.partitions() may be computed for every row of pg_class
-- before those are left out that are no partitions: of other names, such as pg_toast_323822, it makes no date.

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
        to_date(right(c.relname, 6), 'YYYYMM') + interval '1 month'
    FROM pg_inherits i
    JOIN pg_class c ON c.oid = i.inhrelid
    WHERE i.inhparent IN ('executions'::regclass, 'execution_payloads'::regclass)
$$;
-- +goose StatementEnd
