package api_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"tranche/internal/apitest"
	"tranche/internal/identity"
)

func TestExecutionRead(t *testing.T) {
	t.Parallel()
	runShared(t, map[string]func(*testing.T, *apitest.Service){
		"Execution":  testExecutionReadExecution,
		"BatchItem":  testExecutionReadBatchItem,
		"ListErrors": testExecutionReadListErrors,
		"DeepResult": testExecutionReadDeepResult,
	})
}

func testExecutionReadExecution(t *testing.T, s *apitest.Service) {
	t.Helper()
	tenant := s.Tenant(t)
	c := tenant.As(t, identity.RoleAdmin)
	workflowID := publish(t, c, sumWorkflow)
	id := c.Post(t, "/v1/workflows/sum/v1/execute?billable-id=contract-7&tags=web,new", apitest.Raw(`{"a":1.10,"borrowerId":"B-7"}`)).
		Expect(http.StatusOK).Text("executionId")

	record := c.Get(t, "/v1/executions/"+id).Expect(http.StatusOK)
	require.JSONEq(t, `{"id":"`+id+`","principalId":"`+c.ClientID+`","workflowId":"`+workflowID+`","workflowAlias":"sum","workflowVersion":"v1",
		"workflowType":"scoring","billableId":"contract-7","borrowerId":"B-7","status":"completed","isSuccess":true,"isBillable":true,
		"isReScoring":false,"isTest":false,"tags":["web","new"],"createdAt":"`+record.Text("createdAt")+`"}`, string(record.Body))
	list := c.Get(t, "/v1/executions").Expect(http.StatusOK)
	require.JSONEq(t, `{"data":[`+string(record.Body)+`],"pagination":{"page":1,"perPage":10,"total":1,"totalPages":1}}`, string(list.Body))

	input := c.Get(t, "/v1/executions/"+id+"/input").Expect(http.StatusOK)
	require.Contains(t, string(input.Body), `"a":1.10,"b":0.20`, "all digits, and the defaults")
	for path, want := range map[string]string{"id": id, "workflowId": workflowID, "workflowAlias": "sum", "workflowVersion": "v1", "createdAt": record.Text("createdAt")} {
		require.Equal(t, want, input.Text(path), path)
	}

	state := c.Get(t, "/v1/executions/"+id+"/state").Expect(http.StatusOK)
	for path, want := range map[string]string{
		"executionId": id, "status": "completed", "attempt": "1", "retryable": "false",
		"tasks[0].taskId": "sum", "tasks[0].type": "transform", "tasks[0].status": "completed", "tasks[0].attempt": "1", "tasks[0].maxAttempts": "1",
		"tasks[0].output": `{"total":1.3}`, "tasks[1].taskId": "done", "tasks[1].type": "end", "tasks[1].output.a": "1.10",
	} {
		require.Equal(t, want, state.Text(path), path)
	}
	for _, path := range []string{"startedAt", "completedAt", "retryReason", "tasks[0].startedAt", "tasks[0].completedAt", "tasks[0].durationMs"} {
		require.NotEmpty(t, state.Text(path), path)
	}
	hidden := tenant.With(t, identity.ScopeExecutionsRead).Get(t, "/v1/executions/"+id+"/state").Expect(http.StatusOK)
	require.NotContains(t, string(hidden.Body), "output", "outputs require another scope")

	publish(t, c, `{"name":"Self","alias":"self","tasks":[{"id":"self","type":"transform","config":{"fields":{"id":"{{ execution.id }}","createdAt":"{{ execution.createdAt }}"}}}]}`)
	self := c.Post(t, "/v1/workflows/self/v1/execute?test=true", apitest.Raw(`{}`)).Expect(http.StatusOK)
	require.Equal(t, c.Get(t, "/v1/executions/"+self.Text("output.id")).Text("createdAt"), self.Text("output.createdAt"), "all answers have the same createdAt")

	rescored := c.Post(t, "/v1/workflows/sum/v1/execute?test=true&rescore-of="+id, apitest.Raw(`{"a":1}`)).Expect(http.StatusOK).Text("executionId")
	record = c.Get(t, "/v1/executions/"+rescored).Expect(http.StatusOK)
	for path, want := range map[string]string{"isReScoring": "true", "isTest": "true", "isBillable": "false", "tags": "[]"} {
		require.Equal(t, want, record.Text(path), path)
	}
	require.Equal(t, "1", c.Get(t, "/v1/executions?exclude-tests=true").Expect(http.StatusOK).Text("pagination.total"))
}

// The record of an item has its batch and its position.
func testExecutionReadBatchItem(t *testing.T, s *apitest.Service) {
	t.Helper()
	c := s.Tenant(t).As(t, identity.RoleAdmin)
	publish(t, c, sumWorkflow)
	batch := c.Post(t, "/v1/workflows/sum/v1/execute-batch", apitest.Raw(`{"label":"November","workflowInput":{"items":[{"a":1},{"a":2}]}}`)).
		Expect(http.StatusAccepted).Text("executionBatchId")
	require.Eventually(t, func() bool {
		return c.Get(t, "/v1/execution-batches/"+batch).Expect(http.StatusOK).Text("status") == "complete"
	}, 20*time.Second, 20*time.Millisecond)

	list := c.Get(t, "/v1/executions?sort-direction=asc").Expect(http.StatusOK)
	require.Equal(t, batch, list.Text("data[1].batchId"))
	require.JSONEq(t, `{"executionBatchId":"`+batch+`","label":"November","itemIndex":1,"attempt":1}`, list.Text("data[1].executionBatch"))
	require.Equal(t, "0", c.Get(t, "/v1/executions?exclude-batch-executions=true").Expect(http.StatusOK).Text("pagination.total"))
	state := c.Get(t, "/v1/executions/"+list.Text("data[0].id")+"/state").Expect(http.StatusOK)
	require.Equal(t, "false", state.Text("retryable"))
	require.Contains(t, state.Text("retryReason"), "batch")
}

// executionCursor returns a cursor of the list of executions for a page.
func executionCursor(page uint32) string {
	list := sha256.Sum256([]byte("/v1/executions"))
	return base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint32(append(list[:8:8], uuid.Max[:]...), page))
}

func testExecutionReadListErrors(t *testing.T, s *apitest.Service) {
	t.Helper()
	tenant := s.Tenant(t)
	c := tenant.As(t, identity.RoleAdmin)
	for query, field := range map[string]string{
		"page=0": "page", "per-page=0": "per-page", "per-page=101": "per-page", "status=done": "status",
		"sort-by=color": "sort-by", "sort-direction=up": "sort-direction",
		"date-from=yesterday": "date-from", "date-to=2026-11-31": "date-to",
		"date-from=2026-11-21T00:00:00%2B24:00": "date-from", "date-to=2026-11-21T1:00:00Z": "date-to", "cursor=x": "cursor", "cursor=&page=2": "cursor",
		"borrower=1": "borrower", "search=%00": "search", "tags=a&tags=b": "tags", "p%61ge=2&page=2": "page", "=1": "query",
		// Forged cursors: page 0, a page out of bounds, and unused bits that are set.
		"cursor=" + executionCursor(0): "cursor", "cursor=" + executionCursor(math.MaxUint32): "cursor",
		"cursor=" + strings.TrimSuffix(executionCursor(2), "g") + "h": "cursor",
	} {
		c.Get(t, "/v1/executions?"+query).ExpectProblem(http.StatusBadRequest, "VALIDATION_ERROR", "", field)
	}
	for query, field := range map[string]string{"page=x": "page", "exclude-tests=perhaps": "exclude-tests"} {
		c.Get(t, "/v1/executions?"+query).ExpectProblem(http.StatusBadRequest, "VALIDATION_ERROR", "INVALID_FIELD_TYPE", field)
	}
	c.Get(t, "/v1/executions?cursor="+executionCursor(2)).Expect(http.StatusOK)
	publish(t, c, sumWorkflow)
	id := c.Post(t, "/v1/workflows/sum/v1/execute?test=true", apitest.Raw(`{"a":1}`)).Expect(http.StatusOK).Text("executionId")
	for query, total := range map[string]string{
		"search": "1", "status": "1", "page": "1", "cursor": "1", "exclude-tests": "0", "exclude-tests&exclude-batch-executions=": "0",
	} { // a name without = is empty, or true for a boolean
		require.Equal(t, total, c.Get(t, "/v1/executions?"+query).Expect(http.StatusOK).Text("pagination.total"), query)
	}
	// An id of the wrong form gets the same answer as an unknown id.
	same := func(a, b *apitest.Answer) {
		require.Equal(t, a.Expect(http.StatusNotFound).Text("message"), b.Expect(http.StatusNotFound).Text("message"))
	}
	for _, odd := range []string{strings.ToUpper(id), "%7B" + id + "%7D", "urn:uuid:" + id, strings.ReplaceAll(id, "-", ""), id + "%00", "%00", "%ff", "a%2Fb%00", "%20" + id} {
		same(c.Get(t, "/v1/executions/"+unknownID), c.Get(t, "/v1/executions/"+odd))
		same(c.Post(t, "/v1/executions/"+unknownID+"/cancel", nil), c.Post(t, "/v1/executions/"+odd+"/cancel", nil))
		same(c.Get(t, "/v2/workflows/"+unknownID), c.Get(t, "/v2/workflows/"+odd))
		c.Post(t, "/v1/workflows/sum/v1/execute?rescore-of="+odd, apitest.Raw(`{"a":1}`)).ExpectProblem(http.StatusBadRequest, "VALIDATION_ERROR", "", "rescore-of")
	}
	same(c.Post(t, "/v1/workflows/nothing/v1/execute", apitest.Raw(`{}`)), c.Post(t, "/v1/workflows/sum%00/v1/execute", apitest.Raw(`{}`)))
	tenant.With(t, identity.ScopeExecutionsRun).Get(t, "/v1/executions").ExpectProblem(http.StatusForbidden, "FORBIDDEN", "")
	s.Anonymous().Get(t, "/v1/executions").ExpectProblem(http.StatusUnauthorized, "UNAUTHORIZED", "")
}

// The total is exact up to 10,000, which is its maximum.
func TestExecutionListTotal(t *testing.T) {
	t.Parallel()
	s := apitest.Start(t)
	tenant := s.Tenant(t)
	c := tenant.As(t, identity.RoleAdmin)
	insert := func(n int) {
		_, err := s.Pool.Exec(t.Context(), `
			INSERT INTO executions (id, tenant_id, workflow_id, workflow_alias, workflow_version, principal_id, status, created_at)
			SELECT overlay(gen_random_uuid()::text PLACING left($1::uuid::text, 8) FROM 1 FOR 8)::uuid, $1::uuid, $1::uuid, 'sum', 1, 'tester', 'completed', now() FROM generate_series(1, $2)`, tenant.ID, n)
		require.NoError(t, err)
	}
	insert(10_000)
	exact := c.Get(t, "/v1/executions?per-page=100").Expect(http.StatusOK)
	require.JSONEq(t, `{"page":1,"perPage":100,"total":10000,"totalPages":100}`, exact.Text("pagination"))
	insert(1)
	capped := c.Get(t, "/v1/executions?per-page=100&page=101").Expect(http.StatusOK)
	require.JSONEq(t, `{"page":101,"perPage":100,"total":10000,"totalPages":100,"totalCapped":true}`, capped.Text("pagination"))
	require.NotEmpty(t, capped.Text("data[0].id"), "pages continue after the counted total")
}

// A stored result may be deeper than a request: task results have the depth limit of
// requests, and the results by task id and by item are around them.
func testExecutionReadDeepResult(t *testing.T, s *apitest.Service) {
	t.Helper()
	c := s.Tenant(t).As(t, identity.RoleAdmin)
	nested := func(levels int) apitest.Raw {
		return apitest.Raw(`{"x":` + strings.Repeat("[", levels-1) + strings.Repeat("]", levels-1) + `}`)
	}
	publish(t, c, `{"name":"Deep","alias":"deep","tasks":[
		{"id":"one","type":"transform","config":{"fields":{"in":"{{ input }}"}}},
		{"id":"each","type":"for-each","config":{"items":"[input]","tasks":[{"id":"inner","type":"transform","config":{"fields":{"in":"{{ item }}"}}}]}}],
		"edges":[{"source":"start","target":"one"},{"source":"start","target":"each"}]}`)
	execute := func() *apitest.Answer {
		return c.Post(t, "/v1/workflows/deep/v1/execute", nested(63), key("deep")).Expect(http.StatusOK)
	}
	done := execute()
	gave := `{"in":` + string(nested(63)) + `}`
	require.Contains(t, string(done.Body), `"output":{"each":[`+gave+`],"one":`+gave+`}`)
	require.Equal(t, string(done.Body), string(execute().Body), "replayed")
	var result struct{ ExecutionID string }
	done.Decode(&result)
	require.Contains(t, string(c.Get(t, "/v1/executions/"+result.ExecutionID+"/output").Expect(http.StatusOK).Body), `"output":{"each":[`+gave+`],"one":`+gave+`}`)
	require.Contains(t, string(c.Get(t, "/v1/executions/"+result.ExecutionID+"/state").Expect(http.StatusOK).Body), `"output":`+gave)

	refused := c.Post(t, "/v1/workflows/deep/v1/execute", nested(64)).Expect(http.StatusOK)
	require.Equal(t, "false", refused.Text("isSuccess"))
	require.Contains(t, refused.Text("errorMessage"), "nested deeper than 64 levels")
	c.Get(t, "/v1/executions/"+refused.Text("executionId")+"/state").Expect(http.StatusOK)
}
