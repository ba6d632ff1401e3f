package api_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"tranche/internal/apitest"
	"tranche/internal/identity"
)

func TestExecutionControl(t *testing.T) {
	t.Parallel()
	runShared(t, map[string]func(*testing.T, *apitest.Service){
		"TimeoutOfWait":   testExecutionControlTimeoutOfWait,
		"TimeoutOfRetry":  testExecutionControlTimeoutOfRetry,
		"SkipNestedTask":  testExecutionControlSkipNestedTask,
		"Retry":           testExecutionControlRetry,
		"TagsOfRetry":     testExecutionControlTagsOfRetry,
		"RetrySkipsTasks": testExecutionControlRetrySkipsTasks,
		"Errors":          testExecutionControlErrors,
	})
}

// The message of an execution that waited for a job has the time limit of the workflow, not
// the time from its start to its deadline.
func testExecutionControlTimeoutOfWait(t *testing.T, s *apitest.Service) {
	t.Helper()
	c := s.Tenant(t).As(t, identity.RoleAdmin)
	publish(t, c, `{"name":"x","alias":"waits","timeoutSeconds":1,"tasks":[{"id":"rest","type":"delay","config":{"forMs":60000}}]}`)
	id := c.Post(t, "/v1/workflows/waits/v1/execute", apitest.Raw(`{}`)).Expect(http.StatusAccepted).Text("executionId")
	eventually(t, c, id, "timeout")
	require.Equal(t, "the execution exceeded its time limit of 1s", c.Get(t, "/v1/executions/"+id+"/output").Expect(http.StatusOK).Text("errorMessage"))
}

// The time limit of an execution starts again with each attempt.
func testExecutionControlTimeoutOfRetry(t *testing.T, s *apitest.Service) {
	t.Helper()
	c := s.Tenant(t).As(t, identity.RoleAdmin)
	publish(t, c, `{"name":"x","alias":"waits","timeoutSeconds":3,"tasks":[{"id":"answer","type":"wait-for-signal","config":{}}]}`)
	id := c.Post(t, "/v1/workflows/waits/v1/execute", apitest.Raw(`{}`)).Expect(http.StatusAccepted).Text("executionId")
	eventually(t, c, id, "timeout")
	c.Post(t, "/v1/executions/"+id+"/retry", nil).Expect(http.StatusAccepted)
	c.Post(t, "/v1/executions/"+id+"/signals", apitest.Raw(`{"taskId":"answer"}`)).Expect(http.StatusAccepted)
	require.Equal(t, "completed", awaitEnd(t, c, id).Text("status"))
}

// The error explains why a nested task cannot be skipped.
func testExecutionControlSkipNestedTask(t *testing.T, s *apitest.Service) {
	t.Helper()
	c := s.Tenant(t).As(t, identity.RoleAdmin)
	publish(t, c, `{"name":"x","alias":"nests","tasks":[
		{"id":"outer","type":"for-each","config":{"items":"[1]","tasks":[
			{"id":"inner","type":"for-each","config":{"items":"[1]","tasks":[{"id":"h","type":"transform","config":{"fields":{}}}]}}]}},
		{"id":"done","type":"end","config":{"status":"failed","errorMessage":"no"}}],
		"edges":[{"source":"start","target":"outer"},{"source":"outer","target":"done"}]}`)
	id := c.Post(t, "/v1/workflows/nests/v1/execute", apitest.Raw(`{}`)).Expect(http.StatusOK).Text("executionId")
	refused := c.Post(t, "/v1/executions/"+id+"/retry", apitest.Raw(`{"skipTasks":["outer","h","nobody"]}`))
	refused.ExpectProblem(http.StatusBadRequest, "VALIDATION_ERROR", "", "skipTasks[1]", "skipTasks[2]")
	require.Equal(t, "names a task in a nested graph, which cannot be skipped by itself", refused.Text("details[0].message"))
	require.Equal(t, "must be the id of a task of the workflow", refused.Text("details[1].message"))
}
