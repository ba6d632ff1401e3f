package egress

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// redirect decides about following one. The guard sees every connection, so
// what is decided here is how often, and what goes along.
func redirect(next *http.Request, via []*http.Request) error {
	if len(via) > progressOf(next.Context()).redirects {
		return http.ErrUseLastResponse
	}
	if err := CheckURL(next.URL); err != nil {
		return fmt.Errorf("%w: a redirect leads to an address that %w", errRefused, err)
	}
	next.Header.Del("Referer") // it would tell the address, which may hold a credential
	// A request that was redirected to another origin goes on without credentials, also
	// where that leads back: what it asks for there is the other's choice.
	isElsewhere := func(r *http.Request) bool { return !sameOrigin(r.URL, via[0].URL) }
	if !isElsewhere(next) && !slices.ContainsFunc(via, isElsewhere) {
		return nil
	}
	for name := range next.Header {
		switch strings.ToLower(name) {
		case "accept", "accept-encoding", "accept-language", "content-type", "user-agent", "idempotency-key":
		default:
			delete(next.Header, name)
		}
	}
	return nil
}

func sameOrigin(a, b *url.URL) bool {
	return a.Scheme == b.Scheme && strings.EqualFold(a.Host, b.Host)
}
