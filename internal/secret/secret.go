// Package secret keeps confidential values. Store keeps the secrets of tenants: values that
// http-request tasks send and that nobody can read back (contract 4.8). Each secret is
// bound to the hosts that may receive it. Keyring seals values in the database. The package
// must not know HTTP or the engine.
package secret

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"tranche/internal/audit"
	"tranche/internal/fault"
	"tranche/internal/postgres"
	"tranche/queries"
)

// Limits of secrets.
const (
	// valueMin makes values long enough to redact them from responses without
	// redacting other text.
	valueMin     = 8    // characters
	valueMax     = 8192 // characters
	hostsMax     = 20   // of one secret
	perTenantMax = 500
)

// table is the table that values are sealed for.
const table = "secrets"

var (
	namePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
	hostPattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`)
)

// Secret describes a secret without its value.
type Secret struct {
	Name string
	// Hosts are host names or addresses, with a port if it is not the default of the
	// scheme.
	Hosts                []string
	CreatedAt, UpdatedAt time.Time
}

// Revealed is a secret with its value. It exists only while the value is sent.
type Revealed struct {
	Value     string
	Hosts     []string
	UpdatedAt time.Time
}

// Store keeps secrets.
type Store struct {
	pool *pgxpool.Pool
	keys *Keyring
}

// New returns a store that seals values with keys.
func New(pool *pgxpool.Pool, keys *Keyring) *Store { return &Store{pool: pool, keys: keys} }

func errUnknown() error { return fault.New(fault.NotFound, "there is no such secret") }

// Put creates a secret or replaces its value and hosts. It fails with fault.Invalid, whose
// details never contain the value.
func (s *Store) Put(ctx context.Context, tenantID uuid.UUID, name, value string, hosts []string) (Secret, error) {
	if !namePattern.MatchString(name) {
		return Secret{}, errUnknown()
	}
	hosts, details := clean(value, hosts)
	if len(details) > 0 {
		return Secret{}, fault.New(fault.Invalid, "the secret is invalid").WithDetails(details...)
	}
	var put Secret
	err := postgres.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		q := queries.New()
		others, err := q.SecretCount(ctx, tx, queries.SecretCountParams{TenantID: tenantID, Name: name})
		if err != nil {
			return err
		}
		if others >= perTenantMax {
			return fault.New(fault.Invalid, "a tenant has at most %d secrets", perTenantMax)
		}
		row, err := q.SecretPut(ctx, tx, queries.SecretPutParams{
			TenantID: tenantID, Name: name, Hosts: hosts,
			Value: s.keys.Seal([]byte(value), table, tenantID.String(), name),
		})
		if err != nil {
			return err
		}
		put = Secret{row.Name, row.Hosts, row.CreatedAt, row.UpdatedAt}
		return audit.RecordTx(ctx, tx, tenantID, audit.SecretSet, name)
	})
	return put, err
}

// Get describes a secret. It fails with fault.NotFound if there is none.
func (s *Store) Get(ctx context.Context, tenantID uuid.UUID, name string) (Secret, error) {
	row, err := queries.New().SecretGet(ctx, s.pool, queries.SecretGetParams{TenantID: tenantID, Name: name})
	if err != nil {
		return Secret{}, readError(err)
	}
	return Secret{row.Name, row.Hosts, row.CreatedAt, row.UpdatedAt}, nil
}

// Delete deletes a secret. It fails with fault.NotFound if there is none.
func (s *Store) Delete(ctx context.Context, tenantID uuid.UUID, name string) error {
	return postgres.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		rows, err := queries.New().SecretDelete(ctx, tx, queries.SecretDeleteParams{TenantID: tenantID, Name: name})
		if err != nil {
			return err
		}
		if rows == 0 {
			return errUnknown()
		}
		return audit.RecordTx(ctx, tx, tenantID, audit.SecretDelete, name)
	})
}

// Reveal returns a secret with its value. It fails with fault.NotFound if there is none.
func (s *Store) Reveal(ctx context.Context, tenantID uuid.UUID, name string) (Revealed, error) {
	row, err := queries.New().SecretGetValue(ctx, s.pool, queries.SecretGetValueParams{TenantID: tenantID, Name: name})
	if err != nil {
		return Revealed{}, readError(err)
	}
	value, err := s.keys.Open(row.Value, table, tenantID.String(), name)
	if err != nil {
		return Revealed{}, fmt.Errorf("open secret %s: %w", name, err)
	}
	return Revealed{Value: string(value), Hosts: row.Hosts, UpdatedAt: row.UpdatedAt}, nil
}

func readError(err error) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return errUnknown()
	}
	return postgres.Translate(err)
}

// Inspect returns the faults in a request body that its schema does not detect.
func Inspect(members map[string]any) []fault.Detail {
	value, _ := members["value"].(string)
	list, _ := members["hosts"].([]any)
	hosts := make([]string, len(list))
	for i := range list {
		hosts[i], _ = list[i].(string)
	}
	_, details := clean(value, hosts)
	return details
}

// clean returns hosts in the form that Bound compares, and the faults of the hosts and the
// value.
func clean(value string, hosts []string) ([]string, []fault.Detail) {
	hosts, details := cleanHosts(hosts)
	if n := utf8.RuneCountInString(value); n < valueMin || n > valueMax || strings.ContainsFunc(value, isControl) {
		details = append(details, fault.Detail{
			Field: "value", Message: fmt.Sprintf("must have %d to %d characters, none of them a control character", valueMin, valueMax),
		})
	}
	return hosts, details
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f || r == utf8.RuneError }

// cleanHosts returns hosts in the form that Bound compares, and their faults.
func cleanHosts(hosts []string) ([]string, []fault.Detail) {
	var details []fault.Detail
	if len(hosts) == 0 || len(hosts) > hostsMax {
		details = append(details, fault.Detail{Field: "hosts", Message: fmt.Sprintf("must name 1 to %d hosts", hostsMax)})
	}
	cleaned := make([]string, len(hosts))
	for i, host := range hosts {
		cleaned[i] = strings.ToLower(host)
		if !isHost(cleaned[i]) {
			details = append(details, fault.Detail{
				Field: fmt.Sprintf("hosts[%d]", i), Message: "must be a host name such as api.example.com, with a port if it is not the default port",
			})
		}
	}
	return cleaned, details
}

func isHost(text string) bool {
	u, err := url.Parse("https://" + text)
	if err != nil || u.Host != text || u.User != nil || u.Path != "" {
		return false
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return false
		}
	} else if strings.HasSuffix(text, ":") {
		return false
	}
	if _, err := netip.ParseAddr(u.Hostname()); err == nil {
		return true
	}
	return hostPattern.MatchString(u.Hostname())
}

// Bound reports whether a secret that is bound to hosts may be sent to address.
func Bound(hosts []string, address *url.URL) bool {
	port := address.Port()
	isDefault := port == "" || port == "443" && address.Scheme == "https" || port == "80" && address.Scheme == "http"
	for _, host := range hosts {
		bound, err := url.Parse("//" + host)
		if err != nil || !strings.EqualFold(bound.Hostname(), address.Hostname()) {
			continue
		}
		if bound.Port() == port || bound.Port() == "" && isDefault {
			return true
		}
	}
	return false
}
