package api_test

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"tranche/internal/apitest"
	"tranche/internal/identity"
)

const (
	configurePath       = "/v1/workflows/commands/configure-schedules"
	deleteSchedulesPath = "/v1/workflows/commands/delete-schedules"
)

const scheduledWorkflow = `{"name": "Scheduled", "alias": "scheduled",
	"inputSchema": {"type": "object", "required": ["amount"], "properties": {
		"amount": {"type": "number"}, "currency": {"type": "string", "default": "EUR"}, "borrowerId": {"type": "string"}}},
	"tasks": [{"id": "echo", "type": "transform", "config": {"fields": {"amount": "{{ input.amount }}", "currency": "{{ input.currency }}"}}}], "edges": []}`

func publishScheduled(t *testing.T, c *apitest.Caller) (id string) {
	t.Helper()
	id = c.Post(t, "/v2/workflows", apitest.Raw(scheduledWorkflow)).Expect(http.StatusCreated).Text("id")
	c.Post(t, "/v2/workflows/"+id+"/publish", nil).Expect(http.StatusOK)
	return id
}

// scheduled returns a body with a workflow and schedules as JSON.
func scheduled(id, slots string) apitest.Raw {
	return apitest.Raw(`{"workflowId":"` + id + `",` + slots + `}`)
}

func TestSchedules(t *testing.T) {
	t.Parallel()
	runShared(t, map[string]func(*testing.T, *apitest.Service){
		"ConfigureAndDelete": testSchedulesConfigureAndDelete,
		"InputRequiresScope": testSchedulesInputRequiresScope,
		"Errors":             testSchedulesErrors,
		"Unreadable":         testSchedulesUnreadable,
	})
}

func testSchedulesConfigureAndDelete(t *testing.T, s *apitest.Service) {
	t.Helper()
	c := s.Tenant(t).As(t, identity.RoleAdmin)
	id := publishScheduled(t, c)

	before := time.Now()
	got := c.Post(t, configurePath, scheduled(id, `"schedule":{"cron":"30 6 * * *","utcDeltaHours":-5,"input":{"amount":1.10}}`)).Expect(http.StatusOK)
	require.Equal(t, id, got.Text("workflowId"))
	require.Equal(t, "30 6 * * *", got.Text("schedule.cron"))
	require.Equal(t, "-5", got.Text("schedule.utcDeltaHours"))
	require.Equal(t, `{"amount":1.10,"currency":"EUR"}`, got.Text("schedule.input"))
	require.Nil(t, got.Value("scheduleBatch"))
	next, err := time.Parse("2006-01-02T15:04:05.000Z", got.Text("schedule.nextRunAt"))
	require.NoError(t, err)
	require.Equal(t, "11:30:00", next.Format(time.TimeOnly))
	require.WithinRange(t, next, before.Add(-time.Second), before.Add(25*time.Hour))

	// The other schedule stays. A batch schedule with only cron repeats the newest batch.
	got = c.Post(t, configurePath, scheduled(id, `"scheduleBatch":{"cron":"0 0 29 2 *"},"schedule":null`)).Expect(http.StatusOK)
	require.Equal(t, "30 6 * * *", got.Text("schedule.cron"))
	require.Equal(t, "0", got.Text("scheduleBatch.utcDeltaHours"))
	require.Contains(t, got.Text("scheduleBatch.nextRunAt"), "-02-29T00:00:00.000Z")
	got = c.Post(t, configurePath, scheduled(id, `"schedule":{"cron":"0 0 * * sun","input":{"amount":2}},
		"scheduleBatch":{"cron":"1 1 1 1 *","utcDeltaHours":14,"label":"x","workflowInput":{"items":[{"amount":1.50}],"customInput":{"n":30}}}`)).Expect(http.StatusOK)
	require.Equal(t, "0 0 * * sun", got.Text("schedule.cron"))
	require.Equal(t, "x", got.Text("scheduleBatch.label"))
	require.Equal(t, `{"customInput":{"n":30},"items":[{"amount":1.50}]}`, got.Text("scheduleBatch.workflowInput"))
	require.Contains(t, got.Text("scheduleBatch.nextRunAt"), "-12-31T11:01:00.000Z")

	shown := c.Get(t, "/v1/workflows/"+id+"/schedules").Expect(http.StatusOK)
	require.Equal(t, got.Value("schedule"), shown.Value("schedule"))
	require.Equal(t, got.Value("scheduleBatch"), shown.Value("scheduleBatch"))
	require.Equal(t, []any{}, shown.Value("firings"))

	// The longest list of single values is accepted.
	every := func(low, high int) string {
		var values []string
		for value := low; value <= high; value++ {
			values = append(values, strconv.Itoa(value))
		}
		return strings.Join(values, ",")
	}
	longest := strings.Join([]string{every(0, 59), every(0, 23), every(1, 31), "jan,feb,mar,apr,may,jun,jul,aug,sep,oct,nov,dec", "sun,mon,tue,wed,thu,fri,sat"}, " ")
	got = c.Post(t, configurePath, scheduled(id, `"scheduleBatch":{"cron":"`+longest+`"}`)).Expect(http.StatusOK)
	require.Equal(t, longest, got.Text("scheduleBatch.cron"))

	for _, step := range []struct{ slots, deleted string }{
		{`"schedule":false,"scheduleBatch":false`, `[]`},
		{`"scheduleBatch":true`, `["scheduleBatch"]`},
		{`"schedule":true,"scheduleBatch":true`, `["schedule"]`},
		{`"schedule":true`, `[]`},
	} {
		got = c.Post(t, deleteSchedulesPath, scheduled(id, step.slots)).Expect(http.StatusOK)
		require.Equal(t, id, got.Text("workflowId"))
		require.Equal(t, step.deleted, got.Text("schedulesDeleted"), step.slots)
	}
	shown = c.Get(t, "/v1/workflows/"+id+"/schedules").Expect(http.StatusOK)
	require.Nil(t, shown.Value("schedule"))
	require.Nil(t, shown.Value("scheduleBatch"))
}

func testSchedulesInputRequiresScope(t *testing.T, s *apitest.Service) {
	t.Helper()
	tenant := s.Tenant(t)
	id := publishScheduled(t, tenant.As(t, identity.RoleAdmin))
	slots := `"schedule":{"cron":"0 0 * * *","input":{"amount":1}},"scheduleBatch":{"cron":"0 0 * * *","label":"x","workflowInput":{"items":[{"amount":1}]}}`
	writer := tenant.With(t, identity.ScopeSchedulesWrite, identity.ScopeWorkflowsRead)
	for _, got := range []*apitest.Answer{
		writer.Post(t, configurePath, scheduled(id, slots)).Expect(http.StatusOK),
		writer.Get(t, "/v1/workflows/"+id+"/schedules").Expect(http.StatusOK),
	} {
		require.Equal(t, "0 0 * * *", got.Text("schedule.cron"))
		require.Equal(t, "x", got.Text("scheduleBatch.label"))
		require.Nil(t, got.Value("schedule.input"))
		require.Nil(t, got.Value("scheduleBatch.workflowInput"))
	}
	tenant.With(t, identity.ScopeWorkflowsRead).Post(t, configurePath, scheduled(id, slots)).ExpectProblem(http.StatusForbidden, "FORBIDDEN", "")
	tenant.With(t, identity.ScopeWorkflowsRead).Post(t, deleteSchedulesPath, scheduled(id, `"schedule":true`)).Expect(http.StatusForbidden)
	tenant.With(t, identity.ScopeSchedulesWrite).Get(t, "/v1/workflows/"+id+"/schedules").Expect(http.StatusForbidden)
	s.Anonymous().Post(t, configurePath, scheduled(id, slots)).Expect(http.StatusUnauthorized)
}

func testSchedulesErrors(t *testing.T, s *apitest.Service) {
	t.Helper()
	c := s.Tenant(t).As(t, identity.RoleAdmin)
	id := publishScheduled(t, c)
	draft := c.Post(t, "/v2/workflows/"+id+"/create-draft", nil).Expect(http.StatusCreated).Text("id")
	const fine = `"schedule":{"cron":"0 0 * * *","input":{"amount":1}}`
	for name, want := range map[string]struct {
		body          apitest.Raw
		status        int
		code, subCode string
		fields        []string
	}{
		"nothing":          {`{}`, 400, "VALIDATION_ERROR", "MISSING_REQUIRED_FIELD", []string{"workflowId", "schedule"}},
		"no slot":          {apitest.Raw(`{"workflowId":"` + id + `"}`), 400, "VALIDATION_ERROR", "MISSING_REQUIRED_FIELD", []string{"schedule"}},
		"null slots":       {scheduled(id, `"schedule":null,"scheduleBatch":null`), 400, "VALIDATION_ERROR", "MISSING_REQUIRED_FIELD", []string{"schedule"}},
		"no cron":          {scheduled(id, `"schedule":{},"scheduleBatch":{"utcDeltaHours":1}`), 400, "VALIDATION_ERROR", "MISSING_REQUIRED_FIELD", []string{"schedule.cron", "scheduleBatch.cron"}},
		"types":            {scheduled(id, `"schedule":{"cron":5,"utcDeltaHours":"1"},"scheduleBatch":[]`), 400, "VALIDATION_ERROR", "INVALID_FIELD_TYPE", []string{"schedule.cron", "schedule.utcDeltaHours", "scheduleBatch"}},
		"half an hour":     {scheduled(id, `"schedule":{"cron":"0 0 * * *","utcDeltaHours":5.5}`), 400, "VALIDATION_ERROR", "INVALID_FIELD_TYPE", []string{"schedule.utcDeltaHours"}},
		"far east":         {scheduled(id, `"schedule":{"cron":"0 0 * * *","utcDeltaHours":15}`), 400, "VALIDATION_ERROR", "", []string{"schedule.utcDeltaHours"}},
		"far west":         {scheduled(id, `"schedule":{"cron":"0 0 * * *","utcDeltaHours":-13}`), 400, "VALIDATION_ERROR", "", []string{"schedule.utcDeltaHours"}},
		"crons":            {scheduled(id, `"schedule":{"cron":"@daily"},"scheduleBatch":{"cron":"0 24 * * *","utcDeltaHours":99}`), 400, "VALIDATION_ERROR", "", []string{"schedule.cron", "scheduleBatch.cron", "scheduleBatch.utcDeltaHours"}},
		"long cron":        {scheduled(id, `"schedule":{"cron":"0 0 * * `+strings.Repeat("1,", 250)+`1"}`), 400, "VALIDATION_ERROR", "", []string{"schedule.cron"}},
		"unknown members":  {scheduled(id, `"schedule":{"cron":"0 0 * * *","workflowInput":{}},"x":1`), 400, "VALIDATION_ERROR", "", []string{"schedule.workflowInput", "x"}},
		"read-only member": {scheduled(id, `"schedule":{"cron":"0 0 * * *","nextRunAt":"2026-11-21T02:09:25.123Z"}`), 400, "VALIDATION_ERROR", "", []string{"schedule.nextRunAt"}},
		"never":            {scheduled(id, `"schedule":{"cron":"0 0 30 2 *","input":{"amount":1}},"scheduleBatch":{"cron":"0 0 31 4,6 *"}`), 422, "UNPROCESSABLE_ENTITY", "", []string{"schedule.cron", "scheduleBatch.cron"}},
		"input":            {scheduled(id, `"schedule":{"cron":"0 0 * * *","input":{"amount":"1","currency":2}}`), 422, "UNPROCESSABLE_ENTITY", "INPUT_SCHEMA_MISMATCH", []string{"schedule.input.amount", "schedule.input.currency"}},
		"items":            {scheduled(id, `"scheduleBatch":{"cron":"0 0 * * *","workflowInput":{"items":[{"amount":1},{"amount":"1"},{"amount":1,"currency":2}]}}`), 422, "UNPROCESSABLE_ENTITY", "INPUT_SCHEMA_MISMATCH", []string{"scheduleBatch.workflowInput.items[1].amount", "scheduleBatch.workflowInput.items[2].currency"}},
		"no input":         {scheduled(id, `"schedule":{"cron":"0 0 * * *"}`), 422, "UNPROCESSABLE_ENTITY", "INPUT_SCHEMA_MISMATCH", []string{"schedule.input.amount"}},
		"item":             {scheduled(id, `"scheduleBatch":{"cron":"0 0 * * *","workflowInput":{"items":[1]}}`), 400, "VALIDATION_ERROR", "INVALID_FIELD_TYPE", []string{"scheduleBatch.workflowInput.items[0]"}},
		"file":             {scheduled(id, `"scheduleBatch":{"cron":"0 0 * * *","attachmentFileNames":["x.csv"]}`), 404, "NOT_FOUND", "", []string{"scheduleBatch.attachmentFileNames[0]"}},
		"package":          {scheduled(id, `"scheduleBatch":{"cron":"0 0 * * *","workflowInput":{"rawPackageIds":["`+uuid.NewString()+`"]}}`), 404, "NOT_FOUND", "", []string{"scheduleBatch.workflowInput.rawPackageIds[0]"}},
		"unknown workflow": {scheduled(uuid.NewString(), fine), 404, "NOT_FOUND", "", nil},
		"malformed id":     {scheduled("scheduled", fine), 404, "NOT_FOUND", "", nil},
		"draft":            {scheduled(draft, fine), 409, "CONFLICT", "INVALID_WORKFLOW_STATUS", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.Post(t, configurePath, want.body).ExpectProblem(want.status, want.code, want.subCode, want.fields...)
		})
	}
	c.Post(t, deleteSchedulesPath, apitest.Raw(`{"workflowId":"`+id+`"}`)).ExpectProblem(http.StatusBadRequest, "VALIDATION_ERROR", "MISSING_REQUIRED_FIELD", "schedule")
	c.Post(t, deleteSchedulesPath, scheduled(id, `"schedule":"yes"`)).ExpectProblem(http.StatusBadRequest, "VALIDATION_ERROR", "INVALID_FIELD_TYPE", "schedule")
	c.Post(t, deleteSchedulesPath, scheduled(uuid.NewString(), `"schedule":true`)).ExpectProblem(http.StatusNotFound, "NOT_FOUND", "")
	c.Get(t, "/v1/workflows/"+uuid.NewString()+"/schedules").ExpectProblem(http.StatusNotFound, "NOT_FOUND", "")
	c.Get(t, "/v1/workflows/x/schedules").ExpectProblem(http.StatusNotFound, "NOT_FOUND", "")

	// Rejected requests changed nothing.
	shown := c.Get(t, "/v1/workflows/"+id+"/schedules").Expect(http.StatusOK)
	require.Nil(t, shown.Value("schedule"))
	require.Nil(t, shown.Value("scheduleBatch"))

	other := s.Tenant(t).As(t, identity.RoleAdmin)
	other.Post(t, configurePath, scheduled(id, fine)).ExpectProblem(http.StatusNotFound, "NOT_FOUND", "")
	other.Post(t, deleteSchedulesPath, scheduled(id, `"schedule":true`)).ExpectProblem(http.StatusNotFound, "NOT_FOUND", "")
	other.Get(t, "/v1/workflows/"+id+"/schedules").ExpectProblem(http.StatusNotFound, "NOT_FOUND", "")
}

// Due schedules start runs.
func TestSchedulesRun(t *testing.T) {
	t.Parallel()
	s := apitest.Start(t)
	tenant := s.Tenant(t)
	c := tenant.As(t, identity.RoleAdmin)
	id := publishScheduled(t, c)
	c.Post(t, configurePath, scheduled(id, `"schedule":{"cron":"0 0 1 1 *","input":{"amount":1.10}}`)).Expect(http.StatusOK)
	// The schedule of a sandbox client starts tests.
	sandbox := tenant.Sandbox(t, identity.RoleAdmin)
	sandbox.Post(t, configurePath,
		scheduled(id, `"scheduleBatch":{"cron":"0 0 1 1 *","workflowInput":{"items":[{"amount":2.20}]},"attachmentFileNames":["`+uploadFile(t, sandbox, "more.csv", "amount\nx\n")+`"]}`)).Expect(http.StatusOK)
	_, err := s.Pool.Exec(t.Context(), `UPDATE schedules SET next_run_at = '2026-01-01T00:00:00Z'`)
	require.NoError(t, err)

	var shown *apitest.Answer
	require.Eventually(t, func() bool {
		shown = c.Get(t, "/v1/workflows/"+id+"/schedules").Expect(http.StatusOK)
		return shown.Value("firings[1]") != nil
	}, 20*time.Second, 50*time.Millisecond)
	for i, slot := range []string{"schedule", "scheduleBatch"} {
		at := []string{"firings[0].", "firings[1]."}[i]
		require.Equal(t, slot, shown.Text(at+"slot"))
		require.Equal(t, "started", shown.Text(at+"status"))
		require.Equal(t, "2026-01-01T00:00:00.000Z", shown.Text(at+"scheduledAt"))
	}
	executionID := shown.Text("firings[0].executionId")
	require.Eventually(t, func() bool {
		return c.Get(t, "/v1/executions/"+executionID+"/status").Expect(http.StatusOK).Text("status") == "completed"
	}, 20*time.Second, 20*time.Millisecond)
	require.Equal(t, `{"amount":1.10,"currency":"EUR"}`, c.Get(t, "/v1/executions/"+executionID+"/output").Expect(http.StatusOK).Text("output"))
	record := awaitBatch(t, c, shown.Text("firings[1].executionBatchId"))
	require.Equal(t, "complete", record.Text("status"))
	require.Equal(t, "1", record.Text("state.batchItemsExecutionsSummary.completed"))
	require.Equal(t, "1", record.Text("state.batchItemsExecutionsSummary.failed"))

	var principals, tests int
	require.NoError(t, s.Pool.QueryRow(t.Context(), `SELECT count(*) FILTER (WHERE principal_id = $1), count(*) FILTER (WHERE is_test) FROM executions`,
		"schedule:"+id).Scan(&principals, &tests))
	require.Equal(t, 3, principals)
	require.Equal(t, 2, tests)

	// A batch schedule with only cron repeats the newest batch, here a test.
	sandbox.Post(t, configurePath, scheduled(id, `"scheduleBatch":{"cron":"0 0 1 1 *"}`)).Expect(http.StatusOK)
	_, err = s.Pool.Exec(t.Context(), `UPDATE schedules SET next_run_at = '2026-01-02T00:00:00Z' WHERE slot = 'scheduleBatch'`)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		shown = c.Get(t, "/v1/workflows/"+id+"/schedules").Expect(http.StatusOK)
		return shown.Text("firings[0].scheduledAt") == "2026-01-02T00:00:00.000Z"
	}, 20*time.Second, 50*time.Millisecond)
	record = awaitBatch(t, c, shown.Text("firings[0].executionBatchId"))
	require.Equal(t, "2", record.Text("state.batchItemsExecutionsSummary.total"))

	c.Post(t, "/v2/workflows/"+id+"/archive", nil).Expect(http.StatusOK)
	shown = c.Get(t, "/v1/workflows/"+id+"/schedules").Expect(http.StatusOK)
	require.Nil(t, shown.Value("schedule"))
	require.Nil(t, shown.Value("scheduleBatch"))
	require.NotNil(t, shown.Value("firings[2]"), "the history stays")
	c.Post(t, configurePath, scheduled(id, `"schedule":{"cron":"* * * * *","input":{"amount":1}}`)).
		ExpectProblem(http.StatusConflict, "CONFLICT", "INVALID_WORKFLOW_STATUS")
}

// A schedule that another version of the service stored is returned without its unreadable
// part. The other schedule and the firings are returned as well.
func testSchedulesUnreadable(t *testing.T, s *apitest.Service) {
	t.Helper()
	c := s.Tenant(t).As(t, identity.RoleAdmin)
	id := publishScheduled(t, c)
	const single, batch = `"schedule":{"cron":"0 0 29 2 *","input":{"amount":1}}`, `"scheduleBatch":{"cron":"0 0 29 2 *","label":"x"}`
	c.Post(t, configurePath, scheduled(id, single+","+batch)).Expect(http.StatusOK)
	for _, other := range []struct{ slot, write, readable, repair string }{
		{"schedule", `UPDATE schedules SET input = '{"amount":1,"amount":2}' WHERE workflow_id = $1 AND slot = 'schedule'`, "scheduleBatch", single},
		{"scheduleBatch", `UPDATE schedules SET batch = '{"label":["x"]}' WHERE workflow_id = $1 AND slot = 'scheduleBatch'`, "schedule", batch},
	} {
		before := c.Get(t, "/v1/workflows/"+id+"/schedules").Expect(http.StatusOK)
		_, err := s.Pool.Exec(t.Context(), other.write, id)
		require.NoError(t, err)
		got := c.Get(t, "/v1/workflows/"+id+"/schedules").Expect(http.StatusOK)
		require.Equal(t, before.Value(other.readable), got.Value(other.readable))
		require.Equal(t, map[string]any{
			"cron": "0 0 29 2 *", "utcDeltaHours": json.Number("0"), "nextRunAt": before.Value(other.slot + ".nextRunAt"), "reason": "the stored input or batch cannot be read; configure the schedule again",
		}, got.Value(other.slot))
		require.Equal(t, []any{}, got.Value("firings"))

		repaired := c.Post(t, configurePath, scheduled(id, other.repair)).Expect(http.StatusOK)
		require.Equal(t, before.Value(other.slot), repaired.Value(other.slot))
	}
}
