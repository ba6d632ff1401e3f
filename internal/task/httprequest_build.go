package task

import (
	"net/http"
	"strings"

	"tranche/internal/egress"
	"tranche/internal/expression"
)

// build evaluates the config into the request to send. What it sends depends
// on the call's environment alone, so that a repetition sends the same.
func (r *httpRequest) build(env *expression.Env) (egress.Request, error) {
	request := egress.Request{
		Method: r.method, Header: http.Header{}, ResponseBytesMax: int64(r.bytesMax), Timeout: r.timeout, Redirects: r.redirects,
	}
	u, err := r.url.resolve(env)
	if err != nil {
		return request, failureAt(codeInvalidRequest, "url", err)
	}
	if r.query != nil {
		query, err := r.query.Eval(env)
		if err != nil {
			return request, failureAt(codeInvalidRequest, "query", err)
		}
		if err := addQuery(u, query); err != nil {
			return request, failureAt(codeInvalidRequest, "query", err)
		}
	}
	request.URL = u.String()
	if err := r.body.set(&request, env); err != nil {
		return request, err
	}
	return request, r.setHeaders(request.Header, env)
}

// setHeaders sets the headers. A header with the value null is omitted.
func (r *httpRequest) setHeaders(into http.Header, env *expression.Env) error {
	into.Set(headerUserAgent, "Tranche")
	for _, h := range r.headers {
		if h.value == nil {
			continue
		}
		v, err := h.value.Eval(env)
		if err != nil {
			return failureAt(codeInvalidRequest, "headers."+h.name, err)
		}
		if v == nil {
			continue
		}
		text, err := scalarText(v)
		if err != nil {
			return failureAt(codeInvalidRequest, "headers."+h.name, err)
		}
		if strings.ContainsFunc(text, isHeaderControl) {
			return failure(codeInvalidRequest, "headers.%s: the value contains a control character", h.name)
		}
		into.Set(h.name, strings.TrimSpace(text))
	}
	return nil
}

// isHeaderControl reports characters that a header's value must not contain, above all
// line ends, which could begin another header.
func isHeaderControl(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }
