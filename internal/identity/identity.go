// Package identity owns tenants, their clients and the tokens that clients
// present: who may call, for which tenant, with which scopes (section 5 of the
// interface specification, decisions 2). Secrets and refresh tokens are kept
// as hashes, signing keys sealed. It must not know HTTP.
package identity

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"tranche/internal/secret"
)

// Principal is the client that a verified access token speaks for.
type Principal struct {
	TenantID   uuid.UUID
	TenantSlug string
	ClientID   uuid.UUID
	Scopes     []Scope
	// IsSandbox marks a client whose executions are all tests.
	IsSandbox bool
}

// Has reports whether the principal has a scope.
func (p Principal) Has(scope Scope) bool { return slices.Contains(p.Scopes, scope) }

// Config is what a Service is made of besides the database.
type Config struct {
	// Issuer is the iss and the aud of access tokens. Tokens of another issuer
	// are refused.
	Issuer string
	// Keys seals the private signing keys.
	Keys *secret.Keyring
	// Clock tells when access tokens begin and end.
	Clock func() time.Time
}

// Service issues and verifies tokens, and counts requests against limits. It is
// safe for concurrent use.
type Service struct {
	pool     *pgxpool.Pool
	issuer   string
	clock    func() time.Time
	keys     *keyStore
	verified *verifiedTokens
	watch    *watch
	// successorKeys derive the successor of a refresh token: one of each master
	// key, the first of which is used.
	successorKeys [][]byte
	met           sync.Map // tenant id → metLimits
	defaults      []Limit
}

// New returns a Service with the signing keys of the database loaded; where
// there is none yet, it makes the first. It fails when the keys are sealed
// under a master key other than those of Config.
func New(ctx context.Context, pool *pgxpool.Pool, cfg Config) (*Service, error) {
	keys := &keyStore{pool: pool, master: cfg.Keys, clock: cfg.Clock}
	if err := keys.start(ctx); err != nil {
		return nil, err
	}
	s := &Service{
		pool:          pool,
		issuer:        cfg.Issuer,
		clock:         cfg.Clock,
		keys:          keys,
		verified:      newVerifiedTokens(),
		watch:         &watch{pool: pool, clock: cfg.Clock, keys: keys},
		successorKeys: cfg.Keys.DeriveAll("successors of refresh tokens"),
		defaults:      DefaultLimits(),
	}
	if err := s.watch.read(ctx, cfg.Clock()); err != nil {
		return nil, err
	}
	return s, nil
}

// KeySet returns the public signing keys as a JSON Web Key Set (RFC 7517), as
// they were a few seconds ago at most.
func (s *Service) KeySet(ctx context.Context) ([]byte, error) {
	if _, err := s.watch.get(ctx); err != nil {
		return nil, err
	}
	return s.keys.current.Load().document, nil
}
