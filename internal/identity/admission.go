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

// limitWindow is what every limit counts over: any 60 s.
const limitWindow = time.Minute

// Limits of the token endpoint.
const (
	tokensPerMinute   = 60 // of a client
	failuresPerMinute = 10 // of a client and an address

	limitTokens        LimitCategory = "token"
	limitTokenFailures LimitCategory = "token failure"
)

// addressPerMinute is what an address that carries its own permission takes: a
// file's signed one, or a callback.
const (
	addressPerMinute = 200

	limitAddress LimitCategory = "address"
)

// Allowance is what is left of a limit.
type Allowance struct {
	Limit     Limit // PerMinute is Unlimited where nothing was counted
	Remaining int
	// FreeIn is when one more comes free than Remaining.
	FreeIn time.Duration
}

// metLimits are the limits of a tenant as they were when it first called.
type metLimits struct {
	limits []Limit
	readAt time.Time
}

// Admit counts a request of a category against the limit of the principal's
// tenant: never more than the limit in any 60 s, over all processes. Over it
// the error is fault.RateLimited with the time after which there is room, and
// the Allowance is good beside it. Where the tenant is not limited it asks
// nothing.
func (s *Service) Admit(ctx context.Context, principal Principal, category LimitCategory) (Allowance, error) {
	limits, err := s.limitsOf(ctx, principal.TenantID)
	if err != nil {
		return Allowance{}, err
	}
	for _, limit := range limits {
		if limit.Category == category && limit.PerMinute != Unlimited {
			return s.take(ctx, s.pool, principal.TenantID, limit)
		}
	}
	return Allowance{Limit: Limit{Category: category}}, nil
}

// AdmitAddress counts a request to an address that needs no token, by what it
// leads to: 200 in any 60 s. They do not count against the tenant's limits, or
// who holds one address could use up what the tenant's own calls may take.
func (s *Service) AdmitAddress(ctx context.Context, subject uuid.UUID) error {
	_, err := s.take(ctx, s.pool, subject, Limit{limitAddress, addressPerMinute})
	return err
}

// CheckTenant returns fault.Forbidden within 5 s of the tenant's revocation:
// for permissions that name it and outlive its tokens.
func (s *Service) CheckTenant(ctx context.Context, tenantID uuid.UUID) error {
	current, err := s.watch.get(ctx)
	if err == nil && current.isRevoked(tenantID) {
		err = fault.New(fault.Forbidden, "the tenant of this address is revoked")
	}
	return err
}

// limitsOf returns a tenant's limits, a few seconds old at most. Those of a
// tenant that calls for the first time are read then, because it may have been
// made a moment ago.
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

// take takes one of what a subject may have of a limit. In a transaction it
// keeps others who count for the subject waiting until the end.
func (s *Service) take(ctx context.Context, db queries.DBTX, subject uuid.UUID, limit Limit) (Allowance, error) {
	return s.count(ctx, db, subject, limit, true)
}

// count takes one, or only looks whether there is one to take.
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

// guard bounds what is tried at the token endpoint in the name of a client:
// 60 times a minute in all, 10 failures a minute from one address, which then
// takes nothing more of the 60 from the client itself. attempt says by
// fault.Unauthorized that it failed.
func (s *Service) guard(ctx context.Context, clientID uuid.UUID, address string, attempt func() error) error {
	return s.guardFailures(ctx, clientID, address, func() error {
		if _, err := s.take(ctx, s.pool, clientID, Limit{limitTokens, tokensPerMinute}); err != nil {
			return err
		}
		return attempt()
	})
}

// guardFailures refuses to try once an address has failed too often; the
// failure that is one too many is answered like that too, so no more than the
// limit learn whether they were right.
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
	if _, limited := s.take(ctx, s.pool, origin, failures); limited != nil {
		return limited
	}
	return err
}
