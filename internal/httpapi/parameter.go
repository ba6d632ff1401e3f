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
// that occur twice or that are not text; Huma would pass over them. What is not
// text in the path names nothing, and is looked up as something else that does not.
func (s *Server) checkParameters(ctx huma.Context, next func(huma.Context)) {
	r, _ := humachi.Unwrap(ctx)
	if details := queryFaults(ctx.Operation(), r.URL); len(details) > 0 {
		err := fault.InvalidRequest(details...)
		s.refuse(ctx, s.problem(ctx.Context(), err))
		return
	}
	r.URL.RawQuery = fillBare(ctx.Operation(), r.URL.RawQuery)
	for _, p := range ctx.Operation().Parameters {
		if p.In == "path" && !isText(ctx.Param(p.Name)) {
			r.SetPathValue(p.Name, string(utf8.RuneError))
		}
	}
	next(ctx)
}

// fillBare gives names that stand without = a value, true for a boolean and an
// empty one for others; Huma reads some of them as true.
func fillBare(op *huma.Operation, query string) string {
	parts := strings.Split(query, "&")
	for i, part := range parts {
		name, err := url.QueryUnescape(part)
		if err != nil || strings.Contains(part, "=") {
			continue
		}
		switch p := queryParameter(op, name); {
		case p == nil:
		case p.Schema.Type == huma.TypeBoolean:
			parts[i] += "=true"
		default:
			parts[i] += "="
		}
	}
	return strings.Join(parts, "&")
}

// queryParameter is the operation's query parameter of a name, nil if it has none.
func queryParameter(op *huma.Operation, name string) *huma.Param {
	i := slices.IndexFunc(op.Parameters, func(p *huma.Param) bool { return p.In == "query" && p.Name == name })
	if i < 0 {
		return nil
	}
	return op.Parameters[i]
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
		known := queryParameter(op, name) != nil
		switch {
		case !known && (name == "" || !isText(name)):
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
