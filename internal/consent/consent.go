// Package consent owns authorizations: consents that a signer confirms with a
// one-time password, the evidence of how that came about, and the templates of
// the messages that carry the passwords (sections 2.1, 3.4 and 4.1 of the
// interface specification, decisions 8, and docs/consent.md).
//
// Four things hold at every moment. A code is nowhere but in a sealed message
// that is gone once it is sent; what is kept of it is an HMAC under a pepper
// outside the database. An attempt is counted, durably and in the evidence,
// before it is compared. A code signs what was there when it was asked for.
// Evidence is only ever appended, and each record holds the hash of the one
// before. It must not know HTTP.
package consent

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"tranche/internal/fault"
	"tranche/internal/message"
	"tranche/internal/postgres"
	"tranche/internal/secret"
	"tranche/internal/storage"
	"tranche/jobs"
	"tranche/queries"
)

// Config is what the service works with.
type Config struct {
	Pool  *pgxpool.Pool
	Jobs  *jobs.Client
	Store *storage.Store
	// Keys seal messages and the ends of chains; the peppers of codes and the
	// keys of contacts are derived from them.
	Keys *secret.Keyring
	// Senders are the ways by which codes can go out.
	Senders message.Senders
	Log     *slog.Logger
}

// Service keeps authorizations. It is safe for concurrent use.
type Service struct {
	Config
	q *queries.Queries
	// By each master key, so that codes and limits outlive its replacement; the
	// first is the one that new hashes are made with.
	peppers     [][]byte // of codes
	contactKeys [][]byte // of contacts
}

// New returns a service.
func New(c Config) *Service {
	return &Service{
		Config: c, q: queries.New(),
		peppers: c.Keys.DeriveAll("one-time passwords"), contactKeys: c.Keys.DeriveAll("contacts"),
	}
}

// Actor is who does something to an authorization, for the evidence.
type Actor struct {
	ClientID  uuid.UUID
	IPAddress string
	UserAgent string
}

// content is what evidence says of an actor.
func (a Actor) content() map[string]any {
	return map[string]any{"clientId": a.ClientID.String(), "ipAddress": a.IPAddress, "userAgent": a.UserAgent}
}

// errUnknown answers for an unknown, a deleted and another tenant's
// authorization alike.
func errUnknown() error { return fault.New(fault.NotFound, "there is no such authorization") }

// readError translates the error of a read; a row that is not there is an
// unknown authorization.
func readError(err error, format string, args ...any) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return errUnknown()
	}
	return fmt.Errorf(format+": %w", append(args, postgres.Translate(err))...)
}

// timeLayout is how evidence writes a time: as exact as the database keeps it.
const timeLayout = "2006-01-02T15:04:05.000000Z"

func moment(t time.Time) string { return t.UTC().Format(timeLayout) }
