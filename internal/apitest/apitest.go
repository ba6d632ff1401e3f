// Package apitest runs the whole service on a database of its own and calls it
// over real HTTP, as a client would: with tokens that it obtained and nothing
// but the API. Every answer, errors included, is checked against the service's
// own OpenAPI document. Only tests may use it.
package apitest

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"tranche/api"
	"tranche/internal/catalog"
	"tranche/internal/identity"
	"tranche/internal/pgtest"
	"tranche/internal/seal"
)

// Service is a running service.
type Service struct {
	// URL is its base address, without a slash at the end.
	URL string
	// Pool leads to its database, for what the API does not show.
	Pool *pgxpool.Pool

	document *document
}

// Start runs a service on a fresh database until the test ends. Subtests share
// it: each makes a tenant of its own.
func Start(t testing.TB, options ...func(*api.Config)) *Service {
	t.Helper()
	pool := pgtest.Pool(t)
	keys, err := seal.Parse(seal.Generate())
	require.NoError(t, err)
	tokens, err := identity.New(t.Context(), pool, identity.Config{Issuer: "http://tranche.test", Keys: keys, Clock: time.Now})
	require.NoError(t, err)
	config := api.Config{
		Log:      slog.New(slog.DiscardHandler),
		Clock:    time.Now,
		Verify:   tokens.Verify,
		Identity: tokens,
		Catalog:  catalog.New(pool, nil),
	}
	for _, option := range options {
		option(&config)
	}
	handler := api.New(config)
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return &Service{URL: server.URL, Pool: pool, document: loadDocument(t, handler.Document())}
}

// Tenant makes a tenant.
func (s *Service) Tenant(t testing.TB) *Tenant {
	t.Helper()
	slug := "tenant-" + pgtest.NewID(t).String()[24:]
	made, err := identity.CreateTenant(t.Context(), s.Pool, slug)
	require.NoError(t, err)
	return &Tenant{Tenant: made, service: s}
}

// Tenant is one tenant of a running service.
type Tenant struct {
	identity.Tenant
	service *Service
}

// As returns a caller with the scopes of a role.
func (n *Tenant) As(t testing.TB, role identity.Role) *Caller {
	t.Helper()
	return n.With(t, role.Scopes()...)
}

// With returns a caller with just these scopes, at least one.
func (n *Tenant) With(t testing.TB, scopes ...identity.Scope) *Caller {
	t.Helper()
	return n.caller(t, identity.NewClient{Tenant: n.Tenant, Name: t.Name(), Scopes: scopes})
}

// Sandbox returns a caller of whom every execution is a test.
func (n *Tenant) Sandbox(t testing.TB, role identity.Role) *Caller {
	t.Helper()
	return n.caller(t, identity.NewClient{Tenant: n.Tenant, Name: t.Name(), Scopes: role.Scopes(), IsSandbox: true})
}

// caller makes a client and obtains its token over the API.
func (n *Tenant) caller(t testing.TB, client identity.NewClient) *Caller {
	t.Helper()
	if len(client.Name) > 100 {
		client.Name = client.Name[:100]
	}
	var credentials identity.Credentials
	err := pgx.BeginFunc(context.WithoutCancel(t.Context()), n.service.Pool, func(tx pgx.Tx) (err error) {
		credentials, err = identity.CreateClient(t.Context(), tx, client)
		return err
	})
	require.NoError(t, err)
	answer := n.service.Anonymous().Post(t, "/identity/resources/auth/v1/api-token", map[string]any{
		"clientId": credentials.ClientID.String(), "secret": credentials.Secret,
	}).Expect(http.StatusOK)
	return &Caller{ClientID: credentials.ClientID.String(), Secret: credentials.Secret, Token: answer.Text("accessToken"), service: n.service}
}

// Anonymous returns a caller without a token.
func (s *Service) Anonymous() *Caller { return &Caller{service: s} }

// WithToken returns a caller who presents any text as a token.
func (s *Service) WithToken(token string) *Caller { return &Caller{Token: token, service: s} }
