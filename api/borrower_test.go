package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tranche/internal/apitest"
	"tranche/internal/identity"
)

// An input with a borrower id that is too long is rejected, because its execution would
// have no borrower.
func testExecuteBorrowerOfInput(t *testing.T, s *apitest.Service) {
	t.Helper()
	c := s.Tenant(t).As(t, identity.RoleAdmin)
	id := publish(t, c, `{"name":"x","alias":"w","tasks":[{"id":"done","type":"end","config":{}}]}`)
	input := func(borrower string) string { return `{"borrowerId":"` + borrower + `"}` }
	long := input(strings.Repeat("é", 256))

	refused := c.Post(t, "/v1/workflows/w/v1/execute", apitest.Raw(long))
	refused.ExpectProblem(http.StatusUnprocessableEntity, "UNPROCESSABLE_ENTITY", "INPUT_SCHEMA_MISMATCH", "borrowerId")
	require.Equal(t, "must have at most 255 characters", refused.Text("details[0].message"))
	for _, borrower := range []string{"", strings.Repeat("é", 255)} {
		executed := c.Post(t, "/v1/workflows/w/v1/execute", apitest.Raw(input(borrower))).Expect(http.StatusOK).Text("executionId")
		require.Equal(t, borrower, c.Get(t, "/v1/executions/"+executed).Expect(http.StatusOK).Text("borrowerId"))
	}

	c.Post(t, "/v1/workflows/commands/configure-schedules", apitest.Raw(`{"workflowId":"`+id+`","schedule":{"cron":"0 0 * * *","input":`+long+`}}`)).
		ExpectProblem(http.StatusUnprocessableEntity, "UNPROCESSABLE_ENTITY", "INPUT_SCHEMA_MISMATCH", "schedule.input.borrowerId")

	batch := c.Post(t, "/v1/workflows/w/v1/execute-batch", apitest.Raw(`{"workflowInput":{"items":[`+input("B-1")+`,`+long+`]}}`)).
		Expect(http.StatusAccepted).Text("executionBatchId")
	awaitBatch(t, c, batch)
	items := c.Get(t, "/v1/execution-batches/"+batch+"/items").Expect(http.StatusOK)
	require.Equal(t, []string{"completed", "failed"}, []string{items.Text("data[0].status"), items.Text("data[1].status")}, "%s", items.Body)
	output := c.Get(t, "/v1/executions/"+items.Text("data[1].executionId")+"/output").Expect(http.StatusOK)
	require.Contains(t, output.Text("errorMessage"), "borrowerId: must have at most 255 characters")
}
