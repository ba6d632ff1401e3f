-- What sqlc must know of River's tables (River's own migrations make them).
CREATE SCHEMA river;
CREATE TYPE river.river_job_state AS ENUM ('available', 'cancelled', 'completed', 'discarded', 'pending', 'retryable', 'running', 'scheduled');
CREATE TABLE river.river_job (
    id           bigint                NOT NULL,
    state        river.river_job_state NOT NULL,
    attempted_at timestamptz,
    attempted_by text[],
    scheduled_at timestamptz           NOT NULL,
    kind         text                  NOT NULL,
    queue        text                  NOT NULL,
    priority     smallint              NOT NULL,
    max_attempts smallint              NOT NULL,
    args         jsonb                 NOT NULL,
    errors       jsonb[]
);
