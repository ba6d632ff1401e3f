package egress

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// redirect is the CheckRedirect function of the client. It limits the number of redirects and
// drops credentials. The guard checks the addresses.
func redirect(next *http.Request, via []*http.Request) error {
	if len(via) > progressOf(next.Context()).redirects {
		return http.ErrUseLastResponse
	}
	if err := CheckURL(next.URL); err != nil {
		return fmt.Errorf("%w: the address of a redirect %w", errRefused, err)
	}
	next.Header.Del("Referer") // the previous address may contain a credential
	// After a redirect to another origin, all further requests have no credentials, even if
	// the other origin redirects back, because that origin has chosen their URLs.
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
