package httpapi

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"tranche/internal/identity"
	"tranche/internal/limit"
)

const largeBodyBytes = 20 << 20

// blockingServer has one operation, whose handler blocks until proceed is closed.
type blockingServer struct {
	*Server
	url      string
	begun    chan string // the tenants of blocked handlers
	proceed  chan struct{}
	answered chan *http.Response
}

// newBlockingServer starts a server. A bearer token is the name of its tenant. The
// handler calls acquire before it blocks.
func newBlockingServer(t *testing.T, method string, acquire func(b *blockingServer, ctx context.Context, size int) error) *blockingServer {
	t.Helper()
	b := &blockingServer{begun: make(chan string, 10), proceed: make(chan struct{}), answered: make(chan *http.Response, 10)}
	b.Server = New(Config{Log: slog.New(slog.DiscardHandler), Clock: time.Now, Verify: func(_ context.Context, token string) (identity.Principal, error) {
		return identity.Principal{TenantID: tenantNamed(token), TenantSlug: token, Scopes: identity.RoleAdmin.Scopes()}, nil
	}}, About{})
	type input struct {
		Size int `query:"size"`
	}
	op := Operation{ID: "block", Method: method, Path: "/block", Scope: identity.ScopeExecutionsRun, BodyMax: largeBodyBytes}
	if method == http.MethodPost {
		op.BodySchema = &huma.Schema{Type: huma.TypeObject, AdditionalProperties: true}
	}
	Register(b.Server, op, func(ctx context.Context, in *input) (*struct{}, error) {
		if err := acquire(b, ctx, in.Size); err != nil {
			return nil, err
		}
		b.begun <- Principal(ctx).TenantSlug
		<-b.proceed
		return nil, nil
	})
	server := httptest.NewServer(b)
	t.Cleanup(server.Close)
	b.url = server.URL + "/block"
	return b
}

func tenantNamed(name string) uuid.UUID { return uuid.NewSHA1(uuid.Nil, []byte(name)) }

func (b *blockingServer) send(t *testing.T, tenant, method, query string, body io.Reader) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, b.url+query, body)
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer "+tenant)
	go func() {
		answer, err := http.DefaultClient.Do(r)
		if err == nil {
			err = answer.Body.Close()
		}
		if err != nil {
			t.Error(err)
			answer = &http.Response{}
		}
		b.answered <- answer
	}()
}

// requireLimit requires that a tenant has at most two large requests in progress, that
// small requests and other tenants are not affected, and that a request that waits for
// too long is answered with 503 and Retry-After.
func (b *blockingServer) requireLimit(t *testing.T, semaphores *limit.PerTenant, send func(tenant string, isLarge bool)) {
	t.Helper()
	begins := func(tenant string, isLarge bool) {
		send(tenant, isLarge)
		require.Equal(t, tenant, <-b.begun)
	}
	begins("one", true)
	begins("one", true)
	begins("other", true)
	send("one", false)
	<-b.begun

	b.bodyTimeMax = 100 * time.Millisecond
	send("one", true)
	rejected := <-b.answered
	require.Equal(t, http.StatusServiceUnavailable, rejected.StatusCode)
	require.NotEmpty(t, rejected.Header.Get("Retry-After"))
	b.bodyTimeMax = time.Minute

	send("one", true)
	require.Eventually(t, func() bool { return semaphores.Users(tenantNamed("one")) == 3 }, 10*time.Second, time.Millisecond)
	require.Empty(t, b.begun)
	close(b.proceed)
	require.Equal(t, "one", <-b.begun)
	for range 5 {
		require.Equal(t, http.StatusNoContent, (<-b.answered).StatusCode)
	}
	require.Eventually(t, func() bool { return semaphores.Users(tenantNamed("one")) == 0 }, 10*time.Second, time.Millisecond)
}

func TestReadsPerTenantAreLimited(t *testing.T) {
	t.Parallel()
	b := newBlockingServer(t, http.MethodGet, func(*blockingServer, context.Context, int) error { return nil })
	b.reads = limit.NewPerTenant(2)
	b.requireLimit(t, b.reads, func(tenant string, isLarge bool) {
		if !isLarge {
			tenant = "third"
		}
		b.send(t, tenant, http.MethodGet, "", http.NoBody)
	})
}

func TestMemoryOfBodiesIsLimited(t *testing.T) {
	t.Parallel()
	b := newBlockingServer(t, http.MethodPost, func(*blockingServer, context.Context, int) error { return nil })
	large := `{"value":"` + strings.Repeat("x", largeBodyBytes-100) + `"}`
	b.requireLimit(t, b.bodies, func(tenant string, isLarge bool) {
		body := `{"value":"x"}`
		if isLarge {
			body = large
		}
		b.send(t, tenant, http.MethodPost, "", strings.NewReader(body))
	})
}

func TestMemoryOfAnswersIsLimited(t *testing.T) {
	t.Parallel()
	b := newBlockingServer(t, http.MethodGet, func(b *blockingServer, ctx context.Context, size int) error { return b.AcquireAnswer(ctx, size) })
	b.reads = limit.NewPerTenant(2) // a request that waits for memory no longer counts as a read
	b.requireLimit(t, b.answers, func(tenant string, isLarge bool) {
		query := "?size=1000"
		if isLarge {
			query = "?size=20000000"
		}
		b.send(t, tenant, http.MethodGet, query, http.NoBody)
	})
}
