package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tranche/internal/apitest"
	"tranche/internal/identity"
)

// counted is a definition with an integer in every place that requires one.
const counted = `{"name": "Counted", "alias": "counted", "executionMode": "sync", "timeoutSeconds": 20,
	"inputSchema": {"type": "object", "properties": {"months": {"type": "integer"}, "name": {"type": "string", "minLength": 2e0}}},
	"tasks": [
		{"id": "call", "type": "http-request", "config": {"method": "GET", "url": "http://127.0.0.1:1/", "when": "false", "timeoutMs": 2000.0,
			"successStatus": [200.0], "followRedirects": 2.0, "maxResponseBytes": 2e3,
			"retry": {"maxAttempts": 2.0, "initialDelayMs": 2.0, "maxDelayMs": 3.0, "retryOn": ["TIMEOUT", 503.0]}}},
		{"id": "end", "type": "end", "config": {"statusCode": 299.0}}],
	"edges": [{"source": "start", "target": "call"}, {"source": "call", "target": "end"}]}`

// Integers are accepted in every notation, because some libraries have one number type.
func testExecuteIntegers(t *testing.T, s *apitest.Service) {
	t.Helper()
	c := s.Tenant(t).As(t, identity.RoleAdmin)
	id := c.Post(t, "/v2/workflows", apitest.Raw(counted)).Expect(http.StatusCreated).Text("id")
	c.Put(t, "/v2/workflows/"+id, apitest.Raw(`{"timeoutSeconds": 30.0}`)).Expect(http.StatusOK)
	require.Equal(t, "30", c.Get(t, "/v2/workflows/"+id).Expect(http.StatusOK).Text("timeoutSeconds"))
	c.Post(t, "/v2/workflows/"+id+"/publish", nil).Expect(http.StatusOK)
	ran := c.Post(t, "/v1/workflows/counted/v1/execute", apitest.Raw(`{"months": 36.0, "name": "Ana"}`)).Expect(http.StatusOK)
	require.Equal(t, "299", ran.Text("statusCode"))
	configured := c.Post(t, configurePath, scheduled(id, `"schedule":{"cron":"0 0 * * *","utcDeltaHours":-5.0}`)).Expect(http.StatusOK)
	require.Equal(t, "-5", configured.Text("schedule.utcDeltaHours"))

	// Other numbers are rejected.
	problem := c.Post(t, "/v2/workflows", apitest.Raw(`{"name":"x","alias":"x","timeoutSeconds":60.5}`)).
		ExpectProblem(http.StatusBadRequest, "VALIDATION_ERROR", "INVALID_FIELD_TYPE", "timeoutSeconds")
	require.Equal(t, "must be an integer", problem.Details[0].Message)
	c.Post(t, configurePath, scheduled(id, `"schedule":{"cron":"0 0 * * *","utcDeltaHours":-5.5}`)).
		ExpectProblem(http.StatusBadRequest, "VALIDATION_ERROR", "INVALID_FIELD_TYPE", "schedule.utcDeltaHours")
	c.Post(t, configurePath, scheduled(id, `"schedule":{"cron":"0 0 * * *","utcDeltaHours":15.0}`)).
		ExpectProblem(http.StatusBadRequest, "VALIDATION_ERROR", "", "schedule.utcDeltaHours")
	c.Post(t, "/v1/workflows/counted/v1/execute", apitest.Raw(`{"months": 36.5}`)).
		ExpectProblem(http.StatusUnprocessableEntity, "UNPROCESSABLE_ENTITY", "INPUT_SCHEMA_MISMATCH", "months")
	fractions := strings.NewReplacer(`"counted"`, `"fractions"`, "000.0", "000.5", "00.0", "00.5", "2.0", "2.5", "3.0", "3.5", "99.0", "99.5", "2e3", "2e-3")
	id = c.Post(t, "/v2/workflows", apitest.Raw(fractions.Replace(counted))).Expect(http.StatusCreated).Text("id")
	c.Post(t, "/v2/workflows/"+id+"/publish", nil).
		ExpectProblem(http.StatusUnprocessableEntity, "UNPROCESSABLE_ENTITY", "", "tasks[0].config.timeoutMs", "tasks[0].config.successStatus[0]",
			"tasks[0].config.followRedirects", "tasks[0].config.maxResponseBytes", "tasks[0].config.retry.maxAttempts",
			"tasks[0].config.retry.initialDelayMs", "tasks[0].config.retry.maxDelayMs", "tasks[0].config.retry.retryOn[1]", "tasks[1].config.statusCode")
}
