package api_test

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tranche/internal/apitest"
	"tranche/internal/execution"
	"tranche/internal/identity"
	"tranche/internal/logging"
	"tranche/internal/server"
	"tranche/internal/targettest"
)

// publishGraph creates and publishes a workflow and returns its id.
func publishGraph(t *testing.T, c *apitest.Caller, alias, tasks, edges string) string {
	t.Helper()
	id := c.Post(t, "/v2/workflows", apitest.Raw(`{"name":"x","alias":"`+alias+`","tasks":`+tasks+`,"edges":`+edges+`}`)).
		Expect(http.StatusCreated).Text("id")
	c.Post(t, "/v2/workflows/"+id+"/publish", nil).Expect(http.StatusOK)
	return id
}

// eventually waits until an execution has a status.
func eventually(t *testing.T, c *apitest.Caller, id, status string) {
	t.Helper()
	require.Eventually(t, func() bool {
		return c.Get(t, "/v1/executions/"+id+"/status").Text("status") == status
	}, 30*time.Second, 20*time.Millisecond)
}

const approval = `[{"id":"approval","type":"wait-for-signal","config":{"timeoutMs":3600000,"schema":{"type":"object","required":["approved"]}}},
	{"id":"done","type":"end","config":{"output":{"by":"{{ tasks.approval.output.by }}"}}}]`

func TestSignals(t *testing.T) {
	t.Parallel()
	runShared(t, map[string]func(*testing.T, *apitest.Service){
		"Deliver":               testSignalsDeliver,
		"EarlySignal":           testSignalsEarlySignal,
		"PayloadErrors":         testSignalsPayloadErrors,
		"CallbackURLAfterRetry": testSignalsCallbackURLAfterRetry,
		"SubWorkflow":           testSignalsSubWorkflow,
		"SecretsAreSealed":      testSignalsSecretsAreSealed,
	})
}

func testSignalsDeliver(t *testing.T, s *apitest.Service) {
	t.Helper()
	c := s.Tenant(t).As(t, identity.RoleAdmin)
	publishGraph(t, c, "approval", approval, `[{"source":"start","target":"approval"},{"source":"approval","target":"done"}]`)
	id := c.Post(t, "/v1/workflows/approval/v1/execute", apitest.Raw(`{}`)).Expect(http.StatusAccepted).Text("executionId")
	signals := "/v1/executions/" + id + "/signals"
	eventually(t, c, id, "running")

	c.Post(t, signals, apitest.Raw(`{"taskId":"nobody","payload":{}}`)).ExpectProblem(http.StatusBadRequest, "VALIDATION_ERROR", "", "taskId")
	c.Post(t, signals, apitest.Raw(`{"taskId":"approval","payload":{}}`)).ExpectProblem(http.StatusBadRequest, "VALIDATION_ERROR", "", "payload.approved")
	c.Post(t, signals, apitest.Raw(`{"payload":{}}`)).ExpectProblem(http.StatusBadRequest, "VALIDATION_ERROR", "MISSING_REQUIRED_FIELD", "taskId")
	c.Post(t, signals, apitest.Raw(`{"taskId":"approval","payload":{"approved":true,"by":1.10}}`)).Expect(http.StatusAccepted)
	c.Post(t, signals, apitest.Raw(`{"taskId":"approval","payload":{"approved":false}}`)).Expect(http.StatusBadRequest)
	eventually(t, c, id, "completed")
	require.Contains(t, string(c.Get(t, "/v1/executions/"+id+"/output").Expect(http.StatusOK).Body), `"output":{"by":1.10}`)
	c.Post(t, signals, apitest.Raw(`{"taskId":"approval","payload":{"approved":true}}`)).
		ExpectProblem(http.StatusBadRequest, "VALIDATION_ERROR", "INVALID_EXECUTION_STATUS")
}

func testSignalsEarlySignal(t *testing.T, s *apitest.Service) {
	t.Helper()
	c := s.Tenant(t).As(t, identity.RoleAdmin)
	target := targettest.New(t)
	release := target.Hold()
	publishGraph(t, c, "early", `[{"id":"slow","type":"http-request","config":{"url":"`+target.URL+`"}},`+approval[1:],
		`[{"source":"start","target":"slow"},{"source":"slow","target":"approval"},{"source":"approval","target":"done"}]`)
	id := c.Post(t, "/v1/workflows/early/v1/execute", apitest.Raw(`{}`)).Expect(http.StatusAccepted).Text("executionId")
	c.Post(t, "/v1/executions/"+id+"/signals", apitest.Raw(`{"taskId":"approval","payload":{"approved":true,"by":"x"}}`)).Expect(http.StatusAccepted)
	c.Post(t, "/v1/executions/"+id+"/signals", apitest.Raw(`{"taskId":"approval","payload":{"approved":true}}`)).Expect(http.StatusBadRequest)
	release()
	eventually(t, c, id, "completed")
}

func TestCallbackURLs(t *testing.T) {
	t.Parallel()
	log := &safeBuffer{}
	s := apitest.Start(t, func(c *server.Config) {
		c.Log = slog.New(logging.NewHandler(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	})
	c := s.Tenant(t).As(t, identity.RoleAdmin)
	target := targettest.New(t)
	publishGraph(t, c, "asked", `[{"id":"each","type":"for-each","config":{"items":"[1, 2]","tasks":[
		{"id":"ask","type":"http-request","config":{"url":"`+target.URL+`","query":{"to":"{{ callbackUrl(\"answer\") }}"}}},
		{"id":"answer","type":"wait-for-signal","config":{}}],
		"edges":[{"source":"start","target":"ask"},{"source":"ask","target":"answer"}]}}]`, `[]`)
	id := c.Post(t, "/v1/workflows/asked/v1/execute", apitest.Raw(`{}`)).Expect(http.StatusAccepted).Text("executionId")
	anyone := s.Anonymous()
	for _, call := range target.Wait(2) {
		address := strings.TrimPrefix(call.Query.Get("to"), s.URL)
		forged := address[:len(address)-2] + "xx"
		anyone.Post(t, forged, apitest.Raw(`{}`)).ExpectProblem(http.StatusNotFound, "NOT_FOUND", "")
		anyone.Post(t, address, apitest.Raw(`{"ok":true}`)).Expect(http.StatusAccepted)
		anyone.Post(t, address, apitest.Raw(`{"ok":true}`)).Expect(http.StatusBadRequest)
		require.NotContains(t, log.String(), strings.TrimPrefix(address, execution.CallbackPath))
	}
	require.Contains(t, log.String(), execution.CallbackPath)
	eventually(t, c, id, "completed")
	require.Contains(t, string(c.Get(t, "/v1/executions/"+id+"/output").Body), `"each":[{"ok":true},{"ok":true}]`)
}

// Errors name the field that the caller sent. The body of a callback is the payload.
func testSignalsPayloadErrors(t *testing.T, s *apitest.Service) {
	t.Helper()
	c := s.Tenant(t).As(t, identity.RoleAdmin)
	target := targettest.New(t)
	publishGraph(t, c, "asked", `[{"id":"ask","type":"http-request","config":{"url":"`+target.URL+`","query":{"to":"{{ callbackUrl(\"answer\") }}"}}},
		{"id":"answer","type":"wait-for-signal","config":{"schema":{"type":["object","array"],"properties":{"a":{"type":"string"}},"items":{"type":"integer"}}}}]`,
		`[{"source":"start","target":"ask"},{"source":"ask","target":"answer"}]`)
	id := c.Post(t, "/v1/workflows/asked/v1/execute", apitest.Raw(`{}`)).Expect(http.StatusAccepted).Text("executionId")
	address := strings.TrimPrefix(target.Wait(1)[0].Query.Get("to"), s.URL)
	for payload, fields := range map[string][2]string{
		`7`:       {"payload", "body"},
		`{"a":1}`: {"payload.a", "a"},
		`[1,"2"]`: {"payload[1]", "[1]"},
	} {
		c.Post(t, "/v1/executions/"+id+"/signals", apitest.Raw(`{"taskId":"answer","payload":`+payload+`}`)).
			ExpectProblem(http.StatusBadRequest, "VALIDATION_ERROR", "", fields[0])
		s.Anonymous().Post(t, address, apitest.Raw(payload)).ExpectProblem(http.StatusBadRequest, "VALIDATION_ERROR", "", fields[1])
	}
	c.Post(t, "/v1/executions/"+id+"/signals", apitest.Raw(`{"taskId":"answer","payload":[]}`)).Expect(http.StatusAccepted)
	s.Anonymous().Post(t, address, apitest.Raw(`[]`)).Expect(http.StatusBadRequest)
}

// The waits of a retry have new callback URLs. URLs of the previous attempt do not answer
// them.
func testSignalsCallbackURLAfterRetry(t *testing.T, s *apitest.Service) {
	t.Helper()
	c := s.Tenant(t).As(t, identity.RoleAdmin)
	publishGraph(t, c, "declined", `[
		{"id":"address","type":"transform","config":{"fields":{"to":"{{ callbackUrl(\"answer\") }}"}}},
		{"id":"answer","type":"wait-for-signal","config":{}},
		{"id":"done","type":"end","config":{"status":"failed","errorMessage":"{{ tasks.answer.output.why }}"}}]`,
		`[{"source":"start","target":"address"},{"source":"address","target":"answer"},{"source":"answer","target":"done"}]`)
	id := c.Post(t, "/v1/workflows/declined/v1/execute", apitest.Raw(`{}`)).Expect(http.StatusAccepted).Text("executionId")
	address := func(attempt string) string {
		var state *apitest.Answer
		require.Eventually(t, func() bool {
			state = c.Get(t, "/v1/executions/"+id+"/state").Expect(http.StatusOK)
			return state.Text("attempt") == attempt && state.Text("tasks[1].status") == "waiting"
		}, 30*time.Second, 20*time.Millisecond)
		return strings.TrimPrefix(state.Text("tasks[0].output.to"), s.URL)
	}
	anyone := s.Anonymous()
	first := address("1")
	anyone.Post(t, first, apitest.Raw(`{"why":"no income"}`)).Expect(http.StatusAccepted)
	eventually(t, c, id, "failed")
	c.Post(t, "/v1/executions/"+id+"/retry", apitest.Raw(`{}`)).Expect(http.StatusAccepted)

	second := address("2")
	require.NotEqual(t, first, second)
	anyone.Post(t, first, apitest.Raw(`{"why":"again"}`)).ExpectProblem(http.StatusBadRequest, "VALIDATION_ERROR", "", "taskId")
	anyone.Post(t, second, apitest.Raw(`{"why":"no job"}`)).Expect(http.StatusAccepted)
	eventually(t, c, id, "failed")
	require.Equal(t, "no job", c.Get(t, "/v1/executions/"+id+"/output").Expect(http.StatusOK).Text("errorMessage"))
}

func testSignalsSubWorkflow(t *testing.T, s *apitest.Service) {
	t.Helper()
	c := s.Tenant(t).As(t, identity.RoleAdmin)
	publishGraph(t, c, "inner", `[{"id":"double","type":"transform","config":{"fields":{"n":"{{ input.n * 2 }}"}}}]`, `[]`)
	publishGraph(t, c, "outer", `[{"id":"sub","type":"sub-workflow","config":{"alias":"inner","version":"latest","input":{"n":"{{ input.n }}"}}}]`, `[]`)
	answer := c.Post(t, "/v1/workflows/outer/v1/execute", apitest.Raw(`{"n":1.10}`)).Expect(http.StatusOK)
	require.Contains(t, string(answer.Body), `"output":{"n":2.2}`)

	for tasks, fields := range map[string][]string{
		`[{"id":"sub","type":"sub-workflow","config":{"alias":"none","version":"v1"}}]`:                         {"tasks[0].config"},
		`[{"id":"sub","type":"sub-workflow","config":{"alias":"inner","version":"v2"}}]`:                        {"tasks[0].config"},
		`[{"id":"sub","type":"sub-workflow","config":{"alias":"self","version":"latest"}}]`:                     {"tasks[0].config"},
		`[{"id":"e","type":"for-each","config":{"items":"[]","workflow":{"alias":"none","version":"latest"}}}]`: {"tasks[0].config.workflow"},
		// One response has the errors of the definition and of its references.
		`[{"id":"sub","type":"sub-workflow","config":{"alias":"none","version":"v1","input":"{{ nothing }}"}}]`: {"tasks[0].config", "tasks[0].config.input"},
		`[{"id":"sub","type":"sub-workflow","config":{"alias":"none","version":"1"}}]`:                          {"tasks[0].config.version"},
		`[{"id":"to","type":"transform","config":{"fields":{"a":"{{ callbackUrl(\"nope\") }}"}}}]`:              {"tasks[0].config.fields.a"},
	} {
		id := c.Post(t, "/v2/workflows", apitest.Raw(`{"name":"x","alias":"self","tasks":`+tasks+`}`)).Expect(http.StatusCreated).Text("id")
		c.Post(t, "/v2/workflows/"+id+"/publish", nil).ExpectProblem(http.StatusUnprocessableEntity, "UNPROCESSABLE_ENTITY", "", fields...)
		found := string(c.Post(t, "/v2/workflows/"+id+"/validate", nil).Expect(http.StatusOK).Body)
		for _, field := range fields {
			require.Contains(t, found, `"`+field+`"`)
		}
		c.Delete(t, "/v2/workflows/"+id).Expect(http.StatusNoContent)
	}

	// A workflow that runs a waiting workflow is asynchronous.
	publishGraph(t, c, "waits", `[{"id":"pause","type":"delay","config":{"forMs":10}}]`, `[]`)
	publishGraph(t, c, "around", `[{"id":"sub","type":"sub-workflow","config":{"alias":"waits","version":"v1"}}]`, `[]`)
	id := c.Post(t, "/v1/workflows/around/v1/execute", apitest.Raw(`{}`)).Expect(http.StatusAccepted).Text("executionId")
	eventually(t, c, id, "completed")
}

func testSignalsSecretsAreSealed(t *testing.T, s *apitest.Service) {
	t.Helper()
	tenant := s.Tenant(t)
	c := tenant.As(t, identity.RoleAdmin)
	target := targettest.New(t, targettest.WithAnswer(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte("you said " + r.Header.Get("Authorization")))
	}))
	host := strings.TrimPrefix(target.URL, "http://")
	put := c.Put(t, "/v1/secrets/bureau", apitest.Raw(`{"value":"open sesame","hosts":["`+host+`"]}`)).Expect(http.StatusOK)
	require.NotContains(t, string(put.Body), "sesame")
	require.NotContains(t, string(c.Get(t, "/v1/secrets/bureau").Expect(http.StatusOK).Body), "sesame")
	var sealed []byte
	require.NoError(t, s.Pool.QueryRow(t.Context(), `SELECT value FROM secrets WHERE tenant_id = $1`, tenant.ID).Scan(&sealed))
	require.NotContains(t, string(sealed), "sesame")

	publishGraph(t, c, "secretive", `[{"id":"ask","type":"http-request","config":{"url":"`+target.URL+`","auth":{"type":"bearer","secret":"bureau"}}}]`, `[]`)
	answer := c.Post(t, "/v1/workflows/secretive/v1/execute", apitest.Raw(`{}`)).Expect(http.StatusOK)
	require.Equal(t, "Bearer open sesame", target.Last().Header.Get("Authorization"))
	require.Contains(t, string(answer.Body), "you said Bearer [redacted]")
	require.NotContains(t, string(answer.Body), "sesame")

	c.Put(t, "/v1/secrets/bureau", apitest.Raw(`{"value":"short","hosts":[]}`)).
		ExpectProblem(http.StatusBadRequest, "VALIDATION_ERROR", "", "hosts", "value")
	c.Put(t, "/v1/secrets/bureau", apitest.Raw(`{"value":"long enough","hosts":["https://a.example/"]}`)).
		ExpectProblem(http.StatusBadRequest, "VALIDATION_ERROR", "", "hosts[0]")
	c.Put(t, "/v1/secrets/bureau", apitest.Raw(`{"value":"other value","hosts":["other.example"]}`)).Expect(http.StatusOK)
	require.Contains(t, string(c.Post(t, "/v1/workflows/secretive/v1/execute", apitest.Raw(`{}`)).Body), "secret bureau must not be sent to this host")
	c.Delete(t, "/v1/secrets/bureau").Expect(http.StatusNoContent)
	c.Get(t, "/v1/secrets/bureau").Expect(http.StatusNotFound)
	require.Contains(t, string(c.Post(t, "/v1/workflows/secretive/v1/execute", apitest.Raw(`{}`)).Body), "there is no secret bureau")
}
