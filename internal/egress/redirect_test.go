package egress

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	port, connections := canary(t, "127.0.0.1:0")
	for _, target := range []string{"http://127.0.0.1:" + port, "//localhost:" + port, "http://[::ffff:127.0.0.1]:" + port, "file:///etc/passwd", "/loop", "http://[::1", "/%zz"} {
		server, client := serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", target)
			w.WriteHeader(http.StatusFound)
		})
		answer, err := client.Do(t.Context(), Request{Method: "GET", URL: server.URL})
		require.NoError(t, err)
		require.Equal(t, http.StatusFound, answer.Status)
	}
	require.Zero(t, connections.Load())
}

// After a redirect to another origin, credentials stay dropped, even if the other origin redirects
// back.
func TestRedirectDropsCredentials(t *testing.T) {
	t.Parallel()
	var origin, elsewhere *httptest.Server
	elsewhere, _ = serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, origin.URL+"/end", http.StatusFound)
	})
	seen := map[string]string{}
	origin, _ = serve(t, func(w http.ResponseWriter, r *http.Request) {
		seen[r.URL.Path] = strings.TrimSpace(r.Header.Get("X-Api-Key") + " " + r.Header.Get("Authorization"))
		switch r.URL.Path {
		case "/within":
			http.Redirect(w, r, "/away", http.StatusFound)
		case "/away":
			http.Redirect(w, r, elsewhere.URL, http.StatusFound)
		}
	})
	answer, err := openAt(t, "127.0.0.1").Do(t.Context(), Request{
		Method: "GET", URL: origin.URL + "/within", Redirects: 3,
		Header: http.Header{"X-Api-Key": {"key"}, "Authorization": {"Bearer token"}},
	})
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, answer.Status)
	require.Equal(t, map[string]string{"/within": "key Bearer token", "/away": "key Bearer token", "/end": ""}, seen)
}

// The caller sets the number of redirects, three at most. No request has a Referer.
func TestRedirectLimit(t *testing.T) {
	t.Parallel()
	for asked, want := range map[int]int{0: 0, 1: 1, 3: 3, 4: 3, 100: 3} {
		var seen, referers []string
		server, client := serve(t, func(w http.ResponseWriter, r *http.Request) {
			seen, referers = append(seen, r.URL.Path), append(referers, r.Header.Get("Referer"))
			http.Redirect(w, r, r.URL.Path+"x", http.StatusFound)
		})
		answer, err := client.Do(t.Context(), Request{Method: http.MethodGet, URL: server.URL + "/", Redirects: asked})
		require.NoError(t, err)
		require.Equal(t, http.StatusFound, answer.Status)
		require.Len(t, seen, 1+want, "asked for %d", asked)
		require.Empty(t, strings.Join(referers, ""))
	}
}

// The address of a redirect must meet the same rules as that of a request.
func TestRedirectToInvalidAddress(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"http://user:secret@%s/end", "ftp://%s/end", "http:///end"} {
		var seen []string
		server, client := serve(t, func(w http.ResponseWriter, r *http.Request) {
			seen = append(seen, r.URL.Path)
			w.Header().Set("Location", strings.ReplaceAll(format, "%s", r.Host))
			w.WriteHeader(http.StatusFound)
		})
		_, err := client.Do(t.Context(), Request{Method: http.MethodGet, URL: server.URL + "/", Redirects: 3})
		requireReason(t, Refused, err)
		require.NotContains(t, err.Error(), "secret")
		require.Equal(t, []string{"/"}, seen, format)
	}
}

func TestSameOrigin(t *testing.T) {
	t.Parallel()
	for other, want := range map[string]bool{
		"https://a.example/x": true, "https://A.Example/y?z": true, "http://a.example/x": false,
		"https://a.example:8443/x": false, "https://b.example/x": false, "https://x.a.example/x": false,
	} {
		a, err := url.Parse("https://a.example/x")
		require.NoError(t, err)
		b, err := url.Parse(other)
		require.NoError(t, err)
		require.Equal(t, want, sameOrigin(a, b), other)
	}
}
