-- Schema ops: what an operator looks at first, as views (docs/operating.md has
-- the questions they answer). And retention, as the dropping of partitions.

-- +goose Up
CREATE SCHEMA ops;

-- Every running process, those found dead within the last hour too.
CREATE VIEW ops.processes AS
SELECT p.id AS process_id, p.role, p.started_at, now() - p.heartbeat_at AS silent_for,
    p.heartbeat_at > now() - interval '20 seconds' AS is_alive,
    (SELECT count(*) FROM executions e WHERE e.status IN ('pending', 'running') AND e.lease_process_id = p.id) AS executions_held
FROM processes p;

-- Executions that have not ended, and who has them in hand.
CREATE VIEW ops.executions_open AS
SELECT t.slug AS tenant, e.id AS execution_id, e.workflow_alias || ' v' || e.workflow_version AS workflow, e.status, e.attempt,
    now() - e.created_at AS age, e.started_at, e.deadline_at, e.batch_id,
    e.lease_process_id AS process_id, p.heartbeat_at > now() - interval '20 seconds' AS process_is_alive
FROM executions e
JOIN tenants t ON t.id = e.tenant_id
LEFT JOIN processes p ON p.id = e.lease_process_id
WHERE e.status IN ('pending', 'running');

-- Executions that nobody has in hand and what they wait for: a place in the
-- queue, or of each waiting task its time or signal.
CREATE VIEW ops.executions_waiting AS
SELECT o.tenant, o.execution_id, o.workflow, o.status, o.age,
    COALESCE(task.definition ->> 'id', 'the queue') AS waits_in, task.definition ->> 'type' AS task_type,
    (task.state ->> 'wakeAt')::timestamptz AS until
FROM ops.executions_open o
JOIN executions e ON e.id = o.execution_id
JOIN execution_payloads p ON p.execution_id = e.id
LEFT JOIN LATERAL (
    SELECT state.value AS state, definition.value AS definition
    FROM json_array_elements(p.state -> 'tasks') WITH ORDINALITY AS state (value, n)
    JOIN workflows w ON w.tenant_id = e.tenant_id AND w.id = e.workflow_id
    JOIN LATERAL json_array_elements(w.tasks) WITH ORDINALITY AS definition (value, n) ON definition.n = state.n
    WHERE state.value ->> 'status' = 'waiting'
) task ON true
WHERE o.process_id IS NULL;

-- Why executions of the last day failed, per tenant and workflow.
CREATE VIEW ops.failures AS
SELECT t.slug AS tenant, e.workflow_alias || ' v' || e.workflow_version AS workflow, e.status, e.status_code,
    p.result ->> 'errorMessage' AS error, count(*) AS executions, max(e.completed_at) AS last_at,
    (array_agg(e.id ORDER BY e.completed_at DESC))[1] AS last_execution_id
FROM executions e
JOIN tenants t ON t.id = e.tenant_id
JOIN execution_payloads p ON p.execution_id = e.id
WHERE e.status IN ('failed', 'timeout') AND e.completed_at > now() - interval '1 day'
GROUP BY 1, 2, 3, 4, 5;

-- What each workflow did with the executions of the last day, and how long it
-- took: milliseconds from start to end.
CREATE VIEW ops.workflows AS
SELECT t.slug AS tenant, e.workflow_alias || ' v' || e.workflow_version AS workflow, count(*) AS executions,
    count(*) FILTER (WHERE e.status IN ('pending', 'running')) AS open,
    count(*) FILTER (WHERE e.status = 'completed') AS completed,
    count(*) FILTER (WHERE e.status IN ('failed', 'timeout', 'cancelled')) AS unsuccessful,
    round(percentile_cont(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM e.completed_at - e.started_at) * 1000)) AS median_ms,
    round(percentile_cont(0.99) WITHIN GROUP (ORDER BY extract(epoch FROM e.completed_at - e.started_at) * 1000)) AS p99_ms
FROM executions e
JOIN tenants t ON t.id = e.tenant_id
WHERE e.id >= uuid_at((now() - interval '1 day') AT TIME ZONE 'UTC')
GROUP BY 1, 2;

-- What each tenant has open and did within the last hour.
CREATE VIEW ops.tenants AS
SELECT t.slug AS tenant, t.revoked_at IS NOT NULL AS is_revoked,
    (SELECT count(*) FROM executions e WHERE e.tenant_id = t.id AND e.status IN ('pending', 'running')) AS executions_open,
    (SELECT count(*) FROM executions e WHERE e.tenant_id = t.id AND e.id >= uuid_at((now() - interval '1 hour') AT TIME ZONE 'UTC')) AS executions_last_hour,
    (SELECT count(*) FROM execution_batches b WHERE b.tenant_id = t.id
        AND b.status NOT IN ('complete', 'cancelled', 'pre_processing_failed', 'post_processing_failed')) AS batches_open
FROM tenants t;

-- Batches that have not ended: how far they are, and when they last moved.
CREATE VIEW ops.batches_open AS
SELECT t.slug AS tenant, b.id AS batch_id, b.label, b.status, b.items_total AS total, b.items_completed AS completed,
    b.items_failed AS failed, b.items_total - b.items_completed - b.items_failed AS pending,
    now() - b.created_at AS age, now() - b.updated_at AS unmoved_for
FROM execution_batches b
JOIN tenants t ON t.id = b.tenant_id
WHERE b.status NOT IN ('complete', 'cancelled', 'pre_processing_failed', 'post_processing_failed');

-- The queues: how much of what is in which state, and how late the first is.
CREATE VIEW ops.queues AS
SELECT j.queue, j.kind, j.state::text AS state, count(*) AS jobs,
    CASE WHEN j.state::text = 'available' THEN now() - min(j.scheduled_at) END AS late_by
FROM river.river_job j
GROUP BY 1, 2, 3, j.state;

-- Jobs that met errors and will be tried again.
CREATE VIEW ops.jobs_failing AS
SELECT j.id AS job_id, j.kind, j.state::text AS state, cardinality(j.errors) AS errors, j.scheduled_at AS next_at,
    j.errors[cardinality(j.errors)] ->> 'error' AS last_error,
    COALESCE(j.args ->> 'execution_id', j.args ->> 'batch_id') AS works_on
FROM river.river_job j
WHERE cardinality(j.errors) > 0 AND j.state::text NOT IN ('completed', 'cancelled');

-- The partitions, how large they are, and until when executions go there.
CREATE FUNCTION ops.partitions() RETURNS TABLE (parent text, partition text, rows_estimated bigint, size text, until timestamp)
LANGUAGE sql STABLE AS $$
    SELECT i.inhparent::regclass::text, c.relname::text, c.reltuples::bigint, pg_size_pretty(pg_total_relation_size(c.oid)),
        to_date(right(c.relname, 6), 'YYYYMM') + interval '1 month'
    FROM pg_inherits i
    JOIN pg_class c ON c.oid = i.inhrelid
    WHERE i.inhparent IN ('executions'::regclass, 'execution_payloads'::regclass)
$$;

-- Drops the partitions of months that ended at least so many whole months ago
-- and returns their names. A month of which an execution has not ended stays.
-- +goose StatementBegin
CREATE FUNCTION execution_partitions_drop(months_kept integer) RETURNS SETOF text
LANGUAGE plpgsql AS $$
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

-- +goose Down
DROP FUNCTION execution_partitions_drop;
DROP SCHEMA ops CASCADE;
