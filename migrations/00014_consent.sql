-- Consent: messages that no delivery wiped, for the sweep of what has expired.

-- +goose Up
CREATE INDEX one_time_passwords_unsent ON one_time_passwords (expires_at) WHERE message IS NOT NULL;

-- +goose Down
DROP INDEX one_time_passwords_unsent;
