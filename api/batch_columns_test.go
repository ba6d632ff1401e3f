package api_test

import (
	"encoding/csv"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tranche/internal/apitest"
	"tranche/internal/identity"
)

// packageTables returns the rows of the tables of a package by file name.
func packageTables(t *testing.T, c *apitest.Caller, packageID string) map[string][][]string {
	t.Helper()
	files := c.Get(t, "/v1/stores/packages/"+packageID+"/attachments").Expect(http.StatusOK)
	tables := map[string][][]string{}
	for i := range 4 {
		at := "data[" + string(rune('0'+i)) + "]."
		if name := files.Text(at + "fileName"); strings.HasSuffix(name, ".csv") {
			rows, err := csv.NewReader(strings.NewReader(string(c.Get(t, files.Text(at+"downloadUrl"), noToken).Expect(http.StatusOK).Body))).ReadAll()
			require.NoError(t, err)
			tables[name] = rows
		}
	}
	return tables
}

// Every property of inputs and outputs has a column of its own, regardless of its name.
// failed.csv restores each property.
func testBatchesEveryPropertyHasColumn(t *testing.T, s *apitest.Service) {
	t.Helper()
	c := s.Tenant(t).As(t, identity.RoleAdmin)
	id := c.Post(t, "/v2/workflows", apitest.Raw(`{"name": "Dots", "alias": "dots",
		"inputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}},
		"tasks": [{"id": "echo", "type": "transform", "config": {"fields": {
			"c.d": "{{ input[\"a.b\"] }}", "c": {"d": "{{ input.a.b }}"}, "": {"d": "{{ input._row }}"}, "d": "{{ input[\"a\\\\\"].b }}"}}}], "edges": []}`)).
		Expect(http.StatusCreated).Text("id")
	c.Post(t, "/v2/workflows/"+id+"/publish", nil).Expect(http.StatusOK)
	run := func(body string) (tables map[string][][]string) {
		started := c.Post(t, "/v1/workflows/dots/v1/execute-batch", apitest.Raw(body)).Expect(http.StatusAccepted)
		record := awaitBatch(t, c, started.Text("executionBatchId"))
		return packageTables(t, c, record.Text("outputs.wBatchPostProcessingOutput.processedOutputPackageId"))
	}

	tables := run(`{"workflowInput": {"items": [{"a.b": "1", "a": {"b": "2"}, "_row": "3", "a\\": {"b": "4"}},
		{"a.b": "5", "a": {"b": "6"}, "_row": "7", "a\\": {"b": "8"}, "n": "x"}]}}`)
	results := tables["results.csv"]
	require.Equal(t, []string{
		"input._row", "input.a.b", `input.a\.b`, `input.a\\.b`, "input.n",
		"output..d", "output.c.d", `output.c\.d`, "output.d", "errorMessage",
	}, results[0][6:])
	require.Equal(t, []string{"3", "2", "1", "4", "", "3", "2", "1", "4", ""}, results[1][6:])
	require.Equal(t, []string{"7", "6", "5", "8", "x"}, results[2][6:11])
	failed := tables["failed.csv"]
	require.Equal(t, []string{`\_row`, "a.b", `a\.b`, `a\\.b`, "n", "_row", "_sourceFile", "_error"}, failed[0])
	require.Equal(t, []string{"7", "6", "5", "8", "x"}, failed[1][:5])

	var corrected strings.Builder
	failed[1][4] = "1"
	require.NoError(t, csv.NewWriter(&corrected).WriteAll(failed))
	again := run(`{"attachmentFileNames": ["` + uploadFile(t, c, "failed.csv", corrected.String()) + `"]}`)["results.csv"]
	require.Equal(t, "completed", again[1][4])
	require.Equal(t, results[0], again[0])
	require.Equal(t, []string{"7", "6", "5", "8", "1", "7", "6", "5", "8", ""}, again[1][6:])
}
