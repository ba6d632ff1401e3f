package api

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"tranche/internal/identity"
	"tranche/internal/limit"
)

// holding is a server with one operation, which holds what it is asked until it may go on.
type holding struct {
	*Server
	url      string
	begun    chan string // the tenants of those that hold
	goOn     chan struct{}
	answered chan *http.Response
}

// hold serves one operation, where a token is the name of its tenant.
func hold(t *testing.T, method string, handle func(h *holding, ctx context.Context, size int) error) *holding {
	t.Helper()
	h := &holding{begun: make(chan string, 10), goOn: make(chan struct{}), answered: make(chan *http.Response, 10)}
	h.Server = New(Config{Log: slog.New(slog.DiscardHandler), Clock: time.Now, Verify: func(_ context.Context, token string) (identity.Principal, error) {
		return identity.Principal{TenantID: tenantNamed(token), TenantSlug: token, Scopes: identity.RoleAdmin.Scopes()}, nil
	}})
	type input struct {
		Size int `query:"size"`
	}
	op := operation{id: "hold", method: method, path: "/hold", scope: identity.ScopeExecutionsRun, bodyMax: bodyMaxExecuteBatch}
	if method == http.MethodPost {
		op.bodySchema = JSONObject{}.Schema(nil)
	}
	register(h.Server, op, func(ctx context.Context, in *input) (*struct{}, error) {
		if err := handle(h, ctx, in.Size); err != nil {
			return nil, err
		}
		h.begun <- principal(ctx).TenantSlug
		<-h.goOn
		return nil, nil
	})
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	h.url = server.URL + "/hold"
	return h
}

func tenantNamed(name string) uuid.UUID { return uuid.NewSHA1(uuid.Nil, []byte(name)) }

func (h *holding) send(t *testing.T, tenant, method, query string, body io.Reader) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, h.url+query, body)
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
		h.answered <- answer
	}()
}

// requireFewAtATime requires that two large requests of a tenant run at a time, regardless
// of small requests and of other tenants, and that a request that waits for too long gets
// 503 with Retry-After.
func (h *holding) requireFewAtATime(t *testing.T, l *limit.PerTenant, send func(tenant string, isLarge bool)) {
	t.Helper()
	begins := func(tenant string, isLarge bool) {
		send(tenant, isLarge)
		require.Equal(t, tenant, <-h.begun)
	}
	begins("one", true)
	begins("one", true)
	begins("other", true)
	send("one", false)
	<-h.begun

	h.bodyTimeMax = 100 * time.Millisecond
	send("one", true)
	refused := <-h.answered
	require.Equal(t, http.StatusServiceUnavailable, refused.StatusCode)
	require.NotEmpty(t, refused.Header.Get("Retry-After"))
	h.bodyTimeMax = time.Minute

	send("one", true)
	require.Eventually(t, func() bool { return l.Users(tenantNamed("one")) == 3 }, 10*time.Second, time.Millisecond)
	require.Empty(t, h.begun)
	close(h.goOn)
	require.Equal(t, "one", <-h.begun)
	for range 5 {
		require.Equal(t, http.StatusNoContent, (<-h.answered).StatusCode)
	}
	require.Eventually(t, func() bool { return l.Users(tenantNamed("one")) == 0 }, 10*time.Second, time.Millisecond)
}

// Reads of a tenant leave connections to others.
func TestReadsAreFewAtATime(t *testing.T) {
	t.Parallel()
	h := hold(t, http.MethodGet, func(*holding, context.Context, int) error { return nil })
	h.reads = limit.NewPerTenant(2)
	h.requireFewAtATime(t, h.reads, func(tenant string, isLarge bool) {
		if !isLarge {
			tenant = "third"
		}
		h.send(t, tenant, http.MethodGet, "", http.NoBody)
	})
}

func TestLargeBodiesAreFewAtATime(t *testing.T) {
	t.Parallel()
	h := hold(t, http.MethodPost, func(*holding, context.Context, int) error { return nil })
	large := `{"value":"` + strings.Repeat("x", bodyMaxExecuteBatch-100) + `"}`
	h.requireFewAtATime(t, h.bodies, func(tenant string, isLarge bool) {
		body := `{"value":"x"}`
		if isLarge {
			body = large
		}
		h.send(t, tenant, http.MethodPost, "", strings.NewReader(body))
	})
}

func TestLargeAnswersAreFewAtATime(t *testing.T) {
	t.Parallel()
	h := hold(t, http.MethodGet, func(h *holding, ctx context.Context, size int) error { return h.acquireForAnswer(ctx, size) })
	h.reads = limit.NewPerTenant(2) // a request that waits for its answer does not count as a read
	h.requireFewAtATime(t, h.answers, func(tenant string, isLarge bool) {
		query := "?size=1000"
		if isLarge {
			query = "?size=20000000"
		}
		h.send(t, tenant, http.MethodGet, query, http.NoBody)
	})
}
