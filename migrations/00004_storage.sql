-- Attachments (immutable bytes under a stored name) and packages of them.

-- +goose Up
CREATE TABLE attachments (
    id           uuid        PRIMARY KEY,
    tenant_id    uuid        NOT NULL REFERENCES tenants (id),
    -- What requests name it by: the id plus the extension of the original name.
    stored_name  text        NOT NULL,
    file_name    text        NOT NULL,
    content_type text        NOT NULL,
    -- Null until the bytes are complete: no one sees them before that.
    size         bigint,
    sha256       bytea,
    created_at   timestamptz NOT NULL DEFAULT now(),
    stored_at    timestamptz,
    UNIQUE (tenant_id, stored_name),
    UNIQUE (tenant_id, id),
    CHECK ((stored_at IS NULL) = (size IS NULL) AND (size IS NULL) = (sha256 IS NULL))
);

-- The bytes in pieces. An upload writes under an id of its own and becomes the
-- attachment's when it is complete, so a broken one is never seen.
CREATE TABLE attachment_uploads (
    id            uuid        PRIMARY KEY,
    tenant_id     uuid        NOT NULL,
    attachment_id uuid        NOT NULL,
    chunk_bytes   integer     NOT NULL, -- length of every chunk but the last
    created_at    timestamptz NOT NULL DEFAULT now(),
    completed_at  timestamptz,
    FOREIGN KEY (tenant_id, attachment_id) REFERENCES attachments (tenant_id, id) ON DELETE CASCADE
);
CREATE UNIQUE INDEX attachment_uploads_one_complete ON attachment_uploads (attachment_id) WHERE completed_at IS NOT NULL;
-- What the sweep of broken uploads looks for, and what a deleted attachment takes with it.
CREATE INDEX attachment_uploads_open ON attachment_uploads (tenant_id, created_at) WHERE completed_at IS NULL;
CREATE INDEX attachment_uploads_attachment ON attachment_uploads (attachment_id);

CREATE TABLE attachment_chunks (
    upload_id uuid    NOT NULL REFERENCES attachment_uploads (id) ON DELETE CASCADE,
    position  integer NOT NULL, -- from 0
    data      bytea   NOT NULL,
    PRIMARY KEY (upload_id, position)
);
ALTER TABLE attachment_chunks ALTER COLUMN data SET STORAGE EXTERNAL;

CREATE TABLE packages (
    id         uuid        PRIMARY KEY,
    tenant_id  uuid        NOT NULL REFERENCES tenants (id),
    kind       text        NOT NULL CHECK (kind IN ('raw', 'output')),
    created_at timestamptz NOT NULL DEFAULT now(),
    UNIQUE (tenant_id, id)
);

CREATE TABLE package_attachments (
    tenant_id     uuid    NOT NULL,
    package_id    uuid    NOT NULL,
    position      integer NOT NULL, -- from 0, the order of the files
    attachment_id uuid    NOT NULL,
    role          text    NOT NULL CHECK (role IN ('input', 'results', 'failed', 'manifest')),
    row_count     integer,          -- rows of data where they were counted
    PRIMARY KEY (package_id, position),
    FOREIGN KEY (tenant_id, package_id) REFERENCES packages (tenant_id, id),
    FOREIGN KEY (tenant_id, attachment_id) REFERENCES attachments (tenant_id, id)
);

-- +goose Down
DROP TABLE package_attachments, packages, attachment_chunks, attachment_uploads, attachments;
