package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"

	"tranche/internal/audit"
	"tranche/internal/fault"
	"tranche/internal/identity"
	"tranche/internal/postgres"
)

type principalKey struct{}

// Principal returns the principal of the request's token. An operation without a
// scope has none and gets the zero Principal, which owns nothing.
func Principal(ctx context.Context) identity.Principal {
	p, _ := ctx.Value(principalKey{}).(identity.Principal)
	return p
}

// authenticate verifies the bearer token of operations with a scope and checks that
// the token has that scope. It runs before the body is read.
func (s *Server) authenticate(ctx huma.Context, next func(huma.Context)) {
	scope := declared(ctx.Operation()).Scope
	if scope == "" {
		next(ctx)
		return
	}
	p, err := s.verify(ctx)
	if err != nil {
		s.reject(ctx, err)
		return
	}
	authenticated := context.WithValue(noteTenant(ctx.Context(), p.TenantSlug), principalKey{}, p)
	authenticated = audit.WithOrigin(authenticated, p.ClientID.String(), requestOf(authenticated).id)
	authenticated = postgres.WithTenant(authenticated, p.TenantID)
	if !p.Has(scope) {
		problem := s.Problem(authenticated, fault.New(fault.Forbidden, "the token does not have the scope %s", scope))
		problem.header.Set("WWW-Authenticate", fmt.Sprintf(`Bearer error="insufficient_scope", scope="%s"`, scope))
		s.reject(ctx, problem)
		return
	}
	next(huma.WithContext(ctx, authenticated))
}

// verify returns the principal of the bearer token. WWW-Authenticate names an error
// only if a token was sent (RFC 6750, 3.1).
func (s *Server) verify(ctx huma.Context) (identity.Principal, error) {
	r, _ := humachi.Unwrap(ctx)
	headers := r.Header.Values("Authorization")
	if len(headers) == 0 || headers[0] == "" {
		return identity.Principal{}, fault.New(fault.Unauthorized, "the request has no bearer token")
	}
	// Two headers are rejected: a proxy may have checked the other one.
	scheme, token, ok := strings.Cut(headers[0], " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") || len(headers) > 1 {
		return identity.Principal{}, fault.New(fault.Unauthorized, `the Authorization header must be "Bearer" followed by the access token`)
	}
	p, err := s.config.Verify(ctx.Context(), strings.TrimSpace(token))
	if errors.Is(err, fault.Unauthorized) {
		problem := s.Problem(ctx.Context(), err)
		problem.header.Set("WWW-Authenticate", `Bearer error="invalid_token"`)
		return p, problem
	}
	return p, err
}

// noteDenied reports a request that is answered with 401 or 403. The messages of
// such errors are few and contain nothing that the caller sent.
func (s *Server) noteDenied(ctx context.Context, p *Problem) {
	if s.config.Denied == nil || p.status != http.StatusUnauthorized && p.status != http.StatusForbidden {
		return
	}
	caller := Principal(ctx)
	s.config.Denied(audit.DeniedRequest{TenantID: caller.TenantID, ClientID: caller.ClientID, Status: p.status, Reason: p.Message})
}

// reject answers with the problem of an error instead of calling the handler.
func (s *Server) reject(ctx huma.Context, err error) {
	_, w := humachi.Unwrap(ctx)
	s.writeProblem(w, s.Problem(ctx.Context(), err))
}
