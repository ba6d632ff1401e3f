package api

import (
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"

	"tranche/internal/fault"
)

// checkParameters refuses query parameters that the operation does not have,
// that occur twice or that are not text; Huma would pass over them. A path
// that is not text leads nowhere.
func (s *Server) checkParameters(ctx huma.Context, next func(huma.Context)) {
	r, _ := humachi.Unwrap(ctx)
	if !isText(r.URL.Path) {
		s.refuse(ctx, s.problem(ctx.Context(), fault.New(fault.NotFound, "there is nothing at this path")))
		return
	}
	if details := queryFaults(ctx.Operation(), r.URL); len(details) > 0 {
		err := fault.New(fault.Invalid, "the request is invalid").WithDetails(details...)
		s.refuse(ctx, s.problem(ctx.Context(), err))
		return
	}
	next(ctx)
}

func queryFaults(op *huma.Operation, address *url.URL) []fault.Detail {
	if address.RawQuery == "" {
		return nil
	}
	query, err := url.ParseQuery(address.RawQuery)
	if err != nil {
		return []fault.Detail{{Field: "query", Message: "is not a well-formed query string"}}
	}
	var details []fault.Detail
	for _, name := range sortedKeys(query) {
		values := query[name]
		known := slices.ContainsFunc(op.Parameters, func(p *huma.Param) bool { return p.In == "query" && p.Name == name })
		switch {
		case !known && !isText(name):
			details = append(details, fault.Detail{Field: "query", Message: "has a parameter whose name is not text"})
		case !known:
			details = append(details, fault.Detail{Field: name, Message: "is not a parameter of this operation"})
		case len(values) > 1:
			details = append(details, fault.Detail{Field: name, Message: "occurs more than once"})
		case !isText(values[0]):
			details = append(details, fault.Detail{Field: name, Message: "must be UTF-8 without NUL"})
		}
	}
	return details
}

// isText reports whether PostgreSQL could hold s as text.
func isText(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }
