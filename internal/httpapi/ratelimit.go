package httpapi

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

// The headers of draft-ietf-httpapi-ratelimit-headers.
const (
	limitPolicyHeader = "RateLimit-Policy"
	limitHeader       = "RateLimit"
	limitWindow       = time.Minute
)

// limitRate counts a request against the tenant's rate limit for the category of the
// operation, before the body is read. A request without a token has no tenant; the
// token endpoint has limits of its own.
func (s *Server) limitRate(ctx huma.Context, next func(huma.Context)) {
	op := declared(ctx.Operation())
	if op.Scope == "" || op.Category == "" || s.config.Admit == nil {
		next(ctx)
		return
	}
	_, w := humachi.Unwrap(ctx)
	if err := s.admit(ctx.Context(), w.Header(), op.Category); err != nil {
		s.reject(ctx, err)
		return
	}
	next(ctx)
}

// admit counts a request of the principal of ctx and reports the rest of the limit in
// the headers. It returns fault.RateLimited if the limit is exceeded.
func (s *Server) admit(ctx context.Context, header http.Header, c identity.LimitCategory) error {
	allowance, err := s.config.Admit(ctx, Principal(ctx), c)
	if err != nil && !errors.Is(err, fault.RateLimited) {
		return err
	}
	if allowance.Limit.PerMinute != identity.Unlimited {
		header.Set(limitPolicyHeader, fmt.Sprintf("%q;q=%d;w=%d", c, allowance.Limit.PerMinute, int(limitWindow.Seconds())))
		header.Set(limitHeader, fmt.Sprintf("%q;r=%d;t=%s", c, allowance.Remaining, wholeSeconds(allowance.FreeIn)))
	}
	return err
}

// limitHeaders returns the headers as components of the document.
func limitHeaders() map[string]*huma.Header {
	return map[string]*huma.Header{
		"RateLimitPolicy": {
			Description: "The rate limit that the request counted against: its category in quotes, `q` requests in any `w` seconds. Absent if the tenant has no limit.",
			Schema:      &huma.Schema{Type: huma.TypeString}, Example: `"single";q=50;w=60`,
		},
		"RateLimit": {
			Description: "What is left of the rate limit: `r` requests now, and one more in `t` seconds.",
			Schema:      &huma.Schema{Type: huma.TypeString}, Example: `"single";r=49;t=60`,
		},
	}
}

// documentLimit adds the headers to a response.
func documentLimit(response *huma.Response) {
	response.Headers[limitPolicyHeader] = &huma.Header{Ref: "#/components/headers/RateLimitPolicy"}
	response.Headers[limitHeader] = &huma.Header{Ref: "#/components/headers/RateLimit"}
}

// wholeSeconds rounds up, so that a caller that waits so long waits long enough.
func wholeSeconds(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10)
}
