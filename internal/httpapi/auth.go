package api

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

// principal returns who calls. In an operation without a scope there is
// nobody, and the answer is the zero Principal, which owns nothing.
func principal(ctx context.Context) identity.Principal {
	p, _ := ctx.Value(principalKey{}).(identity.Principal)
	return p
}

// authenticate verifies the bearer token of operations that declare a scope
// and checks that the token has it. It runs before the body is read.
func (s *Server) authenticate(ctx huma.Context, next func(huma.Context)) {
	scope := declared(ctx.Operation()).scope
	if scope == "" {
		next(ctx)
		return
	}
	p, err := s.verify(ctx)
	if err != nil {
		s.refuse(ctx, s.problem(ctx.Context(), err))
		return
	}
	noted := context.WithValue(noteTenant(ctx.Context(), p.TenantSlug), principalKey{}, p)
	noted = audit.WithOrigin(noted, p.ClientID.String(), requestID(noted))
	noted = postgres.WithTenant(noted, p.TenantID)
	if !p.Has(scope) {
		problem := s.problem(noted, fault.New(fault.Forbidden, "the token lacks the scope %s", scope))
		problem.header.Set("WWW-Authenticate", fmt.Sprintf(`Bearer error="insufficient_scope", scope="%s"`, scope))
		s.refuse(ctx, problem)
		return
	}
	next(huma.WithContext(ctx, noted))
}

// verify returns whom the bearer token speaks for. Only the refusal of a token that
// was sent names an error (RFC 6750, 3.1).
func (s *Server) verify(ctx huma.Context) (identity.Principal, error) {
	r, _ := humachi.Unwrap(ctx)
	headers := r.Header.Values("Authorization")
	if len(headers) == 0 || headers[0] == "" {
		return identity.Principal{}, fault.New(fault.Unauthorized, "a bearer token is required")
	}
	// Of two, a proxy in front may have looked at the other.
	scheme, token, ok := strings.Cut(headers[0], " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") || len(headers) > 1 {
		return identity.Principal{}, fault.New(fault.Unauthorized, "the Authorization header must be: Bearer and a token")
	}
	p, err := s.config.Verify(ctx.Context(), strings.TrimSpace(token))
	if errors.Is(err, fault.Unauthorized) {
		problem := s.problem(ctx.Context(), err)
		problem.header.Set("WWW-Authenticate", `Bearer error="invalid_token"`)
		return p, problem
	}
	return p, err
}

// noteRefusal has a request counted that is answered with 401 or 403. The texts
// of such errors are few and repeat nothing that was sent.
func (s *Server) noteRefusal(ctx context.Context, p *Problem) {
	if s.config.Refused == nil || p.status != http.StatusUnauthorized && p.status != http.StatusForbidden {
		return
	}
	who := principal(ctx)
	s.config.Refused(audit.Refusal{TenantID: who.TenantID, ClientID: who.ClientID, Status: p.status, Reason: p.Message})
}

// refuse answers with a problem instead of calling the handler.
func (s *Server) refuse(ctx huma.Context, p *Problem) {
	_, w := humachi.Unwrap(ctx)
	s.writeProblem(w, p)
}
