package api_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"tranche/internal/apitest"
	"tranche/internal/identity"
)

func TestSandbox(t *testing.T) {
	t.Parallel()
	runShared(t, map[string]func(*testing.T, *apitest.Service){
		"RunsTestsOnly": testSandboxRunsTestsOnly,
		"Schedules":     testSandboxSchedules,
		"TokenRefresh":  testSandboxTokenRefresh,
	})
}

// A sandbox client can read executions that are not tests, but it cannot control them.
func testSandboxRunsTestsOnly(t *testing.T, s *apitest.Service) {
	t.Helper()
	tenant := s.Tenant(t)
	c, sandbox := tenant.As(t, identity.RoleAdmin), tenant.Sandbox(t, identity.RoleAdmin)
	publish(t, c, `{"name":"Fails","alias":"fails","tasks":[{"id":"done","type":"end","config":{"status":"failed"}}]}`)
	const path = "/v1/workflows/fails/v1/execute"
	for caller, status := range map[*apitest.Caller]int{c: http.StatusForbidden, sandbox: http.StatusAccepted} {
		id := caller.Post(t, path, apitest.Raw(`{}`)).Expect(http.StatusOK).Text("executionId")
		batch := caller.Post(t, path+"-batch", apitest.Raw(`{"workflowInput":{"items":[{}]}}`)).Expect(http.StatusAccepted).Text("executionBatchId")
		awaitBatch(t, caller, batch)
		sandbox.Get(t, "/v1/executions/"+id).Expect(http.StatusOK)
		for _, verb := range []string{"pause", "resume", "cancel"} {
			controlled := sandbox.Post(t, "/v1/execution-batches/"+batch+"/"+verb, nil)
			if status == http.StatusForbidden {
				controlled.Expect(http.StatusForbidden)
			} else {
				controlled.Expect(http.StatusConflict) // its own execution has ended
			}
		}
		retries := []*apitest.Answer{
			sandbox.Post(t, "/v1/executions/"+id+"/retry", nil),
			sandbox.Post(t, "/v1/execution-batches/"+batch+"/retry", apitest.Raw(`{"retryMode":"failed_items"}`)),
		}
		for _, retried := range retries {
			retried.Expect(status)
			if status == http.StatusForbidden {
				require.Equal(t, "a sandbox client makes test executions only", retried.Text("message"))
			}
		}
	}
	publish(t, c, `{"name":"Waits","alias":"waits","tasks":[{"id":"wait","type":"wait-for-signal","config":{}}]}`)
	waits := c.Post(t, "/v1/workflows/waits/v1/execute", apitest.Raw(`{}`)).Expect(http.StatusAccepted).Text("executionId")
	sandbox.Post(t, "/v1/executions/"+waits+"/signals", apitest.Raw(`{"taskId":"wait"}`)).Expect(http.StatusForbidden)
	sandbox.Post(t, "/v1/executions/"+waits+"/cancel", nil).Expect(http.StatusForbidden)
	c.Post(t, "/v1/executions/"+waits+"/cancel", nil).Expect(http.StatusOK)
	sandbox.Post(t, "/v1/executions/"+unknownID+"/retry", nil).Expect(http.StatusNotFound)
	sandbox.Post(t, "/v1/execution-batches/"+unknownID+"/retry", apitest.Raw(`{"retryMode":"failed_items"}`)).Expect(http.StatusNotFound)
	sandbox.Post(t, "/v1/execution-batches/"+unknownID+"/pause", nil).Expect(http.StatusNotFound)
}

// A sandbox client cannot replace or delete schedules that are not tests. Other clients can
// replace schedules of tests.
func testSandboxSchedules(t *testing.T, s *apitest.Service) {
	t.Helper()
	tenant := s.Tenant(t)
	c, sandbox := tenant.As(t, identity.RoleAdmin), tenant.Sandbox(t, identity.RoleAdmin)
	id := publish(t, c, `{"name":"x","alias":"nightly","tasks":[{"id":"done","type":"end","config":{}}]}`)
	const commands = "/v1/workflows/commands/"
	single := apitest.Raw(`{"workflowId":"` + id + `","schedule":{"cron":"30 6 * * *"}}`)
	both := apitest.Raw(`{"workflowId":"` + id + `","schedule":{"cron":"0 1 * * *"},"scheduleBatch":{"cron":"0 2 * * *"}}`)
	deleted := apitest.Raw(`{"workflowId":"` + id + `","schedule":true,"scheduleBatch":true}`)
	c.Post(t, commands+"configure-schedules", single).Expect(http.StatusOK)
	for command, body := range map[string]any{"configure-schedules": both, "delete-schedules": deleted} {
		refused := sandbox.Post(t, commands+command, body).Expect(http.StatusForbidden)
		require.Equal(t, "a sandbox client makes test executions only", refused.Text("message"))
	}
	kept := c.Get(t, "/v1/workflows/"+id+"/schedules").Expect(http.StatusOK)
	require.Equal(t, "30 6 * * *", kept.Text("schedule.cron"))
	require.NotContains(t, string(kept.Body), "scheduleBatch", "nothing is deleted")

	c.Post(t, commands+"delete-schedules", deleted).Expect(http.StatusOK)
	sandbox.Post(t, commands+"configure-schedules", both).Expect(http.StatusOK)
	sandbox.Post(t, commands+"configure-schedules", both).Expect(http.StatusOK)
	sandbox.Post(t, commands+"delete-schedules", deleted).Expect(http.StatusOK)
	sandbox.Post(t, commands+"configure-schedules", both).Expect(http.StatusOK)
	c.Post(t, commands+"configure-schedules", single).Expect(http.StatusOK)
}

// A refreshed token of a sandbox client is a sandbox token.
func testSandboxTokenRefresh(t *testing.T, s *apitest.Service) {
	t.Helper()
	tenant := s.Tenant(t)
	c, sandbox := tenant.As(t, identity.RoleAdmin), tenant.Sandbox(t, identity.RoleAdmin)
	publish(t, c, `{"name":"Fails","alias":"fails","tasks":[{"id":"done","type":"end","config":{"status":"failed"}}]}`)
	id := c.Post(t, "/v1/workflows/fails/v1/execute", apitest.Raw(`{}`)).Expect(http.StatusOK).Text("executionId")
	const path = "/identity/resources/auth/v1/api-token"
	token := s.Anonymous().Post(t, path, map[string]any{"clientId": sandbox.ClientID, "secret": sandbox.Secret}).Expect(http.StatusOK)
	for range 2 {
		token = s.Anonymous().Post(t, path+"/refresh", map[string]any{"refreshToken": token.Text("refreshToken")}).Expect(http.StatusOK)
		s.WithToken(token.Text("accessToken")).Post(t, "/v1/executions/"+id+"/retry", nil).ExpectProblem(http.StatusForbidden, "FORBIDDEN", "")
	}
}
