-- A statement that knows the id of an execution runs on the partition of its
-- month (queries.InMonth): through the parents it opens those of all months, with
-- more than a hundred indexes for a year, or is planned anew each time. Policies of
-- parents do not hold there, so partitions have the same ones of their own.

-- +goose Up
-- Makes the partitions of the months from now on that do not exist yet, and gives
-- those that have none the policies of their parents.
-- +goose StatementBegin
CREATE FUNCTION execution_partitions_provide(months_ahead integer) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    partition record;
    policy    record;
BEGIN
    PERFORM execution_partitions_make(months_ahead);
    FOR partition IN
        SELECT c.relname AS name, i.inhparent::regclass::text AS parent
        FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent IN ('executions'::regclass, 'execution_payloads'::regclass) AND NOT c.relrowsecurity
    LOOP
        -- Not forced: as their owner execution_partitions_drop looks for what has not ended.
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', partition.name);
        FOR policy IN SELECT * FROM pg_policies WHERE schemaname = 'public' AND tablename = partition.parent LOOP
            EXECUTE format('CREATE POLICY %I ON %I FOR %s TO %s', policy.policyname, partition.name, policy.cmd, array_to_string(policy.roles, ', '))
                || COALESCE(' USING (' || policy.qual || ')', '') || COALESCE(' WITH CHECK (' || policy.with_check || ')', '');
        END LOOP;
        EXECUTE format('GRANT SELECT, UPDATE ON %I TO tranche_app, tranche_system', partition.name);
    END LOOP;
END $$;
-- +goose StatementEnd
REVOKE EXECUTE ON FUNCTION execution_partitions_provide(integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION execution_partitions_provide(integer) TO tranche_system;
-- At once, or a transaction that has one partition and waits for another's parent
-- would wait for this and this for it.
LOCK TABLE executions, execution_payloads;
SELECT execution_partitions_provide(3);

-- +goose Down
DROP FUNCTION execution_partitions_provide;
LOCK TABLE executions, execution_payloads;
-- +goose StatementBegin
DO $$
DECLARE
    of_partition record;
BEGIN
    FOR of_partition IN
        SELECT p.polrelid::regclass AS name, p.polname FROM pg_policy p JOIN pg_inherits i ON i.inhrelid = p.polrelid
        WHERE i.inhparent IN ('executions'::regclass, 'execution_payloads'::regclass)
    LOOP
        EXECUTE format('DROP POLICY %I ON %s', of_partition.polname, of_partition.name);
        EXECUTE format('ALTER TABLE %s DISABLE ROW LEVEL SECURITY', of_partition.name);
        EXECUTE format('REVOKE ALL ON %s FROM tranche_app, tranche_system', of_partition.name);
    END LOOP;
END $$;
-- +goose StatementEnd
