-- Consent: authorizations, the one-time passwords that sign them, the chain of
-- evidence, and the templates of messages.

-- +goose Up
CREATE TABLE authorizations (
    id             uuid        PRIMARY KEY,
    tenant_id      uuid        NOT NULL REFERENCES tenants (id),
    key            text        NOT NULL,
    label          text        NOT NULL,
    identity_key   text        NOT NULL,
    identity_value text        NOT NULL,
    form_id        text,
    borrower_id    text,
    ip_address     text        NOT NULL,
    policy_link    text,
    external_id    text,
    tags           text[]      NOT NULL DEFAULT '{}',
    -- What a search looks through, in lower case.
    search_text    text        NOT NULL,
    expires_at     timestamptz NOT NULL,
    authorized_at  timestamptz,
    created_at     timestamptz NOT NULL DEFAULT now(),
    updated_at     timestamptz NOT NULL DEFAULT now(),
    -- A deleted authorization leaves its row without personal data, because the
    -- chain of evidence goes on naming it.
    deleted_at     timestamptz,
    UNIQUE (tenant_id, id)
);
CREATE INDEX authorizations_newest ON authorizations (tenant_id, id DESC) WHERE deleted_at IS NULL;
CREATE INDEX authorizations_borrower ON authorizations (tenant_id, borrower_id, id DESC) WHERE deleted_at IS NULL;
-- What the task type authorization-check looks for.
CREATE INDEX authorizations_signed ON authorizations (tenant_id, identity_value, key)
    WHERE deleted_at IS NULL AND authorized_at IS NOT NULL;

CREATE TABLE authorization_attachments (
    attachment_id    uuid        PRIMARY KEY,
    tenant_id        uuid        NOT NULL,
    authorization_id uuid        NOT NULL,
    created_at       timestamptz NOT NULL DEFAULT now(),
    FOREIGN KEY (tenant_id, authorization_id) REFERENCES authorizations (tenant_id, id),
    FOREIGN KEY (tenant_id, attachment_id) REFERENCES attachments (tenant_id, id) ON DELETE CASCADE
);
CREATE INDEX authorization_attachments_authorization ON authorization_attachments (tenant_id, authorization_id);

-- Of a code only an HMAC is kept, under a pepper that is not in the database.
-- The message that carries it is sealed, and gone once it is sent, superseded
-- or expired.
CREATE TABLE one_time_passwords (
    id                  uuid        PRIMARY KEY,
    tenant_id           uuid        NOT NULL,
    authorization_id    uuid        NOT NULL,
    contact_method      text        NOT NULL CHECK (contact_method IN ('email', 'sms', 'whatsapp')),
    contact_masked      text        NOT NULL,
    contact_hash        bytea       NOT NULL,
    code_hash           bytea       NOT NULL,
    message             bytea,
    template_id         text        NOT NULL,
    template_hash       bytea       NOT NULL,
    client_id           uuid        NOT NULL,
    attempts            integer     NOT NULL DEFAULT 0,
    attempts_max        integer     NOT NULL CHECK (attempts_max BETWEEN 1 AND 5),
    created_at          timestamptz NOT NULL DEFAULT now(),
    expires_at          timestamptz NOT NULL,
    sent_at             timestamptz,
    provider            text,
    provider_message_id text,
    failed_at           timestamptz,
    superseded_at       timestamptz,
    verified_at         timestamptz,
    CHECK (attempts <= attempts_max),
    UNIQUE (tenant_id, id),
    FOREIGN KEY (tenant_id, authorization_id) REFERENCES authorizations (tenant_id, id)
);
-- One open password, and one signature, per authorization.
CREATE UNIQUE INDEX one_time_passwords_one_open ON one_time_passwords (authorization_id)
    WHERE superseded_at IS NULL AND verified_at IS NULL;
CREATE UNIQUE INDEX one_time_passwords_one_signature ON one_time_passwords (authorization_id) WHERE verified_at IS NOT NULL;
CREATE INDEX one_time_passwords_authorization ON one_time_passwords (tenant_id, authorization_id, created_at);
-- What the limits per contact count.
CREATE INDEX one_time_passwords_contact ON one_time_passwords (tenant_id, contact_hash, created_at);

-- The chain of a tenant's evidence. Every record holds the hash of the one
-- before; of its content it holds a salted commitment only, so that the content
-- can go while the chain stays whole.
CREATE TABLE evidence_records (
    tenant_id        uuid        NOT NULL REFERENCES tenants (id),
    position         bigint      NOT NULL, -- from 1
    authorization_id uuid        NOT NULL,
    kind             text        NOT NULL,
    recorded_at      timestamptz NOT NULL,
    commitment       bytea       NOT NULL,
    previous_hash    bytea       NOT NULL,
    hash             bytea       NOT NULL,
    PRIMARY KEY (tenant_id, position)
);
CREATE INDEX evidence_records_authorization ON evidence_records (tenant_id, authorization_id, position);

CREATE TABLE evidence_contents (
    tenant_id        uuid   NOT NULL,
    position         bigint NOT NULL,
    authorization_id uuid   NOT NULL,
    salt             bytea  NOT NULL,
    -- text: the commitment is over these very bytes.
    content          text   NOT NULL,
    PRIMARY KEY (tenant_id, position),
    FOREIGN KEY (tenant_id, position) REFERENCES evidence_records (tenant_id, position)
);
CREATE INDEX evidence_contents_authorization ON evidence_contents (tenant_id, authorization_id);

-- Where a chain ends, kept apart so that a missing last record shows, and
-- sealed under the master key so that nobody without it can move the end.
CREATE TABLE evidence_heads (
    tenant_id uuid   PRIMARY KEY REFERENCES tenants (id),
    count     bigint NOT NULL,
    hash      bytea  NOT NULL,
    seal      bytea  NOT NULL
);

-- +goose StatementBegin
CREATE FUNCTION evidence_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'evidence is append only';
END $$;
-- +goose StatementEnd
CREATE TRIGGER evidence_records_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON evidence_records
    FOR EACH STATEMENT EXECUTE FUNCTION evidence_is_append_only();
CREATE TRIGGER evidence_contents_append_only BEFORE UPDATE ON evidence_contents
    FOR EACH STATEMENT EXECUTE FUNCTION evidence_is_append_only();

CREATE TABLE message_templates (
    tenant_id  uuid        NOT NULL REFERENCES tenants (id),
    id         text        NOT NULL CHECK (id ~ '^[a-z0-9][a-z0-9_-]{0,63}$'),
    subject    text        NOT NULL,
    body       text        NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, id)
);

-- +goose Down
DROP TABLE message_templates, evidence_heads, evidence_contents, evidence_records, one_time_passwords, authorization_attachments, authorizations;
DROP FUNCTION evidence_is_append_only;
