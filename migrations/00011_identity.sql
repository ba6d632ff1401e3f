-- Rate limits, the audit trail, and what revocation looks up.

-- +goose Up

-- One row for whatever is limited: a tenant and a category, a client at the
-- token endpoint. The hits of the window are numbered oldest <= n < next.
-- Unlogged: a crash of the database forgets at most the last minute.
CREATE UNLOGGED TABLE rate_limits (
    subject  uuid        NOT NULL,
    category text        NOT NULL,
    oldest   bigint      NOT NULL DEFAULT 1,
    next     bigint      NOT NULL DEFAULT 1,
    last_at  timestamptz NOT NULL DEFAULT '-infinity',
    PRIMARY KEY (subject, category)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

CREATE UNLOGGED TABLE rate_limit_hits (
    subject  uuid        NOT NULL,
    category text        NOT NULL,
    number   bigint      NOT NULL,
    at       timestamptz NOT NULL,
    PRIMARY KEY (subject, category, number)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- Takes one of the hits that a subject may have in any 60 seconds, or, unless
-- taking, only looks. The row of rate_limits is locked before the clock is
-- read, so hits are numbered in the order of their times, whoever asks.
--
-- Returns whether there was one to take, how many are left, and in how many
-- milliseconds the next one comes free (0: none is in use).
-- +goose StatementBegin
CREATE FUNCTION rate_limit_take(limited uuid, limited_category text, per_minute integer, taking boolean,
    OUT admitted boolean, OUT remaining integer, OUT free_in_ms integer)
LANGUAGE plpgsql
-- Plans are made while the tables are empty and kept.
SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
    span   CONSTANT interval := interval '60 seconds';
    head   rate_limits%ROWTYPE;
    moment timestamptz;
    first  bigint;
    used   bigint;
    freed  timestamptz;
BEGIN
    LOOP
        SELECT * INTO head FROM rate_limits r WHERE r.subject = limited AND r.category = limited_category FOR UPDATE;
        EXIT WHEN FOUND;
        INSERT INTO rate_limits (subject, category) VALUES (limited, limited_category) ON CONFLICT DO NOTHING;
    END LOOP;
    moment := greatest(clock_timestamp(), head.last_at); -- the clock may be set back

    SELECT h.number INTO first FROM rate_limit_hits h
    WHERE h.subject = limited AND h.category = limited_category AND h.number >= head.oldest AND h.at > moment - span
    ORDER BY h.number LIMIT 1;
    first := coalesce(first, head.next);
    IF first > head.oldest THEN
        DELETE FROM rate_limit_hits h
        WHERE h.subject = limited AND h.category = limited_category AND h.number >= head.oldest AND h.number < first;
    END IF;

    used := head.next - first;
    admitted := used < per_minute;
    IF admitted AND taking THEN
        INSERT INTO rate_limit_hits (subject, category, number, at) VALUES (limited, limited_category, head.next, moment);
        head.next := head.next + 1;
        used := used + 1;
    END IF;
    IF admitted AND taking OR first > head.oldest THEN
        UPDATE rate_limits r SET oldest = first, next = head.next, last_at = moment
        WHERE r.subject = limited AND r.category = limited_category;
    END IF;

    remaining := greatest(per_minute - used, 0);
    -- The next to come free is the oldest; where the limit was lowered below
    -- what is in use, the one that makes room.
    SELECT h.at INTO freed FROM rate_limit_hits h
    WHERE h.subject = limited AND h.category = limited_category AND h.number = greatest(first, head.next - per_minute);
    free_in_ms := coalesce(ceil(extract(epoch FROM freed + span - moment) * 1000), 0);
END $$;
-- +goose StatementEnd

-- Who did what, insert only. It outlives what it names, so it refers to nothing.
CREATE TABLE audit_events (
    id         uuid        PRIMARY KEY,
    tenant_id  uuid        NOT NULL REFERENCES tenants (id),
    at         timestamptz NOT NULL DEFAULT now(),
    -- A client's id, or who else acted: operator, service.
    actor      text        NOT NULL,
    action     text        NOT NULL, -- workflow.publish
    subject    text        NOT NULL, -- the id of what was acted on
    -- Of the request; null for commands.
    request_id text
);
CREATE INDEX audit_events_newest ON audit_events (tenant_id, id DESC);

-- Refused requests, counted by minute so that refusals cannot flood the
-- database. Without a tenant: no token told one.
CREATE TABLE audit_refusals (
    minute    timestamptz NOT NULL,
    tenant_id uuid        REFERENCES tenants (id),
    client_id uuid,
    status    smallint    NOT NULL CHECK (status IN (401, 403)),
    reason    text        NOT NULL,
    count     bigint      NOT NULL,
    UNIQUE NULLS NOT DISTINCT (minute, tenant_id, client_id, status, reason)
);
CREATE INDEX audit_refusals_tenant ON audit_refusals (tenant_id, minute DESC);

-- +goose StatementBegin
CREATE FUNCTION audit_events_insert_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'audit_events takes no %', TG_OP;
END $$;
-- +goose StatementEnd
CREATE TRIGGER insert_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_events
FOR EACH STATEMENT EXECUTE FUNCTION audit_events_insert_only();

-- What is asked every two seconds: who has been revoked lately.
CREATE INDEX clients_revoked ON clients (revoked_at) WHERE revoked_at IS NOT NULL;
CREATE INDEX tenants_revoked ON tenants (revoked_at) WHERE revoked_at IS NOT NULL;
CREATE INDEX refresh_token_families_revoked ON refresh_token_families (revoked_at) WHERE revoked_at IS NOT NULL;
-- What a login sweeps.
CREATE INDEX refresh_token_families_client ON refresh_token_families (client_id, expires_at);
CREATE INDEX refresh_tokens_family ON refresh_tokens (family_id);

-- +goose Down
DROP INDEX refresh_tokens_family, refresh_token_families_client, refresh_token_families_revoked, tenants_revoked, clients_revoked;
DROP TABLE audit_refusals, audit_events;
DROP FUNCTION audit_events_insert_only;
DROP FUNCTION rate_limit_take;
DROP TABLE rate_limit_hits, rate_limits;
