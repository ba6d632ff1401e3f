-- The idempotency keys of the last day, each with the answer of the request that
-- was made under it.

-- +goose Up
CREATE TABLE idempotency_keys (
    tenant_id    uuid        NOT NULL,
    client_id    uuid        NOT NULL,
    key          text        NOT NULL,
    -- SHA-256 of the request: another one under the same key is refused.
    fingerprint  bytea       NOT NULL,
    -- The answer; null while it is to be made of the result of execution_id,
    -- which that has when it ends.
    status       smallint,
    answer       json,
    execution_id uuid,
    -- The result as it was when a retry of the execution removed it.
    result       json,
    created_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, client_id, key),
    CHECK ((status IS NULL) = (answer IS NULL)),
    CHECK (answer IS NOT NULL OR execution_id IS NOT NULL)
);
CREATE INDEX idempotency_keys_execution ON idempotency_keys (execution_id) WHERE execution_id IS NOT NULL;
CREATE INDEX idempotency_keys_oldest ON idempotency_keys (created_at);

-- +goose Down
DROP TABLE idempotency_keys;
