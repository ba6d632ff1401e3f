package api

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"tranche/internal/identity"
)

// Large bodies of a tenant are few at a time and keep no other tenant waiting, nor
// small ones; who waits for too long is told to come again.
func TestLargeBodiesAreFewAtATime(t *testing.T) {
	t.Parallel()
	s := New(Config{Log: slog.New(slog.DiscardHandler), Clock: time.Now, Verify: func(_ context.Context, token string) (identity.Principal, error) {
		return identity.Principal{TenantID: uuid.NewSHA1(uuid.Nil, []byte(token)), TenantSlug: token, Scopes: identity.RoleAdmin.Scopes()}, nil
	}})
	begun, goOn := make(chan string, 10), make(chan struct{})
	register(s, operation{id: "hold", method: http.MethodPost, path: "/hold", scope: identity.ScopeExecutionsRun, bodyMax: bodyMaxExecuteBatch},
		func(ctx context.Context, in *echoInput) (*struct{}, error) {
			begun <- principal(ctx).TenantSlug
			<-goOn
			return nil, nil
		})
	server := httptest.NewServer(s)
	defer server.Close()
	large, small := `{"value":"`+strings.Repeat("x", bodyMaxExecuteBatch-100)+`"}`, `{"value":"x"}`
	answers := make(chan *http.Response, 10)
	send := func(tenant, body string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/hold", strings.NewReader(body))
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer "+tenant)
		go func() {
			answer, err := http.DefaultClient.Do(r)
			if err == nil {
				err = answer.Body.Close()
			}
			require.NoError(t, err)
			answers <- answer
		}()
	}
	begins := func(tenant, body string) {
		send(tenant, body)
		require.Equal(t, tenant, <-begun)
	}
	begins("one", large)
	begins("one", large)
	begins("one", small)
	begins("other", large)

	s.bodyTimeMax = 100 * time.Millisecond
	send("one", large)
	refused := <-answers
	require.Equal(t, http.StatusServiceUnavailable, refused.StatusCode)
	require.NotEmpty(t, refused.Header.Get("Retry-After"))
	s.bodyTimeMax = time.Minute

	send("one", large)
	require.Eventually(t, func() bool {
		s.bodies.mu.Lock()
		defer s.bodies.mu.Unlock()
		return s.bodies.tenants[uuid.NewSHA1(uuid.Nil, []byte("one"))].users == 3
	}, 10*time.Second, time.Millisecond)
	require.Empty(t, begun)
	close(goOn)
	require.Equal(t, "one", <-begun)
	for range 5 {
		require.Equal(t, http.StatusNoContent, (<-answers).StatusCode)
	}
	require.Empty(t, s.bodies.tenants, "what nobody uses is forgotten")
}
