package httpapi

import (
	"maps"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"
	"github.com/google/uuid"

	"tranche/internal/fault"
)

// checkParameters rejects query parameters that the operation does not have, that
// occur twice or that are not text. Huma would ignore them. Path parameters that are
// not text are replaced by a name that nothing has.
func (s *Server) checkParameters(ctx huma.Context, next func(huma.Context)) {
	r, _ := humachi.Unwrap(ctx)
	if details := queryFaults(ctx.Operation(), r.URL); len(details) > 0 {
		s.reject(ctx, fault.InvalidRequest(details...))
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

// fillBare adds a value to parameters without =: true for a boolean, otherwise an empty
// one. Huma would read some of them as true.
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

// queryParameter returns the operation's query parameter of a name, or nil.
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
	for _, name := range slices.Sorted(maps.Keys(query)) {
		values := query[name]
		known := queryParameter(op, name) != nil
		switch {
		case !known && (name == "" || !isText(name)):
			details = append(details, fault.Detail{Field: "query", Message: "has a parameter whose name is empty or not valid UTF-8 text"})
		case !known:
			details = append(details, fault.Detail{Field: name, Message: "is not a parameter of this operation"})
		case len(values) > 1:
			details = append(details, fault.Detail{Field: name, Message: "must be sent only once"})
		case !isText(values[0]):
			details = append(details, fault.Detail{Field: name, Message: "must be valid UTF-8 text without NUL"})
		}
	}
	return details
}

// isText reports whether PostgreSQL can store s as text.
func isText(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }

// ParseID parses the id of a resource. An id of the wrong form is fault.NotFound, like
// an unknown id (contract 1.3). thing is the resource in the message, "workflow".
func ParseID(text, thing string) (uuid.UUID, error) {
	id, err := uuid.Parse(text)
	if err != nil || id.String() != text {
		return uuid.Nil, fault.New(fault.NotFound, "there is no such %s", thing)
	}
	return id, nil
}
