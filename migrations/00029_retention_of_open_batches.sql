-- A batch that is open, paused for instance, still needs the items that have ended: its
-- output tells of them, and what is not recorded of a chunk would run again.

-- +goose Up
-- Drops the partitions of months that ended at least so many whole months ago
-- and returns their names. A month of which an execution has not ended, or a batch
-- that one belongs to, stays.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION execution_partitions_drop(months_kept integer) RETURNS SETOF text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    is_open  CONSTANT text := $query$
        SELECT EXISTS (SELECT FROM %1$I WHERE status IN ('pending', 'running'))
            OR EXISTS (SELECT FROM execution_batches b
                CROSS JOIN LATERAL (SELECT FROM %1$I e WHERE e.batch_id = b.id LIMIT 1) AS item -- by the index, whatever the statistics say
                WHERE b.status NOT IN ('complete', 'cancelled', 'pre_processing_failed', 'post_processing_failed')) $query$;
    suffix   text;
    suffixes text[] := '{}';
    has_open boolean;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('execution_partitions_make'));
    SET LOCAL lock_timeout = '5s'; -- queries that run must not be kept waiting for one that does not end
    FOR suffix IN
        SELECT right(p.relid::regclass::text, 6) FROM pg_partition_tree('executions') p WHERE p.isleaf ORDER BY 1
    LOOP
        CONTINUE WHEN to_date(suffix, 'YYYYMM') + make_interval(months => months_kept + 1) > date_trunc('month', now() AT TIME ZONE 'UTC');
        EXECUTE format(is_open, 'executions_' || suffix) INTO has_open;
        IF NOT has_open THEN
            suffixes := suffixes || suffix;
        END IF;
    END LOOP;
    FOREACH suffix IN ARRAY suffixes LOOP
        -- What was retried since is seen once nobody can change it. Parents are locked first, as queries do.
        LOCK TABLE ONLY executions, ONLY execution_payloads;
        EXECUTE format('LOCK TABLE %I, %I', 'executions_' || suffix, 'execution_payloads_' || suffix);
        EXECUTE format(is_open, 'executions_' || suffix) INTO has_open;
        CONTINUE WHEN has_open;
        EXECUTE format('DROP TABLE %I, %I', 'executions_' || suffix, 'execution_payloads_' || suffix);
        RETURN NEXT suffix;
    END LOOP;
END $$;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION execution_partitions_drop(months_kept integer) RETURNS SETOF text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    month    timestamp;
    suffix   text;
    has_open boolean;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('execution_partitions_make'));
    SET LOCAL lock_timeout = '5s'; -- queries that run must not be kept waiting for one that does not end
    FOR suffix IN
        SELECT right(p.relid::regclass::text, 6) FROM pg_partition_tree('executions') p WHERE p.isleaf ORDER BY 1
    LOOP
        month := to_date(suffix, 'YYYYMM');
        CONTINUE WHEN month + make_interval(months => months_kept + 1) > date_trunc('month', now() AT TIME ZONE 'UTC');
        EXECUTE format('SELECT EXISTS (SELECT FROM %I WHERE status IN (''pending'', ''running''))', 'executions_' || suffix) INTO has_open;
        CONTINUE WHEN has_open;
        EXECUTE format('DROP TABLE %I, %I', 'executions_' || suffix, 'execution_payloads_' || suffix);
        RETURN NEXT suffix;
    END LOOP;
END $$;
-- +goose StatementEnd
