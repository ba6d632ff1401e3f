// Package apitest runs the whole service on its own database and calls it over HTTP as a
// client does. It checks every answer, including errors, against the OpenAPI document of
// the service. Only tests may use it.
//
//	c := apitest.Start(t).Tenant(t).As(t, identity.RoleAdmin)
//	made := c.Post(t, "/v2/workflows", apitest.Raw(`{"name":"x","alias":"x"}`)).Expect(http.StatusCreated)
//	c.Get(t, "/v2/workflows/"+made.Text("id")).Expect(http.StatusOK)
//	c.Post(t, "/v2/workflows", apitest.Raw(`{}`)).
//		ExpectProblem(http.StatusBadRequest, "VALIDATION_ERROR", "MISSING_REQUIRED_FIELD", "name", "alias")
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

	"tranche/internal/egress"
	"tranche/internal/identity"
	"tranche/internal/logging"
	"tranche/internal/pgtest"
	"tranche/internal/secret"
	"tranche/internal/server"
)

// Service is a running service.
type Service struct {
	// URL is the base URL without a slash at the end.
	URL string
	// DatabaseURL and Pool connect to the database as its owner, for checks that the API
	// does not offer. The service itself connects with pgtest.ServiceURL.
	DatabaseURL string
	Pool        *pgxpool.Pool

	document *document
	keys     *secret.Keyring
}

// Start runs a service on a new database until the test ends. Subtests can share it if each
// has a tenant of its own. Workflows can call 127.0.0.1 only.
func Start(tb testing.TB, options ...func(*server.Config)) *Service {
	tb.Helper()
	keys, err := secret.ParseKeys(secret.GenerateKey())
	require.NoError(tb, err)
	loopback, err := egress.ParseAllow("127.0.0.1/32")
	require.NoError(tb, err)
	front := httptest.NewUnstartedServer(nil)
	config := server.Config{
		DatabaseURL: pgtest.URL(tb),
		APIConns:    8,
		WorkerConns: 8,
		Role:        server.RoleAll,
		BaseURL:     "http://" + front.Listener.Addr().String(),
		Keys:        keys,
		Egress:      loopback,
		Clock:       time.Now,
		Log:         slog.New(logging.NewHandler(slog.NewTextHandler(tb.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))),
	}
	for _, option := range options {
		option(&config)
	}
	ownerURL := config.DatabaseURL
	config.DatabaseURL = pgtest.ServiceURL(tb, ownerURL)
	running, err := server.New(tb.Context(), config)
	require.NoError(tb, err)
	require.NoError(tb, running.Start(tb.Context()))
	front.Config.Handler = running.Handler()
	front.Start()
	tb.Cleanup(func() {
		front.Close()
		require.NoError(tb, running.Stop(context.Background()))
	})
	s := &Service{URL: config.BaseURL, DatabaseURL: ownerURL, Pool: pgtest.OpenPool(tb, ownerURL), keys: config.Keys}
	s.document = loadDocument(tb, s.URL)
	return s
}

// Replica starts another instance of the service on the same database. Both accept the same
// tokens (WithToken).
func (s *Service) Replica(tb testing.TB, role server.Role) *Service {
	tb.Helper()
	return Start(tb, func(c *server.Config) {
		c.DatabaseURL, c.Keys, c.Role = s.DatabaseURL, s.keys, role
	})
}

// Tenant creates a tenant without rate limits.
func (s *Service) Tenant(tb testing.TB) *Tenant {
	tb.Helper()
	unlimited := identity.DefaultLimits()
	for i := range unlimited {
		unlimited[i].PerMinute = identity.Unlimited
	}
	return s.LimitedTenant(tb, unlimited...)
}

// LimitedTenant creates a tenant with the default limits, except for those given.
func (s *Service) LimitedTenant(tb testing.TB, limits ...identity.Limit) *Tenant {
	tb.Helper()
	slug := "tenant-" + pgtest.NewID(tb).String()[24:]
	made, err := identity.CreateTenant(tb.Context(), s.Pool, slug)
	require.NoError(tb, err)
	require.NoError(tb, pgx.BeginFunc(context.WithoutCancel(tb.Context()), s.Pool, func(tx pgx.Tx) error {
		return identity.SetLimits(tb.Context(), tx, made.ID, limits)
	}))
	return &Tenant{Tenant: made, service: s}
}

// Tenant is one tenant of a running service.
type Tenant struct {
	identity.Tenant
	service *Service
}

// As returns a caller with the scopes of a role.
func (n *Tenant) As(tb testing.TB, role identity.Role) *Caller {
	tb.Helper()
	return n.With(tb, role.Scopes()...)
}

// With returns a caller with exactly these scopes, at least one.
func (n *Tenant) With(tb testing.TB, scopes ...identity.Scope) *Caller {
	tb.Helper()
	return n.caller(tb, identity.NewClient{Tenant: n.Tenant, Name: tb.Name(), Scopes: scopes})
}

// Sandbox returns a caller whose executions are tests.
func (n *Tenant) Sandbox(tb testing.TB, role identity.Role) *Caller {
	tb.Helper()
	return n.caller(tb, identity.NewClient{Tenant: n.Tenant, Name: tb.Name(), Scopes: role.Scopes(), IsSandbox: true})
}

// caller creates a client and gets its token from the API.
func (n *Tenant) caller(tb testing.TB, client identity.NewClient) *Caller {
	tb.Helper()
	if len(client.Name) > 100 {
		client.Name = client.Name[:100]
	}
	var credentials identity.Credentials
	err := pgx.BeginFunc(context.WithoutCancel(tb.Context()), n.service.Pool, func(tx pgx.Tx) (err error) {
		credentials, err = identity.CreateClient(tb.Context(), tx, client)
		return err
	})
	require.NoError(tb, err)
	answer := n.service.Anonymous().Post(tb, "/identity/resources/auth/v1/api-token", map[string]any{
		"clientId": credentials.ClientID.String(), "secret": credentials.Secret,
	}).Expect(http.StatusOK)
	return &Caller{ClientID: credentials.ClientID.String(), Secret: credentials.Secret, Token: answer.Text("accessToken"), service: n.service}
}

// Anonymous returns a caller without a token.
func (s *Service) Anonymous() *Caller { return &Caller{service: s} }

// WithToken returns a caller with any text as its token.
func (s *Service) WithToken(token string) *Caller { return &Caller{Token: token, service: s} }
