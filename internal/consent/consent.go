// Package consent owns authorizations: consents that a signer confirms with a one-time
// password, the evidence of each step, and the templates of the messages with the
// passwords (contract A.2.1, 3.4 and 4.1, 8, docs/consent.md). It must not know
// HTTP.
//
// Four rules always hold:
//   - A code is stored only in a sealed message, which is wiped when it is sent. What
//     remains is an HMAC under a pepper outside the database.
//   - An attempt is committed and recorded in the evidence before the code is compared.
//   - A code signs the content at the time of its request.
//   - Evidence is only appended. Each record contains the hash of the previous one.
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

// Config configures a Service.
type Config struct {
	Pool  *pgxpool.Pool
	Jobs  *jobs.Client
	Store *storage.Store
	// Keys seal messages and the heads of chains. The peppers of codes and the keys of
	// contacts are derived from them.
	Keys *secret.Keyring
	// Senders send messages, one for each channel.
	Senders message.Senders
	Log     *slog.Logger
}

// Service stores authorizations. It is safe for concurrent use.
type Service struct {
	Config
	q *queries.Queries
	// There is one for each master key, so that codes and limits stay valid after a key
	// rotation. New hashes use the first.
	peppers     [][]byte // of codes
	contactKeys [][]byte // of contacts
}

// New returns a Service.
func New(c Config) *Service {
	return &Service{
		Config: c, q: queries.New(),
		peppers: c.Keys.DeriveAll("one-time passwords"), contactKeys: c.Keys.DeriveAll("contacts"),
	}
}

// Actor is the caller of an operation, as the evidence records it.
type Actor struct {
	ClientID  uuid.UUID
	IPAddress string
	UserAgent string
}

// content returns the actor as evidence.
func (a Actor) content() map[string]any {
	return map[string]any{"clientId": a.ClientID.String(), "ipAddress": a.IPAddress, "userAgent": a.UserAgent}
}

// errUnknown is the same for an unknown, a deleted and another tenant's authorization.
func errUnknown() error { return fault.New(fault.NotFound, "there is no such authorization") }

// readError translates the error of a read. A missing row is an unknown authorization.
func readError(err error, format string, args ...any) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return errUnknown()
	}
	return fmt.Errorf(format+": %w", append(args, postgres.Translate(err))...)
}

// timeLayout is the form of times in evidence. It is as exact as the database.
const timeLayout = "2006-01-02T15:04:05.000000Z"

func moment(t time.Time) string { return t.UTC().Format(timeLayout) }
