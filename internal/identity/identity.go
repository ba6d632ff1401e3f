// Package identity owns tenants, their clients and the tokens of clients. A token states
// the tenant and the scopes of its caller (contract A.5, 2). Secrets and refresh
// tokens are stored as hashes, signing keys are sealed. The package also counts requests
// against rate limits. It must not know HTTP.
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

// Principal is the client of a verified access token.
type Principal struct {
	TenantID   uuid.UUID
	TenantSlug string
	ClientID   uuid.UUID
	Scopes     []Scope
	// IsSandbox is set for a client whose executions are all tests.
	IsSandbox bool
}

// Has reports whether the principal has a scope.
func (p Principal) Has(scope Scope) bool { return slices.Contains(p.Scopes, scope) }

// Config configures a Service.
type Config struct {
	// Issuer is the iss and the aud of access tokens. Tokens of other issuers are
	// refused.
	Issuer string
	// Keys seals the private signing keys.
	Keys *secret.Keyring
	// Clock decides when access tokens begin and expire.
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
	// successorKeys derive the successor of a refresh token. There is one for each master
	// key; new successors use the first.
	successorKeys [][]byte
	met           sync.Map // tenant id → metLimits
	defaults      []Limit
}

// New loads the signing keys from the database and returns a Service. It creates the
// first key if there is none. It fails if a key is sealed under a master key that Config
// does not have.
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

// KeySet returns the public signing keys as a JSON Web Key Set (RFC 7517). They are at
// most a few seconds old.
func (s *Service) KeySet(ctx context.Context) ([]byte, error) {
	if _, err := s.watch.get(ctx); err != nil {
		return nil, err
	}
	return s.keys.current.Load().document, nil
}
