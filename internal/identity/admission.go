package identity

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"tranche/internal/fault"
	"tranche/internal/postgres"
	"tranche/queries"
)

// limitWindow is the time over which every limit counts: any 60 s.
const limitWindow = time.Minute

// Limits of the token endpoint.
const (
	tokensPerMinute   = 60 // for a client
	failuresPerMinute = 10 // for a client and an address

	limitTokens        LimitCategory = "token"
	limitTokenFailures LimitCategory = "token failure"
)

// addressPerMinute limits the requests to one signed address or one callback
// address. Such an address needs no token.
const (
	addressPerMinute = 200

	limitAddress LimitCategory = "address"
)

// Allowance is the rest of a limit.
type Allowance struct {
	Limit     Limit // PerMinute is Unlimited if nothing was counted
	Remaining int
	// FreeIn is the time until Remaining grows by one.
	FreeIn time.Duration
}

// metLimits are the limits of a tenant at its first call.
type metLimits struct {
	limits []Limit
	readAt time.Time
}

// Admit counts a request of a category against the limit of the principal's tenant.
// All processes together admit no more than the limit in any 60 s. Above the limit
// Admit returns fault.RateLimited with the time to wait, and a valid Allowance. If the
// tenant has no limit, it makes no query.
func (s *Service) Admit(ctx context.Context, principal Principal, category LimitCategory) (Allowance, error) {
	limits, err := s.limitsOf(ctx, principal.TenantID)
	if err != nil {
		return Allowance{}, err
	}
	for _, limit := range limits {
		if limit.Category == category && limit.PerMinute != Unlimited {
			return s.acquire(ctx, s.pool, principal.TenantID, limit)
		}
	}
	return Allowance{Limit: Limit{Category: category}}, nil
}

// AdmitAddress counts a request to an address that needs no token. Each subject may
// get 200 requests in any 60 s. They do not count against the tenant's limits;
// otherwise anybody with one address could exhaust those.
func (s *Service) AdmitAddress(ctx context.Context, subject uuid.UUID) error {
	_, err := s.acquire(ctx, s.pool, subject, Limit{limitAddress, addressPerMinute})
	return err
}

// CheckTenant returns fault.Forbidden if the tenant is revoked, at most 5 s after the
// revocation. It is for permissions that outlive the tenant's tokens.
func (s *Service) CheckTenant(ctx context.Context, tenantID uuid.UUID) error {
	current, err := s.watch.get(ctx)
	if err == nil && current.isRevoked(tenantID) {
		err = fault.New(fault.Forbidden, "the tenant of this address is revoked")
	}
	return err
}

// limitsOf returns a tenant's limits, which are at most a few seconds old. At the first
// call of a tenant it reads them, because the tenant may be newer than the cache.
func (s *Service) limitsOf(ctx context.Context, tenantID uuid.UUID) ([]Limit, error) {
	current, err := s.watch.get(ctx)
	if err != nil {
		return nil, err
	}
	met, ok := s.met.Load(tenantID)
	if !ok {
		first := metLimits{readAt: s.clock()}
		if first.limits, err = Limits(ctx, s.pool, tenantID); err != nil {
			return nil, err
		}
		s.met.Store(tenantID, first)
		return first.limits, nil
	}
	if first, ok := met.(metLimits); ok && !current.readAt.After(first.readAt) {
		return first.limits, nil
	}
	if limits := current.limits[tenantID]; limits != nil {
		return limits, nil
	}
	return s.defaults, nil
}

// acquire counts one request of a subject. In a transaction it blocks other requests of
// the subject until the end.
func (s *Service) acquire(ctx context.Context, db queries.DBTX, subject uuid.UUID, limit Limit) (Allowance, error) {
	return s.count(ctx, db, subject, limit, true)
}

// count counts a request if taking is set. Otherwise it only checks the limit.
func (s *Service) count(ctx context.Context, db queries.DBTX, subject uuid.UUID, limit Limit, taking bool) (Allowance, error) {
	row, err := queries.New().SysRateLimitAcquire(ctx, db, queries.SysRateLimitAcquireParams{
		Subject: subject, Category: string(limit.Category), PerMinute: int32(limit.PerMinute), Taking: taking,
	})
	if err != nil {
		return Allowance{}, fmt.Errorf("count a request of %s: %w", subject, postgres.Translate(err))
	}
	allowance := Allowance{Limit: limit, Remaining: int(row.Remaining), FreeIn: time.Duration(row.FreeInMs) * time.Millisecond}
	if !row.Admitted {
		return allowance, fault.New(fault.RateLimited, "more than %d requests of this kind in %d s", limit.PerMinute, int(limitWindow.Seconds())).
			WithRetryAfter(allowance.FreeIn)
	}
	return allowance, nil
}

// guard limits the attempts at the token endpoint for a client: 60 a minute in total
// and 10 failures a minute from one address. An address above its limit no longer
// uses up the client's 60. A failed attempt returns fault.Unauthorized.
func (s *Service) guard(ctx context.Context, clientID uuid.UUID, address string, attempt func() error) error {
	return s.guardFailures(ctx, clientID, address, func() error {
		if _, err := s.acquire(ctx, s.pool, clientID, Limit{limitTokens, tokensPerMinute}); err != nil {
			return err
		}
		return attempt()
	})
}

// guardFailures refuses attempts after too many failures from an address. The failure
// that exceeds the limit also returns fault.RateLimited, so that no more callers than the
// limit learn whether their attempt was right.
func (s *Service) guardFailures(ctx context.Context, clientID uuid.UUID, address string, attempt func() error) error {
	origin := uuid.NewSHA1(clientID, []byte(address))
	failures := Limit{limitTokenFailures, failuresPerMinute}
	if _, err := s.count(ctx, s.pool, origin, failures, false); err != nil {
		return err
	}
	err := attempt()
	if !errors.Is(err, fault.Unauthorized) {
		return err
	}
	if _, limited := s.acquire(ctx, s.pool, origin, failures); limited != nil {
		return limited
	}
	return err
}
