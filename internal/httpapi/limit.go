package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"

	"tranche/internal/fault"
	"tranche/internal/identity"
)

// Headers of rate limits (draft-ietf-httpapi-ratelimit-headers).
const (
	limitPolicyHeader = "RateLimit-Policy"
	limitHeader       = "RateLimit"
	limitWindow       = time.Minute
)

// limitRate counts a request against the limit of the tenant and the
// operation's category, before its body is read. Callers without a token have
// no tenant to count for; the token endpoint has limits of its own.
func (s *Server) limitRate(ctx huma.Context, next func(huma.Context)) {
	op := declared(ctx.Operation())
	if op.scope == "" || op.category == "" || s.config.Admit == nil {
		next(ctx)
		return
	}
	_, w := humachi.Unwrap(ctx)
	if err := s.admit(ctx.Context(), w.Header(), op.category); err != nil {
		s.refuse(ctx, s.problem(ctx.Context(), err))
		return
	}
	next(ctx)
}

// admit counts a request of the principal of ctx and says in the headers of its
// answer what is left. Over the limit it returns fault.RateLimited.
func (s *Server) admit(ctx context.Context, header http.Header, c identity.LimitCategory) error {
	allowance, err := s.config.Admit(ctx, principal(ctx), c)
	if err != nil && !errors.Is(err, fault.RateLimited) {
		return err
	}
	if allowance.Limit.PerMinute != identity.Unlimited {
		header.Set(limitPolicyHeader, fmt.Sprintf("%q;q=%d;w=%d", c, allowance.Limit.PerMinute, int(limitWindow.Seconds())))
		header.Set(limitHeader, fmt.Sprintf("%q;r=%d;t=%s", c, allowance.Remaining, wholeSeconds(allowance.FreeIn)))
	}
	return err
}

// limitHeaders documents the headers.
func limitHeaders() map[string]*huma.Header {
	return map[string]*huma.Header{
		"RateLimitPolicy": {
			Description: "The limit that the request counted against: its category in quotes, q requests in any w seconds. Absent where the tenant is not limited.",
			Schema:      &huma.Schema{Type: huma.TypeString}, Example: `"single";q=50;w=60`,
		},
		"RateLimit": {
			Description: "What is left of it: r requests now, one more in t seconds.",
			Schema:      &huma.Schema{Type: huma.TypeString}, Example: `"single";r=49;t=60`,
		},
	}
}

// documentLimit adds the headers to an answer.
func documentLimit(response *huma.Response) {
	response.Headers[limitPolicyHeader] = &huma.Header{Ref: "#/components/headers/RateLimitPolicy"}
	response.Headers[limitHeader] = &huma.Header{Ref: "#/components/headers/RateLimit"}
}

// wholeSeconds rounds up: whoever waits so long has waited long enough.
func wholeSeconds(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10)
}
