package api_test

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"tranche/internal/apitest"
	"tranche/internal/identity"
	"tranche/internal/server"
	"tranche/internal/targettest"
)

// replicas starts three processes on one database.
func replicas(t *testing.T) []*apitest.Service {
	t.Helper()
	first := apitest.Start(t)
	return []*apitest.Service{first, first.Replica(t, server.RoleAll), first.Replica(t, server.RoleAll)}
}

// Three replicas together admit the limit of each category, including failed requests.
// After the time in Retry-After the next request is admitted.
func TestRateLimits(t *testing.T) {
	t.Parallel()
	services := replicas(t)
	caller := services[0].LimitedTenant(t).As(t, identity.RoleAdmin)
	var wait sync.WaitGroup
	for name, c := range map[identity.LimitCategory]struct {
		method, path string
		limit        int64
	}{
		identity.LimitManagement:     {http.MethodGet, "/v2/workflows", 100},
		identity.LimitSingle:         {http.MethodPost, "/v1/workflows/none/v1/execute", 50},
		identity.LimitBatch:          {http.MethodPost, "/v1/workflows/none/v1/execute-batch", 10},
		identity.LimitPolling:        {http.MethodGet, "/v1/executions/" + unknownID + "/status", 200},
		identity.LimitAuthorizations: {http.MethodGet, "/v1/authorizations", 100},
	} {
		var admitted, refused atomic.Int64
		for i := range 12 {
			as := services[i%3].WithToken(caller.Token)
			wait.Go(func() {
				for range c.limit/10 + 1 {
					if as.Do(t, c.method, c.path, nil).Status == http.StatusTooManyRequests {
						refused.Add(1)
					} else {
						admitted.Add(1)
					}
				}
			})
		}
		wait.Wait()
		require.Equal(t, c.limit, admitted.Load(), name)
		require.Equal(t, 12*(c.limit/10+1)-c.limit, refused.Load(), name)

		answer := services[1].WithToken(caller.Token).Do(t, c.method, c.path, nil)
		problem := answer.ExpectProblem(http.StatusTooManyRequests, "RATE_LIMITED", "")
		require.Equal(t, "more than "+strconv.FormatInt(c.limit, 10)+" requests of this kind in 60 s", problem.Message)
		seconds, err := strconv.Atoi(answer.Header.Get("Retry-After"))
		require.NoError(t, err)
		require.GreaterOrEqual(t, 60, seconds)
		require.Positive(t, seconds)
		require.Equal(t, strconv.Quote(string(name))+";q="+strconv.FormatInt(c.limit, 10)+";w=60", answer.Header.Get("RateLimit-Policy"))
		require.Equal(t, strconv.Quote(string(name))+";r=0;t="+strconv.Itoa(seconds), answer.Header.Get("RateLimit"))

		_, err = services[0].Pool.Exec(t.Context(), `UPDATE rate_limit_hits SET at = at - make_interval(secs => $1)`, seconds)
		require.NoError(t, err)
		require.NotEqual(t, http.StatusTooManyRequests, services[2].WithToken(caller.Token).Do(t, c.method, c.path, nil).Status, name)
		_, err = services[0].Pool.Exec(t.Context(), `TRUNCATE rate_limits, rate_limit_hits`)
		require.NoError(t, err)
	}
}

// A signed URL or callback URL accepts 200 requests per minute over all replicas. The limits
// of its tenant do not apply to it.
func TestURLsAreLimited(t *testing.T) {
	t.Parallel()
	services := replicas(t)
	tenant := services[0].Tenant(t)
	admin := tenant.As(t, identity.RoleAdmin)
	target := targettest.New(t)
	publishGraph(t, admin, "asked", `[
		{"id":"ask","type":"http-request","config":{"url":"`+target.URL+`","query":{"to":"{{ callbackUrl(\"answer\") }}"}}},
		{"id":"answer","type":"wait-for-signal","config":{}}]`, `[{"source":"start","target":"ask"},{"source":"ask","target":"answer"}]`)
	admin.Post(t, "/v1/workflows/asked/v1/execute", apitest.Raw(`{}`)).Expect(http.StatusAccepted)
	upload := func() string {
		return admin.Post(t, "/v1/stores/packages/commands/attachments/generate-upload-signed-url", apitest.Raw(`{"fileName":"x.csv"}`)).
			Expect(http.StatusCreated).Text("signedUrl")
	}
	file := upload()
	for _, c := range []struct {
		method, address, kind string
		admitted              []int
	}{
		{http.MethodPut, file, "text/csv", []int{http.StatusOK}},
		{http.MethodPost, target.Wait(1)[0].Query.Get("to"), "application/json", []int{http.StatusAccepted, http.StatusBadRequest}},
	} {
		of, err := url.Parse(c.address)
		require.NoError(t, err)
		ask := func(s *apitest.Service) *apitest.Answer {
			return s.Anonymous().Do(t, c.method, of.RequestURI(), []byte(`{}`), apitest.Header{Name: "Content-Type", Value: c.kind})
		}
		var count, refused atomic.Int64
		var wait sync.WaitGroup
		for i := range 6 {
			wait.Go(func() {
				for range 36 {
					switch answer := ask(services[i%3]); {
					case answer.Status == http.StatusTooManyRequests:
						refused.Add(1)
					case slices.Contains(c.admitted, answer.Status):
						count.Add(1)
					}
				}
			})
		}
		wait.Wait()
		require.Equal(t, []int64{200, 16}, []int64{count.Load(), refused.Load()}, c.address)
		limited := ask(services[1])
		limited.ExpectProblem(http.StatusTooManyRequests, "RATE_LIMITED", "")
		require.Regexp(t, `^([1-9]|[1-5][0-9]|60)$`, limited.Header.Get("Retry-After"))
	}

	// Each URL has a limit of its own. URLs of a revoked tenant are rejected.
	put := func(address string) *apitest.Answer {
		return services[0].Anonymous().Do(t, http.MethodPut, address, []byte("a\n1\n"), apitest.Header{Name: "Content-Type", Value: "text/csv"})
	}
	other := upload()
	put(other).Expect(http.StatusOK)
	require.NoError(t, pgx.BeginFunc(t.Context(), services[0].Pool, func(tx pgx.Tx) error {
		return identity.RevokeTenant(t.Context(), tx, tenant.Tenant)
	}))
	require.Eventually(t, func() bool { return put(other).Status == http.StatusForbidden }, 5*time.Second, 50*time.Millisecond)
}

func TestLimits(t *testing.T) {
	t.Parallel()
	runShared(t, map[string]func(*testing.T, *apitest.Service){
		"RateLimitHeaders": testLimitsRateLimitHeaders,
		"RefreshToken":     testLimitsRefreshToken,
	})
}

func testLimitsRateLimitHeaders(t *testing.T, s *apitest.Service) {
	t.Helper()
	tenant := s.LimitedTenant(t, identity.Limit{Category: identity.LimitManagement, PerMinute: 3})
	admin := tenant.As(t, identity.RoleAdmin)
	first := admin.Get(t, "/v2/workflows").Expect(http.StatusOK)
	require.Equal(t, `"management";q=3;w=60`, first.Header.Get("RateLimit-Policy"))
	require.Equal(t, `"management";r=2;t=60`, first.Header.Get("RateLimit"))
	second := admin.Post(t, "/v2/workflows", apitest.Raw(`{`)).Expect(http.StatusBadRequest)
	require.Regexp(t, `^"management";r=1;t=\d+$`, second.Header.Get("RateLimit"), "another client of the tenant, and a denied request")
	tenant.With(t, identity.ScopeWorkflowsRead).Get(t, "/v2/workflows/x").Expect(http.StatusNotFound)
	admin.Post(t, "/v2/workflows", apitest.Raw(`{`)).ExpectProblem(http.StatusTooManyRequests, "RATE_LIMITED", "")
	admin.Get(t, "/v1/executions/x/status").Expect(http.StatusNotFound)

	for _, answer := range []*apitest.Answer{
		s.Tenant(t).As(t, identity.RoleAdmin).Get(t, "/v2/workflows").Expect(http.StatusOK),
		s.Anonymous().Get(t, "/v2/workflows").Expect(http.StatusUnauthorized),
		tenant.With(t, identity.ScopeAuditRead).Get(t, "/v2/workflows").Expect(http.StatusForbidden),
	} {
		require.Empty(t, answer.Header.Get("RateLimit"))
		require.Empty(t, answer.Header.Get("RateLimit-Policy"))
	}
}

// Every replica rejects a revoked client within 5 s.
func TestRevocationIsPrompt(t *testing.T) {
	t.Parallel()
	services := replicas(t)
	tenant := services[0].Tenant(t)
	revoked, other := tenant.As(t, identity.RoleAdmin), tenant.As(t, identity.RoleAdmin)
	for _, s := range services {
		s.WithToken(revoked.Token).Get(t, "/v2/workflows").Expect(http.StatusOK)
	}
	client, err := identity.FindClient(t.Context(), services[0].Pool, revoked.ClientID)
	require.NoError(t, err)
	require.NoError(t, pgx.BeginFunc(t.Context(), services[0].Pool, func(tx pgx.Tx) error {
		return identity.RevokeClient(t.Context(), tx, client)
	}))
	begun := time.Now()
	for _, s := range services {
		require.Eventually(t, func() bool {
			return s.WithToken(revoked.Token).Get(t, "/v2/workflows").Status == http.StatusUnauthorized
		}, 5*time.Second-time.Since(begun), 50*time.Millisecond)
		s.WithToken(other.Token).Get(t, "/v2/workflows").Expect(http.StatusOK)
	}
	t.Logf("refused everywhere after %s", time.Since(begun))
}

func testLimitsRefreshToken(t *testing.T, s *apitest.Service) {
	t.Helper()
	caller := s.Tenant(t).As(t, identity.RoleAdmin)
	const path = "/identity/resources/auth/v1/api-token"
	login := s.Anonymous().Post(t, path, map[string]any{"clientId": caller.ClientID, "secret": caller.Secret}).Expect(http.StatusOK)
	body := map[string]any{"refreshToken": login.Text("refreshToken")}
	refreshed := s.Anonymous().Post(t, path+"/refresh", body).Expect(http.StatusOK)
	require.Equal(t, "86400", refreshed.Text("expiresIn"))
	_, err := time.Parse(http.TimeFormat, refreshed.Text("expiresAt"))
	require.NoError(t, err)
	s.WithToken(refreshed.Text("accessToken")).Get(t, "/v2/workflows").Expect(http.StatusOK)
	again := s.Anonymous().Post(t, path+"/refresh", body).Expect(http.StatusOK)
	require.Equal(t, refreshed.Text("refreshToken"), again.Text("refreshToken"))

	s.Anonymous().Post(t, path+"/refresh", apitest.Raw(`{}`)).
		ExpectProblem(http.StatusBadRequest, "VALIDATION_ERROR", "MISSING_REQUIRED_FIELD", "refreshToken")
	s.Anonymous().Post(t, path+"/refresh", apitest.Raw(`{"refreshToken":"x"}`)).ExpectProblem(http.StatusUnauthorized, "UNAUTHORIZED", "")
	for range 9 {
		s.Anonymous().Post(t, path+"/refresh", apitest.Raw(`{"refreshToken":"x"}`)).Expect(http.StatusUnauthorized)
	}
	s.Anonymous().Post(t, path+"/refresh", apitest.Raw(`{"refreshToken":"x"}`)).ExpectProblem(http.StatusTooManyRequests, "RATE_LIMITED", "")
}
