package api_test

import (
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tranche/internal/apitest"
	"tranche/internal/identity"
	"tranche/internal/logging"
	"tranche/internal/pgtest"
	"tranche/internal/secret"
	"tranche/internal/server"
	"tranche/internal/targettest"
)

func key(text string) apitest.Header {
	return apitest.Header{Name: "Idempotency-Key", Value: text}
}

func TestIdempotency(t *testing.T) {
	t.Parallel()
	runShared(t, map[string]func(*testing.T, *apitest.Service){
		"ParallelRequests":  testIdempotencyParallelRequests,
		"Keys":              testIdempotencyKeys,
		"KeyExpires":        testIdempotencyKeyExpires,
		"FirstAnswerIsKept": testIdempotencyFirstAnswerIsKept,
		"Preferences":       testIdempotencyPreferences,
	})
}

// Of 50 concurrent identical requests to two replicas, one has an effect. The others get
// its answer, or an error that it is in progress. Later requests get its answer.
func testIdempotencyParallelRequests(t *testing.T, s *apitest.Service) {
	t.Helper()
	replica := s.Replica(t, server.RoleAPI)
	tenant := s.Tenant(t)
	c := tenant.As(t, identity.RoleAdmin)
	b := newBureau(t)
	publish(t, c, sumWorkflow)
	publish(t, c, b.workflow("ask", ""))
	publish(t, c, b.workflow("async", `,"executionMode":"async"`))
	b.Queue(score(http.StatusInternalServerError))
	failed := c.Post(t, "/v1/workflows/ask/v1/execute", apitest.Raw(`{}`)).Expect(http.StatusOK).Text("executionId")
	b.SetAnswer(targettest.After(300*time.Millisecond, score(http.StatusOK))) // so that requests overlap

	for name, tc := range map[string]struct {
		path, body       string
		status, inFlight int
	}{
		"without effects": {"/v1/workflows/sum/v1/execute", `{"a":1}`, http.StatusOK, http.StatusConflict},
		"with an effect":  {"/v1/workflows/ask/v1/execute", `{}`, http.StatusOK, http.StatusConflict},
		"asynchronous":    {"/v1/workflows/async/v1/execute", `{}`, http.StatusAccepted, http.StatusConflict},
		"batch":           {"/v1/workflows/sum/v1/execute-batch", `{"workflowInput":{"items":[{"a":1}]}}`, http.StatusAccepted, http.StatusConflict},
		"retry":           {"/v1/executions/" + failed + "/retry", `{}`, http.StatusAccepted, http.StatusBadRequest},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			callers := []*apitest.Caller{c, replica.WithToken(c.Token)}
			callers[1].ClientID = c.ClientID
			var calls sync.WaitGroup
			answers := make([]*apitest.Answer, 50)
			for i := range answers {
				calls.Go(func() { answers[i] = callers[i%2].Post(t, tc.path, apitest.Raw(tc.body), key(name)) })
			}
			calls.Wait()
			after := c.Post(t, tc.path, apitest.Raw(" "+tc.body), key(name)).Expect(tc.status)
			require.Equal(t, "true", after.Header.Get("Idempotency-Replayed"))
			original := 0
			for _, answer := range answers {
				if answer.Status == tc.inFlight {
					require.NotEmpty(t, answer.Header.Get("Retry-After"))
					continue
				}
				require.JSONEq(t, string(after.Body), string(answer.Expect(tc.status).Body))
				if answer.Header.Get("Idempotency-Replayed") == "" {
					original++
				}
			}
			require.Equal(t, 1, original)
		})
	}
	t.Cleanup(func() {
		require.Equal(t, 4, b.Count(), "one call each: the failed execution, its retry and the two others")
	})
}

func testIdempotencyKeys(t *testing.T, s *apitest.Service) {
	t.Helper()
	tenant := s.Tenant(t)
	c := tenant.As(t, identity.RoleAdmin)
	id := publish(t, c, sumWorkflow)
	const execute = "/v1/workflows/sum/v1/execute"
	first := c.Post(t, execute, apitest.Raw(`{"a":1.10,"b":2}`), key("one")).Expect(http.StatusOK)
	require.Empty(t, first.Header.Get("Idempotency-Replayed"))

	again := c.Post(t, execute, apitest.Raw(`{ "b":2, "a":1.10 }`), key("one")).Expect(http.StatusOK)
	require.Equal(t, "true", again.Header.Get("Idempotency-Replayed"))
	require.Equal(t, first.Body, again.Body)
	for name, call := range map[string]*apitest.Answer{
		"another body":      c.Post(t, execute, apitest.Raw(`{"a":1.1,"b":2}`), key("one")),
		"another parameter": c.Post(t, execute+"?test=true", apitest.Raw(`{"a":1.10,"b":2}`), key("one")),
		"another version":   c.Post(t, "/v1/workflows/sum/latest/execute", apitest.Raw(`{"a":1.10,"b":2}`), key("one")),
	} {
		require.NotEmpty(t, name)
		call.ExpectProblem(http.StatusUnprocessableEntity, "UNPROCESSABLE_ENTITY", "")
	}
	require.NotEqual(t, first.Text("executionId"), c.Post(t, execute, apitest.Raw(`{"a":1.10,"b":2}`), key("two")).Expect(http.StatusOK).Text("executionId"))
	other := tenant.As(t, identity.RoleAdmin)
	require.NotEqual(t, first.Text("executionId"), other.Post(t, execute, apitest.Raw(`{"a":1.10,"b":2}`), key("one")).Expect(http.StatusOK).Text("executionId"),
		"keys belong to one client")
	c.Post(t, execute, apitest.Raw(`{"a":1}`), key(strings.Repeat("k", 256))).ExpectProblem(http.StatusBadRequest, "VALIDATION_ERROR", "", "Idempotency-Key")
	c.Post(t, execute, apitest.Raw(`{"a":1}`), key(strings.Repeat("é", 255))).Expect(http.StatusOK)

	c.Post(t, execute, apitest.Raw(`{"a":1}`), key("two"), key("four")).ExpectProblem(http.StatusBadRequest, "VALIDATION_ERROR", "", "Idempotency-Key")

	// A request without an effect does not use the key.
	c.Post(t, execute, apitest.Raw(`{"a":"x"}`), key("three")).Expect(http.StatusUnprocessableEntity)
	c.Post(t, execute, apitest.Raw(`{"a":3}`), key("three")).Expect(http.StatusOK)

	// An answer is replayed after the workflow is archived, but not after a day.
	c.Post(t, "/v2/workflows/"+id+"/archive", nil).Expect(http.StatusOK)
	require.Equal(t, first.Body, c.Post(t, execute, apitest.Raw(`{"a":1.10,"b":2}`), key("one")).Expect(http.StatusOK).Body)
	pgtest.ExpireIdempotencyKeys(t, s.Pool, tenant.ID)
	c.Post(t, execute, apitest.Raw(`{"a":1.10,"b":2}`), key("one")).ExpectProblem(http.StatusConflict, "CONFLICT", "INVALID_WORKFLOW_STATUS")
}

// A stored fingerprint does not reveal the request, and it is still recognised after the
// master key is rotated.
func TestIdempotencyFingerprintsAreKeyed(t *testing.T) {
	t.Parallel()
	master := secret.GenerateKey()
	keys := func(text string) *secret.Keyring {
		ring, err := secret.ParseKeys(text)
		require.NoError(t, err)
		return ring
	}
	s := apitest.Start(t, func(c *server.Config) { c.Keys = keys(master) })
	c := s.Tenant(t).As(t, identity.RoleAdmin)
	publish(t, c, sumWorkflow)
	const execute = "/v1/workflows/sum/v1/execute"
	first := c.Post(t, execute, apitest.Raw(`{"a":1}`), key("one")).Expect(http.StatusOK)
	h := sha256.New()
	for _, part := range []string{http.MethodPost, execute, "", `{"a":1}`} {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	var kept []byte
	require.NoError(t, s.Pool.QueryRow(t.Context(), "SELECT fingerprint FROM idempotency_keys").Scan(&kept))
	require.Len(t, kept, sha256.Size)
	require.NotEqual(t, h.Sum(nil), kept, "the fingerprint is not a plain hash, which could be guessed")

	changed := apitest.Start(t, func(c *server.Config) {
		c.DatabaseURL, c.Keys = s.DatabaseURL, keys(secret.GenerateKey()+","+master)
	}).WithToken(c.Token)
	require.Equal(t, first.Body, changed.Post(t, execute, apitest.Raw(`{"a":1}`), key("one")).Expect(http.StatusOK).Body)
	changed.Post(t, execute, apitest.Raw(`{"a":2}`), key("one")).Expect(http.StatusUnprocessableEntity)
}

// A key can be used again after a day.
func testIdempotencyKeyExpires(t *testing.T, s *apitest.Service) {
	t.Helper()
	tenant := s.Tenant(t)
	c := tenant.As(t, identity.RoleAdmin)
	publish(t, c, sumWorkflow)
	execute := func() string {
		return c.Post(t, "/v1/workflows/sum/v1/execute", apitest.Raw(`{"a":1}`), key("one")).Expect(http.StatusOK).Text("executionId")
	}
	first := execute()
	pgtest.ExpireIdempotencyKeys(t, s.Pool, tenant.ID)
	second := execute()
	require.NotEqual(t, first, second)
	require.Equal(t, second, execute())
}

// The first answer is replayed, also after a wait has timed out or a retry has changed the
// result.
func testIdempotencyFirstAnswerIsKept(t *testing.T, s *apitest.Service) {
	t.Helper()
	c := s.Tenant(t).As(t, identity.RoleAdmin)
	b := newBureau(t)
	publish(t, c, b.workflow("ask", ""))
	const execute = "/v1/workflows/ask/v1/execute"

	release := b.Hold()
	waited := c.Post(t, execute, apitest.Raw(`{}`), key("waited"), apitest.Header{Name: "Prefer", Value: "wait=1"}).Expect(http.StatusAccepted)
	require.Equal(t, waited.Body, c.Post(t, execute, apitest.Raw(`{}`), key("waited")).Expect(http.StatusAccepted).Body)
	release()
	require.Equal(t, "completed", awaitEnd(t, c, waited.Text("executionId")).Text("status"))
	require.Equal(t, waited.Body, c.Post(t, execute, apitest.Raw(`{}`), key("waited")).Expect(http.StatusAccepted).Body)

	b.Queue(score(http.StatusInternalServerError))
	failed := c.Post(t, execute, apitest.Raw(`{}`), key("failed")).Expect(http.StatusOK)
	c.Post(t, "/v1/executions/"+failed.Text("executionId")+"/retry", nil).Expect(http.StatusAccepted)
	require.Equal(t, "completed", awaitEnd(t, c, failed.Text("executionId")).Text("status"))
	replayed := c.Post(t, execute, apitest.Raw(`{}`), key("failed")).Expect(http.StatusOK)
	require.Equal(t, "true", replayed.Header.Get("Idempotency-Replayed"))
	require.JSONEq(t, string(failed.Body), string(replayed.Body))
}

// A replayed answer has the preference of the repeated request that it satisfies.
func testIdempotencyPreferences(t *testing.T, s *apitest.Service) {
	t.Helper()
	c := s.Tenant(t).As(t, identity.RoleAdmin)
	publish(t, c, sumWorkflow)
	for name, tc := range map[string]struct {
		first, again string
		status       int
		applied      string
	}{
		"asynchronous":       {"respond-async", "respond-async", http.StatusAccepted, "respond-async"},
		"waited":             {"wait=30", "wait=30", http.StatusOK, "wait=30"},
		"none":               {"", "", http.StatusOK, ""},
		"asked for no more":  {"respond-async", "", http.StatusAccepted, ""},
		"asked for too late": {"", "respond-async", http.StatusOK, ""},
		"waited no more":     {"respond-async", "wait=30", http.StatusAccepted, ""},
		"unknown":            {"handling=strict", "handling=strict", http.StatusOK, ""},
		"malformed":          {"wait=5", "wait=0", http.StatusOK, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			call := func(prefer string) *apitest.Answer {
				return c.Post(t, "/v1/workflows/sum/v1/execute", apitest.Raw(`{"a":1}`), key(name), apitest.Header{Name: "Prefer", Value: prefer}).Expect(tc.status)
			}
			first, again := call(tc.first), call(tc.again)
			require.Equal(t, first.Body, again.Body)
			require.Equal(t, "true", again.Header.Get("Idempotency-Replayed"))
			require.Equal(t, tc.applied, again.Header.Get("Preference-Applied"))
			if tc.first == tc.again {
				require.Equal(t, tc.applied, first.Header.Get("Preference-Applied"))
			}
		})
	}
}

// A repeated request is logged with the first execution or with none, because its own was
// rolled back.
func TestIdempotencyLogsFirstExecution(t *testing.T) {
	t.Parallel()
	log := &safeBuffer{}
	s := apitest.Start(t, func(c *server.Config) { c.Log = slog.New(logging.NewHandler(slog.NewJSONHandler(log, nil))) })
	c := s.Tenant(t).As(t, identity.RoleAdmin)
	publish(t, c, sumWorkflow)
	const path = "/v1/workflows/sum/v1/execute"
	for _, prefer := range []string{"respond-async", ""} {
		begin := len(log.String())
		header := apitest.Header{Name: "Prefer", Value: prefer}
		first := c.Post(t, path, apitest.Raw(`{"a":1}`), key(prefer+"1"), header).Text("executionId")
		c.Post(t, path, apitest.Raw(`{"a":1}`), key(prefer+"1"), header)
		c.Post(t, path, apitest.Raw(`{"a":2}`), key(prefer+"1"), header).Expect(http.StatusUnprocessableEntity)
		require.Eventually(t, func() bool { return strings.Count(log.String()[begin:], path) == 3 }, 10*time.Second, time.Millisecond)
		for line := range strings.Lines(log.String()[begin:]) {
			if _, id, ok := strings.Cut(line, `"executionId":"`); ok && strings.Contains(line, path) {
				require.Equal(t, first, id[:36])
			}
		}
	}
}
