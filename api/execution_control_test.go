package api_test

import (
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tranche/internal/apitest"
	"tranche/internal/identity"
	"tranche/internal/server"
)

func testExecutionControlRetry(t *testing.T, s *apitest.Service) {
	t.Helper()
	c := s.Tenant(t).As(t, identity.RoleAdmin)
	b := newBureau(t)
	publish(t, c, `{"name":"Retry","alias":"retry","tasks":[
		{"id":"first","type":"http-request","config":{"method":"GET","url":"`+b.URL+`/first"}},
		{"id":"second","type":"http-request","config":{"method":"GET","url":"`+b.URL+`/second","successStatus":[201],"retry":{"maxAttempts":1}}},
		{"id":"done","type":"end","config":{"output":{"attempt":"{{ execution.attempt }}","second":"{{ tasks.second.output.body.score }}"}}}],
		"edges":[{"source":"start","target":"first"},{"source":"first","target":"second"},{"source":"second","target":"done"}]}`)
	id := c.Post(t, "/v1/workflows/retry/v1/execute", apitest.Raw(`{}`)).Expect(http.StatusOK).Text("executionId")
	state := c.Get(t, "/v1/executions/"+id+"/state").Expect(http.StatusOK)
	for path, want := range map[string]string{
		"retryable": "true", "retryReason": "the execution failed", "status": "failed", "tasks[0].status": "completed", "tasks[1].status": "failed",
		"tasks[1].error.code": "EXTERNAL_SERVICE_ERROR", "tasks[1].error.statusCode": "200", "tasks[0].maxAttempts": "3", "tasks[2].status": "pending",
	} {
		require.Equal(t, want, state.Text(path), path)
	}

	c.Post(t, "/v1/executions/"+id+"/retry", apitest.Raw(`{"skipTasks":["done","nobody"]}`)).
		ExpectProblem(http.StatusBadRequest, "VALIDATION_ERROR", "", "skipTasks[1]")
	c.Post(t, "/v1/executions/"+id+"/retry", apitest.Raw(`{"skip":["done"]}`)).ExpectProblem(http.StatusBadRequest, "VALIDATION_ERROR", "", "skip")
	b.SetAnswer(score(http.StatusCreated))
	release := b.Hold()
	retried := c.Post(t, "/v1/executions/"+id+"/retry", nil).Expect(http.StatusAccepted)
	require.JSONEq(t, `{"executionId":"`+id+`","attempt":2,"status":"pending","skippedTasks":[],"resumedTasks":["second","done"],"createdAt":"`+
		retried.Text("createdAt")+`"}`, string(retried.Body))
	c.Post(t, "/v1/executions/"+id+"/retry", nil).ExpectProblem(http.StatusBadRequest, "VALIDATION_ERROR", "INVALID_EXECUTION_STATUS")
	c.Get(t, "/v1/executions/"+id+"/output").ExpectProblem(http.StatusNotFound, "NOT_FOUND", "EXECUTION_NOT_FINISHED")
	release()
	require.Equal(t, "completed", awaitEnd(t, c, id).Text("status"))
	require.Equal(t, `{"attempt":2,"second":712.50}`, c.Get(t, "/v1/executions/"+id+"/output").Expect(http.StatusOK).Text("output"))
	require.Equal(t, []string{id + "/first", id + "/second", id + "/second/2"}, b.Keys(), "completed tasks are not called again")

	c.Post(t, "/v1/executions/"+id+"/retry", nil).ExpectProblem(http.StatusBadRequest, "VALIDATION_ERROR", "INVALID_EXECUTION_STATUS")
	require.Equal(t, "false", c.Get(t, "/v1/executions/"+id+"/state").Expect(http.StatusOK).Text("retryable"))
}

// A retry removes the tags of the failed end task and keeps those of the request.
func testExecutionControlTagsOfRetry(t *testing.T, s *apitest.Service) {
	t.Helper()
	c := s.Tenant(t).As(t, identity.RoleAdmin)
	publish(t, c, `{"name":"Declined","alias":"declined","tasks":[
		{"id":"done","type":"end","config":{"status":"failed","tags":["mine","declined","attempt-{{ execution.attempt }}"]}}]}`)
	id := c.Post(t, "/v1/workflows/declined/v1/execute?tags=mine,web", apitest.Raw(`{}`)).Expect(http.StatusOK).Text("executionId")
	require.Equal(t, `["mine","web","declined","attempt-1"]`, c.Get(t, "/v1/executions/"+id).Expect(http.StatusOK).Text("tags"))
	c.Post(t, "/v1/executions/"+id+"/retry", nil).Expect(http.StatusAccepted)
	awaitEnd(t, c, id)
	require.Equal(t, `["mine","web","declined","attempt-2"]`, c.Get(t, "/v1/executions/"+id).Expect(http.StatusOK).Text("tags"))

	// A tag of both the request and the end task is kept, in any order.
	publish(t, c, `{"name":"Turned","alias":"turned","tasks":[
		{"id":"done","type":"end","config":{"status":"failed","tags":["{{ execution.attempt == 1 ? \"mine\" : \"again\" }}","declined"]}}]}`)
	id = c.Post(t, "/v1/workflows/turned/v1/execute?tags=web,mine", apitest.Raw(`{}`)).Expect(http.StatusOK).Text("executionId")
	for _, tags := range []string{`["web","mine","declined"]`, `["web","mine","again","declined"]`, `["web","mine","again","declined"]`} {
		require.Equal(t, tags, c.Get(t, "/v1/executions/"+id).Expect(http.StatusOK).Text("tags"))
		c.Post(t, "/v1/executions/"+id+"/retry", nil).Expect(http.StatusAccepted)
		awaitEnd(t, c, id)
	}

	batch := c.Post(t, "/v1/workflows/declined/v1/execute-batch", apitest.Raw(`{"workflowInput":{"items":[{}]}}`)).
		Expect(http.StatusAccepted).Text("executionBatchId")
	awaitBatch(t, c, batch)
	c.Post(t, "/v1/execution-batches/"+batch+"/retry", apitest.Raw(`{"retryMode":"failed_items"}`)).Expect(http.StatusAccepted)
	awaitBatch(t, c, batch)
	item := c.Get(t, "/v1/execution-batches/"+batch+"/items").Expect(http.StatusOK).Text("data[0].executionId")
	require.Equal(t, `["mine","declined","attempt-2"]`, c.Get(t, "/v1/executions/"+item).Expect(http.StatusOK).Text("tags"))
}

func testExecutionControlRetrySkipsTasks(t *testing.T, s *apitest.Service) {
	t.Helper()
	c := s.Tenant(t).As(t, identity.RoleAdmin)
	b := newBureau(t)
	b.SetAnswer(score(http.StatusInternalServerError))
	publish(t, c, b.workflow("ask", ""))
	id := c.Post(t, "/v1/workflows/ask/v1/execute", apitest.Raw(`{}`)).Expect(http.StatusOK).Text("executionId")
	retried := c.Post(t, "/v1/executions/"+id+"/retry", apitest.Raw(`{"skipTasks":["ask"]}`)).Expect(http.StatusAccepted)
	require.Equal(t, `["ask"]`, retried.Text("skippedTasks"))
	require.Equal(t, `["done"]`, retried.Text("resumedTasks"))
	require.Equal(t, "completed", awaitEnd(t, c, id).Text("status"))
	require.Equal(t, `{"score":null}`, c.Get(t, "/v1/executions/"+id+"/output").Expect(http.StatusOK).Text("output"))
	require.Equal(t, "skipped", c.Get(t, "/v1/executions/"+id+"/state").Expect(http.StatusOK).Text("tasks[0].status"))
}

// A cancel aborts a call of another replica within 2 s.
func TestCancelAbortsCallOfReplica(t *testing.T) {
	t.Parallel()
	s := apitest.Start(t)
	elsewhere := s.Replica(t, server.RoleAPI)
	tenant := s.Tenant(t)
	c := tenant.As(t, identity.RoleAdmin)
	target := newBureau(t)
	release := target.Hold()
	publish(t, c, `{"name":"Hang","alias":"hang","tasks":[{"id":"ask","type":"http-request","config":{"method":"GET","url":"`+target.URL+`"}}]}`)

	answered := make(chan *apitest.Answer, 1)
	go func() {
		answered <- elsewhere.WithToken(c.Token).Post(t, "/v1/workflows/hang/v1/execute", apitest.Raw(`{}`))
	}()
	target.Wait(1)
	id := c.Get(t, "/v1/executions?status=running").Expect(http.StatusOK).Text("data[0].id")
	begun := time.Now()
	cancelled := c.Post(t, "/v1/executions/"+id+"/cancel", nil).Expect(http.StatusOK)
	require.Equal(t, "cancelled", cancelled.Text("status"))
	require.NotEmpty(t, cancelled.Text("completedAt"))
	target.WaitAbandoned(1)
	require.Less(t, time.Since(begun), 2*time.Second)
	result := (<-answered).Expect(http.StatusOK)
	require.Equal(t, "false", result.Text("isSuccess"))
	require.Equal(t, "the execution was cancelled", result.Text("errorMessage"))
	state := c.Get(t, "/v1/executions/"+id+"/state").Expect(http.StatusOK)
	require.Equal(t, "cancelled", state.Text("status"))
	require.Equal(t, "cancelled", state.Text("tasks[0].status"))
	require.Equal(t, "true", state.Text("retryable"))
	c.Post(t, "/v1/executions/"+id+"/cancel", nil).ExpectProblem(http.StatusBadRequest, "VALIDATION_ERROR", "INVALID_EXECUTION_STATUS")

	release()
	c.Post(t, "/v1/executions/"+id+"/retry", nil).Expect(http.StatusAccepted)
	require.Equal(t, "completed", awaitEnd(t, c, id).Text("status"))
}

// Without workers an execution stays pending. It can be cancelled.
func TestCancelPending(t *testing.T) {
	t.Parallel()
	s := apitest.Start(t, func(c *server.Config) { c.Role = server.RoleAPI })
	tenant := s.Tenant(t)
	c := tenant.As(t, identity.RoleAdmin)
	publish(t, c, sumWorkflow)
	id := c.Post(t, "/v1/workflows/sum/v1/execute", apitest.Raw(`{"a":1}`), apitest.Header{Name: "Prefer", Value: "respond-async"}).
		Expect(http.StatusAccepted).Text("executionId")
	require.Equal(t, "pending", c.Get(t, "/v1/executions/"+id+"/status").Expect(http.StatusOK).Text("status"))
	state := c.Get(t, "/v1/executions/"+id+"/state").Expect(http.StatusOK)
	require.Equal(t, "pending", state.Text("tasks[0].status"))
	require.Equal(t, "only a failed, cancelled or timed-out execution can be retried; this one is pending", state.Text("retryReason"))
	require.Equal(t, "cancelled", c.Post(t, "/v1/executions/"+id+"/cancel", apitest.Raw(`{}`)).Expect(http.StatusOK).Text("status"))
	require.Equal(t, "false", c.Get(t, "/v1/executions/"+id+"/output").Expect(http.StatusOK).Text("isSuccess"))

	worker := s.Replica(t, server.RoleAll)
	require.Equal(t, "cancelled", awaitEnd(t, c, id).Text("status"), "its job does nothing")
	c.Post(t, "/v1/executions/"+id+"/retry", nil).Expect(http.StatusAccepted)
	require.Equal(t, "completed", awaitEnd(t, c, id).Text("status"))
	require.NotNil(t, worker)
}

func testExecutionControlErrors(t *testing.T, s *apitest.Service) {
	t.Helper()
	tenant := s.Tenant(t)
	c, stranger := tenant.As(t, identity.RoleAdmin), s.Tenant(t).As(t, identity.RoleAdmin)
	publish(t, c, sumWorkflow)
	id := c.Post(t, "/v1/workflows/sum/v1/execute", apitest.Raw(`{"a":1}`)).Expect(http.StatusOK).Text("executionId")
	batch := c.Post(t, "/v1/workflows/sum/v1/execute-batch", apitest.Raw(`{"workflowInput":{"items":[{"b":"x"}]}}`)).Expect(http.StatusAccepted)
	require.NotEmpty(t, batch.Text("executionBatchId"))
	var item string
	require.Eventually(t, func() bool {
		item = c.Get(t, "/v1/executions?status=failed").Expect(http.StatusOK).Text("data[0].id")
		return item != ""
	}, 20*time.Second, 20*time.Millisecond)
	same := apitest.Header{Name: "X-Request-Id", Value: "same"}
	for _, what := range []string{"retry", "cancel"} {
		c.Post(t, "/v1/executions/"+id+"/"+what, nil).ExpectProblem(http.StatusBadRequest, "VALIDATION_ERROR", "INVALID_EXECUTION_STATUS")
		problem := c.Post(t, "/v1/executions/"+item+"/"+what, nil).ExpectProblem(http.StatusBadRequest, "VALIDATION_ERROR", "INVALID_EXECUTION_STATUS")
		require.Contains(t, problem.Message, "batch")
		foreign := stranger.Post(t, "/v1/executions/"+id+"/"+what, nil, same).Expect(http.StatusNotFound)
		unknown := stranger.Post(t, "/v1/executions/0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11/"+what, nil, same).Expect(http.StatusNotFound)
		require.Equal(t, foreign.Body, unknown.Body)
		problem = tenant.With(t, identity.ScopeExecutionsRead).Post(t, "/v1/executions/"+id+"/"+what, nil).ExpectProblem(http.StatusForbidden, "FORBIDDEN", "")
		require.Contains(t, problem.Message, "executions:run")
	}
}

// One of many concurrent retries or cancels succeeds.
func TestConcurrentControl(t *testing.T) {
	t.Parallel()
	s := apitest.Start(t, func(c *server.Config) { c.Role = server.RoleAPI })
	tenant := s.Tenant(t)
	unlimited(t, s, tenant.ID)
	c := tenant.As(t, identity.RoleAdmin)
	publish(t, c, sumWorkflow)
	id := c.Post(t, "/v1/workflows/sum/v1/execute", apitest.Raw(`{"a":1}`), apitest.Header{Name: "Prefer", Value: "respond-async"}).
		Expect(http.StatusAccepted).Text("executionId")
	for i, what := range []string{"cancel", "retry", "cancel"} {
		var mu sync.Mutex
		var done sync.WaitGroup
		won := 0
		for range 20 {
			done.Go(func() {
				if c.Post(t, "/v1/executions/"+id+"/"+what, nil).Status < http.StatusBadRequest {
					mu.Lock()
					won++
					mu.Unlock()
				}
			})
		}
		done.Wait()
		require.Equal(t, 1, won, "%d: %s", i, what)
	}
	require.Equal(t, "2", c.Get(t, "/v1/executions/"+id+"/state").Expect(http.StatusOK).Text("attempt"))
}
