-- Tenants, their clients, and the keys that sign access tokens.

-- +goose Up
CREATE TABLE tenants (
    id         uuid        PRIMARY KEY,
    slug       text        NOT NULL UNIQUE CHECK (slug ~ '^[a-z0-9][a-z0-9-]{0,62}$'),
    created_at timestamptz NOT NULL DEFAULT now(),
    revoked_at timestamptz
);

-- A category without a row has the limit of section 8; a row without a number
-- is unlimited.
CREATE TABLE tenant_limits (
    tenant_id  uuid    NOT NULL REFERENCES tenants (id),
    category   text    NOT NULL CHECK (category IN ('management', 'single', 'batch', 'polling', 'authorizations')),
    per_minute integer CHECK (per_minute > 0),
    PRIMARY KEY (tenant_id, category)
);

CREATE TABLE clients (
    id         uuid        PRIMARY KEY,
    tenant_id  uuid        NOT NULL REFERENCES tenants (id),
    name       text        NOT NULL,
    scopes     text[]      NOT NULL,
    is_sandbox boolean     NOT NULL DEFAULT false,
    created_at timestamptz NOT NULL DEFAULT now(),
    revoked_at timestamptz,
    UNIQUE (tenant_id, id)
);

-- Secrets are random 256-bit values; SHA-256 of one is safe to keep.
CREATE TABLE client_secrets (
    id          uuid        PRIMARY KEY,
    tenant_id   uuid        NOT NULL,
    client_id   uuid        NOT NULL,
    secret_hash bytea       NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    revoked_at  timestamptz,
    FOREIGN KEY (tenant_id, client_id) REFERENCES clients (tenant_id, id)
);
CREATE INDEX client_secrets_client ON client_secrets (client_id);

-- One family per login: every rotation of a refresh token stays in it.
CREATE TABLE refresh_token_families (
    id         uuid        PRIMARY KEY,
    tenant_id  uuid        NOT NULL,
    client_id  uuid        NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL,
    revoked_at timestamptz,
    FOREIGN KEY (tenant_id, client_id) REFERENCES clients (tenant_id, id),
    UNIQUE (tenant_id, id)
);

CREATE TABLE refresh_tokens (
    token_hash bytea       PRIMARY KEY,
    tenant_id  uuid        NOT NULL,
    family_id  uuid        NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL,
    used_at    timestamptz,
    FOREIGN KEY (tenant_id, family_id) REFERENCES refresh_token_families (tenant_id, id)
);

-- private_key is sealed under the master key, which is not in the database. The
-- public key is derived from it, so that a row somebody slips in verifies nothing.
CREATE TABLE signing_keys (
    id          text        PRIMARY KEY,
    private_key bytea       NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    retired_at  timestamptz
);

-- +goose Down
DROP TABLE signing_keys, refresh_tokens, refresh_token_families, client_secrets, clients, tenant_limits, tenants;
