package api_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tranche/internal/apitest"
	"tranche/internal/identity"
	"tranche/internal/targettest"
)

// sumWorkflow adds numbers and makes no calls.
const sumWorkflow = `{"name":"Sum","alias":"sum","type":"scoring",
	"inputSchema":{"type":"object","required":["a"],"additionalProperties":false,"properties":{
		"a":{"type":"number"},"b":{"type":"number","default":0.20},"borrowerId":{"type":"string"},"when":{"type":"string","format":"date"}}},
	"tasks":[
		{"id":"sum","type":"transform","config":{"fields":{"total":"{{ input.a + input.b }}"}}},
		{"id":"done","type":"end","config":{"output":{"total":"{{ tasks.sum.output.total }}","a":"{{ input.a }}","b":"{{ input.b }}"},"customOutput":"{{ execution.borrowerId }}","notes":["summed"]}}],
	"edges":[{"source":"start","target":"sum"},{"source":"sum","target":"done"}]}`

// publish creates and publishes a workflow and returns its id.
func publish(t *testing.T, c *apitest.Caller, body string) string {
	t.Helper()
	id := c.Post(t, "/v2/workflows", apitest.Raw(body)).Expect(http.StatusCreated).Text("id")
	c.Post(t, "/v2/workflows/"+id+"/publish", nil).Expect(http.StatusOK)
	return id
}

// bureau is a target that answers with a score.
type bureau struct{ *targettest.Target }

func newBureau(t *testing.T) *bureau {
	t.Helper()
	return &bureau{targettest.New(t, targettest.WithAnswer(score(http.StatusOK)))}
}

func score(status int) http.HandlerFunc { return targettest.StatusJSON(status, `{"score":712.50}`) }

// workflow returns a workflow that calls the bureau once.
func (b *bureau) workflow(alias, extra string) string {
	return `{"name":"Ask","alias":"` + alias + `"` + extra + `,
	"tasks":[
		{"id":"ask","type":"http-request","config":{"method":"GET","url":"` + b.URL + `/score","retry":{"maxAttempts":1}}},
		{"id":"done","type":"end","config":{"output":{"score":"{{ tasks.ask.output.body.score }}"}}}],
	"edges":[{"source":"start","target":"ask"},{"source":"ask","target":"done"}]}`
}

func TestExecute(t *testing.T) {
	t.Parallel()
	runShared(t, map[string]func(*testing.T, *apitest.Service){
		"Synchronous":     testExecuteSynchronous,
		"WithCalls":       testExecuteWithCalls,
		"Asynchronous":    testExecuteAsynchronous,
		"OtherTenant":     testExecuteOtherTenant,
		"BorrowerOfInput": testExecuteBorrowerOfInput,
		"Integers":        testExecuteIntegers,
	})
}

func testExecuteSynchronous(t *testing.T, s *apitest.Service) {
	t.Helper()
	tenant := s.Tenant(t)
	c := tenant.As(t, identity.RoleAdmin)
	id := publish(t, c, sumWorkflow)

	answer := c.Post(t, "/v1/workflows/sum/v1/execute?billable-id=bill-1&tags=new,web", apitest.Raw(`{"a":1.10,"borrowerId":"B-7"}`)).Expect(http.StatusOK)
	execution := answer.Text("executionId")
	require.JSONEq(t, `{"executionId":"`+execution+`","isSuccess":true,"statusCode":200,"output":{"total":1.3,"a":1.10,"b":0.20},
		"customOutput":"B-7","attachments":[],"notes":["summed"],"notices":[],"errorMessage":null}`, string(answer.Body))
	require.Contains(t, string(answer.Body), `"a":1.10,"b":0.20,"total":1.3`, "numbers keep all their digits")
	marked := c.Post(t, "/v1/workflows/sum/v1/execute", apitest.Raw(`{"a":1,"borrowerId":"<A&B>"}`)).Expect(http.StatusOK)
	require.Contains(t, string(marked.Body), `"customOutput":"<A&B>"`, "the text is not escaped")

	output := c.Get(t, "/v1/executions/"+execution+"/output").Expect(http.StatusOK)
	require.Equal(t, "1.10", output.Text("output.a"))
	for path, want := range map[string]string{
		"id": execution, "billableId": "bill-1", "borrowerId": "B-7", "workflowId": id, "workflowAlias": "sum", "workflowVersion": "v1",
		"workflowType": "scoring", "statusCode": "200", "isSuccess": "true", "hasAttachments": "false", "customOutput": "B-7",
	} {
		require.Equal(t, want, output.Text(path), path)
	}
	status := c.Get(t, "/v1/executions/"+execution+"/status").Expect(http.StatusOK)
	require.Equal(t, "completed", status.Text("status"))
	require.Equal(t, "2", status.Text("tasksCompleted"))
	require.Equal(t, "0", status.Text("tasksFailed"))
	for _, path := range []string{"startedAt", "completedAt", "duration"} {
		require.NotEmpty(t, status.Text(path), path)
	}

	latest := c.Post(t, "/v1/workflows/sum/latest/execute?borrower-id=B-9", apitest.Raw(`{"a":1,"borrowerId":"B-7"}`)).Expect(http.StatusOK)
	require.Equal(t, "B-9", latest.Text("customOutput"), "the parameter has priority over the input")
	again := c.Post(t, "/v1/workflows/sum/v1/execute?test=true&rescore-of="+execution, apitest.Raw(`{"a":30.000000000000000000000000000001}`)).Expect(http.StatusOK)
	require.Equal(t, "30.000000000000000000000000000001", again.Text("output.a"))
	require.Equal(t, "30.200000000000000000000000000001", again.Text("output.total"))

	var kept string
	require.NoError(t, s.Pool.QueryRow(t.Context(), `SELECT concat_ws(' ', is_test, rescore_of, principal_id) FROM executions WHERE id = $1`,
		again.Text("executionId")).Scan(&kept))
	require.Equal(t, "t "+execution+" "+c.ClientID, kept)
	sandbox := tenant.Sandbox(t, identity.RoleAdmin).Post(t, "/v1/workflows/sum/v1/execute", apitest.Raw(`{"a":1}`)).Expect(http.StatusOK)
	require.NoError(t, s.Pool.QueryRow(t.Context(), `SELECT is_test::text FROM executions WHERE id = $1`, sandbox.Text("executionId")).Scan(&kept))
	require.Equal(t, "true", kept)
}

func testExecuteWithCalls(t *testing.T, s *apitest.Service) {
	t.Helper()
	c := s.Tenant(t).As(t, identity.RoleAdmin)
	b := newBureau(t)
	publish(t, c, b.workflow("ask", ""))

	answer := c.Post(t, "/v1/workflows/ask/v1/execute", apitest.Raw(`{}`)).Expect(http.StatusOK)
	require.Equal(t, "712.50", answer.Text("output.score"))
	require.Equal(t, []string{answer.Text("executionId") + "/ask"}, b.Keys())

	b.SetAnswer(score(http.StatusInternalServerError))
	failed := c.Post(t, "/v1/workflows/ask/v1/execute", apitest.Raw(`{}`)).Expect(http.StatusOK)
	require.Equal(t, "false", failed.Text("isSuccess"))
	require.Equal(t, "502", failed.Text("statusCode"))
	require.Equal(t, "EXTERNAL_SERVICE_ERROR", failed.Text("errorSubCode"))
	require.Equal(t, "{}", failed.Text("output"))
	require.NotEmpty(t, failed.Text("errorMessage"))
	require.NotContains(t, failed.Text("errorMessage"), "127.0.0.1", "the message has no address")
	require.Equal(t, "failed", c.Get(t, "/v1/executions/"+failed.Text("executionId")+"/status").Expect(http.StatusOK).Text("status"))

	b.SetAnswer(targettest.Never())
	publish(t, c, b.workflow("slow", `,"timeoutSeconds":1`))
	late := c.Post(t, "/v1/workflows/slow/v1/execute", apitest.Raw(`{}`)).Expect(http.StatusOK)
	require.Equal(t, "504", late.Text("statusCode"))
	require.Equal(t, "EXECUTION_TIMEOUT", late.Text("errorSubCode"))
	require.Equal(t, "timeout", c.Get(t, "/v1/executions/"+late.Text("executionId")+"/status").Expect(http.StatusOK).Text("status"))
}

func testExecuteAsynchronous(t *testing.T, s *apitest.Service) {
	t.Helper()
	c := s.Tenant(t).As(t, identity.RoleAdmin)
	b := newBureau(t)
	publish(t, c, b.workflow("async", `,"executionMode":"async"`))
	publish(t, c, b.workflow("ask", ""))
	publish(t, c, sumWorkflow)

	for path, headers := range map[string][]apitest.Header{
		"async/v1": nil,
		"ask/v1":   {{Name: "Prefer", Value: "respond-async"}},
	} {
		release := b.Hold()
		accepted := c.Post(t, "/v1/workflows/"+path+"/execute", apitest.Raw(`{}`), headers...).Expect(http.StatusAccepted)
		require.Equal(t, "pending", accepted.Text("status"))
		require.NotEmpty(t, accepted.Text("createdAt"))
		id := accepted.Text("executionId")
		c.Get(t, "/v1/executions/"+id+"/output").ExpectProblem(http.StatusNotFound, "NOT_FOUND", "EXECUTION_NOT_FINISHED")
		release()
		ended := awaitEnd(t, c, id)
		require.Equal(t, "completed", ended.Text("status"))
		require.Equal(t, "712.50", c.Get(t, "/v1/executions/"+id+"/output").Expect(http.StatusOK).Text("output.score"))
	}

	release := b.Hold()
	waited := c.Post(t, "/v1/workflows/ask/v1/execute", apitest.Raw(`{}`), apitest.Header{Name: "Prefer", Value: "wait=1"}).Expect(http.StatusAccepted)
	require.Equal(t, "wait=1", waited.Header.Get("Preference-Applied"))
	release()
	require.Equal(t, "completed", awaitEnd(t, c, waited.Text("executionId")).Text("status"))

	for _, prefer := range [][]apitest.Header{
		{{Name: "Prefer", Value: "wait=20, wait=60"}},
		{{Name: "Prefer", Value: "wait=20"}, {Name: "Prefer", Value: "wait=60"}},
		{{Name: "Prefer", Value: "handling=lenient"}, {Name: "Prefer", Value: "wait=20, wait=soon"}},
	} { // the first of repeated preferences counts (RFC 7240, 2)
		first := c.Post(t, "/v1/workflows/sum/v1/execute", apitest.Raw(`{"a":1}`), prefer...).Expect(http.StatusOK)
		require.Equal(t, "wait=20", first.Header.Get("Preference-Applied"))
	}

	inTime := c.Post(t, "/v1/workflows/sum/v1/execute", apitest.Raw(`{"a":1}`), apitest.Header{Name: "Prefer", Value: "wait=60; x=y, handling=lenient"}).Expect(http.StatusOK)
	require.Equal(t, "1.2", inTime.Text("output.total"))
	queued := c.Post(t, "/v1/workflows/sum/v1/execute", apitest.Raw(`{"a":1}`), apitest.Header{Name: "Prefer", Value: "respond-async"}).Expect(http.StatusAccepted)
	require.Equal(t, "completed", awaitEnd(t, c, queued.Text("executionId")).Text("status"))
}

// awaitEnd polls the status until it is final.
func awaitEnd(t *testing.T, c *apitest.Caller, id string) (status *apitest.Answer) {
	t.Helper()
	require.Eventually(t, func() bool {
		status = c.Get(t, "/v1/executions/"+id+"/status").Expect(http.StatusOK)
		return status.Text("status") != "pending" && status.Text("status") != "running"
	}, 20*time.Second, 20*time.Millisecond)
	return status
}

func TestExecuteErrors(t *testing.T) {
	t.Parallel()
	s := apitest.Start(t)
	tenant := s.Tenant(t)
	c := tenant.As(t, identity.RoleAdmin)
	publish(t, c, sumWorkflow)
	publish(t, c, strings.Replace(sumWorkflow, `"alias":"sum"`, `"alias":"retired"`, 1))
	c.Post(t, "/v2/workflows", apitest.Raw(strings.Replace(sumWorkflow, `"alias":"sum"`, `"alias":"drafted"`, 1))).Expect(http.StatusCreated)
	publish(t, c, `{"name":"Either","alias":"either","inputSchema":{"type":"object","not":{"required":["c"]}},"tasks":[{"id":"e","type":"end","config":{}}]}`)

	// The cache of workflows must not keep an archived workflow.
	c.Post(t, "/v1/workflows/retired/v1/execute", apitest.Raw(`{"a":1}`)).Expect(http.StatusOK)
	retired := c.Get(t, "/v2/workflows?search=retired").Expect(http.StatusOK).Text("data[0].id")
	c.Post(t, "/v2/workflows/"+retired+"/archive", nil).Expect(http.StatusOK)

	const sum = "/v1/workflows/sum/v1/execute"
	for name, tc := range map[string]struct {
		path, body, prefer string
		status             int
		code, subCode      string
		fields             []string
	}{
		"missing member":     {sum, `{}`, "", 422, "UNPROCESSABLE_ENTITY", "INPUT_SCHEMA_MISMATCH", []string{"a"}},
		"several faults":     {sum, `{"a":"x","b":true,"c":1,"when":"soon"}`, "", 422, "UNPROCESSABLE_ENTITY", "INPUT_SCHEMA_MISMATCH", []string{"a", "b", "c", "when"}},
		"as a whole":         {"/v1/workflows/either/v1/execute", `{"c":1}`, "", 422, "UNPROCESSABLE_ENTITY", "INPUT_SCHEMA_MISMATCH", []string{"body"}},
		"an array":           {sum, `[1]`, "", 400, "VALIDATION_ERROR", "INVALID_FIELD_TYPE", []string{"body"}},
		"no body":            {sum, ``, "", 400, "VALIDATION_ERROR", "MISSING_REQUIRED_FIELD", []string{"body"}},
		"cut JSON":           {sum, `{"a":`, "", 400, "VALIDATION_ERROR", "", nil},
		"duplicate key":      {sum, `{"a":1,"a":2}`, "", 400, "VALIDATION_ERROR", "", []string{"a"}},
		"NUL":                {sum, `{"a":1,"borrowerId":"\u0000"}`, "", 400, "VALIDATION_ERROR", "", []string{"borrowerId"}},
		"huge number":        {sum, `{"a":1e999999}`, "", 400, "VALIDATION_ERROR", "", []string{"a"}},
		"too large":          {sum, `{"a":1,"borrowerId":"` + strings.Repeat("x", 5<<20) + `"}`, "", 413, "PAYLOAD_TOO_LARGE", "", nil},
		"unknown alias":      {"/v1/workflows/nobody/v1/execute", `{"a":1}`, "", 404, "NOT_FOUND", "", nil},
		"unknown version":    {"/v1/workflows/sum/v2/execute", `{"a":1}`, "", 404, "NOT_FOUND", "", nil},
		"malformed version":  {"/v1/workflows/sum/1/execute", `{"a":1}`, "", 404, "NOT_FOUND", "", nil},
		"draft":              {"/v1/workflows/drafted/v1/execute", `{"a":1}`, "", 409, "CONFLICT", "INVALID_WORKFLOW_STATUS", nil},
		"archived":           {"/v1/workflows/retired/v1/execute", `{"a":1}`, "", 409, "CONFLICT", "INVALID_WORKFLOW_STATUS", nil},
		"no latest":          {"/v1/workflows/drafted/latest/execute", `{"a":1}`, "", 404, "NOT_FOUND", "", nil},
		"wait too long":      {sum, `{"a":1}`, "wait=61", 400, "VALIDATION_ERROR", "", []string{"Prefer"}},
		"wait of no number":  {sum, `{"a":1}`, "wait=soon", 400, "VALIDATION_ERROR", "", []string{"Prefer"}},
		"long tag":           {sum + "?tags=" + strings.Repeat("x", 65), `{"a":1}`, "", 400, "VALIDATION_ERROR", "", []string{"tags"}},
		"rescore of nothing": {sum + "?rescore-of=0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11", `{"a":1}`, "", 400, "VALIDATION_ERROR", "", []string{"rescore-of"}},
		"test of no boolean": {sum + "?test=perhaps", `{"a":1}`, "", 400, "VALIDATION_ERROR", "INVALID_FIELD_TYPE", []string{"test"}},
		"unknown parameter":  {sum + "?borrower=1", `{"a":1}`, "", 400, "VALIDATION_ERROR", "", []string{"borrower"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answer := c.Post(t, tc.path, apitest.Raw(tc.body), apitest.Header{Name: "Prefer", Value: tc.prefer})
			answer.ExpectProblem(tc.status, tc.code, tc.subCode, tc.fields...)
		})
	}
	t.Cleanup(func() {
		// The execution from before the workflow was archived.
		var n int
		require.NoError(t, s.Pool.QueryRow(context.Background(), `SELECT count(*) FROM executions`).Scan(&n))
		require.Equal(t, 1, n, "a rejected request records nothing")
	})
}

func testExecuteOtherTenant(t *testing.T, s *apitest.Service) {
	t.Helper()
	tenant := s.Tenant(t)
	c, stranger := tenant.As(t, identity.RoleAdmin), s.Tenant(t).As(t, identity.RoleAdmin)
	publish(t, c, sumWorkflow)
	id := c.Post(t, "/v1/workflows/sum/v1/execute", apitest.Raw(`{"a":1}`)).Expect(http.StatusOK).Text("executionId")

	stranger.Post(t, "/v1/workflows/sum/v1/execute", apitest.Raw(`{"a":1}`)).ExpectProblem(http.StatusNotFound, "NOT_FOUND", "")
	stranger.Post(t, "/v1/workflows/sum/latest/execute", apitest.Raw(`{"a":1}`)).ExpectProblem(http.StatusNotFound, "NOT_FOUND", "")
	same := apitest.Header{Name: "X-Request-Id", Value: "same"}
	for _, what := range []string{"output", "status"} {
		foreign := stranger.Get(t, "/v1/executions/"+id+"/"+what, same).Expect(http.StatusNotFound)
		for _, unknown := range []string{"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11", "nonsense", "%20", "{" + id + "}"} {
			require.Equal(t, foreign.Body, c.Get(t, "/v1/executions/"+unknown+"/"+what, same).Expect(http.StatusNotFound).Body)
		}
		s.Anonymous().Get(t, "/v1/executions/"+id+"/"+what).ExpectProblem(http.StatusUnauthorized, "UNAUTHORIZED", "")
	}
	problem := tenant.With(t, identity.ScopeExecutionsRead).Get(t, "/v1/executions/"+id+"/output").ExpectProblem(http.StatusForbidden, "FORBIDDEN", "")
	require.Contains(t, problem.Message, "executions:data")
	problem = tenant.With(t, identity.ScopeExecutionsRead).Post(t, "/v1/workflows/sum/v1/execute", apitest.Raw(`{"a":1}`)).ExpectProblem(http.StatusForbidden, "FORBIDDEN", "")
	require.Contains(t, problem.Message, "executions:run")
	s.Anonymous().Post(t, "/v1/workflows/sum/v1/execute", apitest.Raw(`{"a":1}`)).ExpectProblem(http.StatusUnauthorized, "UNAUTHORIZED", "")
}
