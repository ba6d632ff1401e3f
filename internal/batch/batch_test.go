package batch_test

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"tranche/internal/apitest"
	"tranche/internal/identity"
)

// affordability is a workflow without effects. It computes a ratio and a decision for every
// item.
const affordability = `{
	"name": "Affordability", "alias": "affordability",
	"inputSchema": {"type": "object", "required": ["borrowerId", "income", "debt"], "additionalProperties": false, "properties": {
		"borrowerId": {"type": "string"}, "income": {"type": "number", "exclusiveMinimum": 0}, "debt": {"type": "number"},
		"note": {"type": "string"}, "address": {"type": "object", "properties": {"zip": {"type": "string"}}},
		"currency": {"type": "string", "default": "EUR"}}},
	"tasks": [
		{"id": "rate", "type": "transform", "config": {"fields": {"ratio": "{{ round(input.debt / input.income, 4) }}"}}},
		{"id": "route", "type": "switch", "config": {"cases": [{"when": "tasks.rate.output.ratio > 0.5", "goto": "reject"}], "default": "accept"}},
		{"id": "accept", "type": "end", "config": {"output": {"decision": "accept", "ratio": "{{ tasks.rate.output.ratio }}", "income": "{{ input.income }}", "campaign": "{{ custom.campaign }}"}}},
		{"id": "reject", "type": "end", "config": {"status": "failed", "errorMessage": "the ratio is too high"}}],
	"edges": [{"source": "start", "target": "rate"}, {"source": "rate", "target": "route"}, {"source": "route", "target": "accept"}, {"source": "route", "target": "reject"}]}`

// publish publishes a workflow and returns its id.
func publish(tb testing.TB, c *apitest.Caller, definition string) string {
	tb.Helper()
	id := c.Post(tb, "/v2/workflows", apitest.Raw(definition)).Expect(http.StatusCreated).Text("id")
	c.Post(tb, "/v2/workflows/"+id+"/publish", nil).Expect(http.StatusOK)
	return id
}

// upload uploads a file and returns its stored name.
func upload(tb testing.TB, c *apitest.Caller, name, text string) string {
	tb.Helper()
	address := c.Post(tb, "/v1/stores/packages/commands/attachments/generate-upload-signed-url", map[string]any{"fileName": name}).Expect(http.StatusCreated)
	put := c.Put(tb, address.Text("signedUrl"), apitest.Raw(text), apitest.Header{Name: "Content-Type", Value: address.Text("contentType")}, apitest.Header{Name: "Authorization"})
	put.Expect(http.StatusOK)
	return address.Text("fileName")
}

type record struct {
	ID        string    `json:"executionBatchId"`
	Status    string    `json:"status"`
	Label     string    `json:"label"`
	UpdatedAt time.Time `json:"updatedAt"`
	State     struct {
		Summary struct{ Total, Completed, Failed, Pending, UnsuccessfulSources int } `json:"batchItemsExecutionsSummary"`
	} `json:"state"`
	Outputs struct {
		Pre struct {
			Result string `json:"result"`
			Count  int    `json:"validatedItemsCount"`
		} `json:"wBatchPreProcessingOutput"`
		Post struct {
			PackageID *string `json:"processedOutputPackageId"`
		} `json:"wBatchPostProcessingOutput"`
	} `json:"outputs"`
}

func start(tb testing.TB, c *apitest.Caller, alias string, body any) string {
	tb.Helper()
	return c.Post(tb, "/v1/workflows/"+alias+"/v1/execute-batch", body).Expect(http.StatusAccepted).Text("executionBatchId")
}

// follow polls a batch until it ends, and checks the sum of its counts.
func follow(tb testing.TB, c *apitest.Caller, id string) record {
	tb.Helper()
	for deadline := time.Now().Add(waitMax); ; {
		var r record
		c.Get(tb, "/v1/execution-batches/"+id).Expect(http.StatusOK).Decode(&r)
		s := r.State.Summary
		require.Equal(tb, s.Total, s.Completed+s.Failed+s.Pending)
		switch r.Status {
		case "complete", "pre_processing_failed", "post_processing_failed":
			return r
		}
		require.True(tb, time.Now().Before(deadline), "the batch does not end: %+v", r)
		time.Sleep(50 * time.Millisecond)
	}
}

// files downloads the files of a package, by name.
func files(tb testing.TB, c *apitest.Caller, packageID string) map[string]string {
	tb.Helper()
	list := c.Get(tb, "/v1/stores/packages/"+packageID+"/attachments").Expect(http.StatusOK)
	var body struct {
		Data []struct{ FileName, DownloadURL string }
	}
	list.Decode(&body)
	texts := map[string]string{}
	for _, f := range body.Data {
		texts[f.FileName] = string(c.Get(tb, f.DownloadURL, apitest.Header{Name: "Authorization"}).Expect(http.StatusOK).Body)
	}
	return texts
}

func table(t *testing.T, text string) []map[string]string {
	t.Helper()
	rows, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	require.NoError(t, err)
	items := make([]map[string]string, 0, len(rows))
	for _, row := range rows[1:] {
		item := map[string]string{}
		for i, name := range rows[0] {
			item[name] = row[i]
		}
		items = append(items, item)
	}
	return items
}

func TestBatchFromUploadToPackage(t *testing.T) {
	t.Parallel()
	s := apitest.Start(t)
	c := s.Tenant(t).As(t, identity.RoleAdmin)
	publish(t, c, affordability)
	name := upload(t, c, "loans.csv", "borrowerId;income;debt;note;address.zip\n"+
		"B-1;1000.10;100.20;=1+1;01234\n"+
		"B-2;abc;100;;\n"+
		"B-3;1000;900;;\n"+
		"B-4;-5;1;;\n"+
		"B-5;123456789012345678901234567890.10;1;;\n")
	accepted := c.Post(t, "/v1/workflows/affordability/latest/execute-batch", map[string]any{
		"description": "a test", "attachmentFileNames": []string{name},
		"workflowInput": map[string]any{
			"items":       []any{map[string]any{"borrowerId": "B-0", "income": 10, "debt": 1}, map[string]any{"unknown": true}},
			"customInput": map[string]any{"campaign": "november"},
		},
	}).Expect(http.StatusAccepted)
	require.NotEmpty(t, accepted.Text("executedAt"))
	r := follow(t, c, accepted.Text("executionBatchId"))
	require.Equal(t, "complete", r.Status)
	require.Equal(t, "affordability", r.Label)
	require.Equal(t, "partially_valid", r.Outputs.Pre.Result)
	require.Equal(t, 4, r.Outputs.Pre.Count)
	require.Equal(t, [4]int{7, 3, 4, 0}, [4]int{r.State.Summary.Total, r.State.Summary.Completed, r.State.Summary.Failed, r.State.Summary.Pending})

	texts := files(t, c, *r.Outputs.Post.PackageID)
	results := table(t, texts["results.csv"])
	require.Len(t, results, 7)
	require.Equal(t, "accept", results[0]["output.decision"])
	require.Equal(t, "november", results[0]["output.campaign"])
	require.Equal(t, "failed", results[1]["status"])
	require.Empty(t, results[1]["rowNumber"])
	require.Equal(t, map[string]string{
		"itemIndex": "2", "rowNumber": "2", "sourceFileName": "loans.csv", "executionId": results[2]["executionId"], "status": "completed", "statusCode": "200",
		"input.borrowerId": "B-1", "input.income": "1000.10", "input.debt": "100.20", "input.note": "'=1+1", "input.address.zip": "01234",
		"input.currency": "EUR", "input.unknown": "", "output.decision": "accept", "output.ratio": "0.1002", "output.income": "1000.10", "output.campaign": "november", "errorMessage": "",
	}, results[2])
	require.Equal(t, "loans.csv, row 3: income: must be a number such as 1234.56", results[3]["errorMessage"])
	require.Equal(t, "the ratio is too high", results[4]["errorMessage"])
	require.Contains(t, results[5]["errorMessage"], "loans.csv, row 5: income: ")
	require.Equal(t, "123456789012345678901234567890.10", results[6]["output.income"])
	require.Len(t, strings.Split(strings.TrimSpace(texts["results.jsonl"]), "\n"), 7)
	require.Contains(t, texts["results.jsonl"], `"income":123456789012345678901234567890.10`)

	var manifest struct {
		Counts map[string]int
		Files  []struct {
			FileName string
			RowCount int
			SHA256   string
		}
	}
	require.NoError(t, json.Unmarshal([]byte(texts["manifest.json"]), &manifest))
	require.Equal(t, map[string]int{"total": 7, "completed": 3, "failed": 4, "pending": 0, "unsuccessfulSources": 0, "validated": 4}, manifest.Counts)
	require.Len(t, manifest.Files, 3)

	// An item is an execution.
	output := c.Get(t, "/v1/executions/"+results[2]["executionId"]+"/output").Expect(http.StatusOK)
	require.Equal(t, "1000.10", output.Text("output.income"))
	require.Equal(t, "B-1", output.Text("borrowerId"))
	require.Equal(t, "failed", c.Get(t, "/v1/executions/"+results[3]["executionId"]+"/status").Expect(http.StatusOK).Text("status"))
	require.Equal(t, "INPUT_SCHEMA_MISMATCH", c.Get(t, "/v1/executions/"+results[3]["executionId"]+"/output").Expect(http.StatusOK).Text("errorSubCode"))

	// The failed rows succeed after they are corrected.
	failed := texts["failed.csv"]
	require.Equal(t, []string{"", "3", "4", "5"}, []string{table(t, failed)[0]["_row"], table(t, failed)[1]["_row"], table(t, failed)[2]["_row"], table(t, failed)[3]["_row"]})
	lines := strings.Split(failed, "\n")
	header := strings.Replace(lines[0], "unknown", "_unknown", 1)
	corrected := strings.Join([]string{header, strings.Replace(lines[2], "abc", "2000", 1), strings.Replace(lines[3], "900", "9", 1), strings.Replace(lines[4], "-5", "5", 1)}, "\n")
	r = follow(t, c, start(t, c, "affordability", map[string]any{"attachmentFileNames": []string{upload(t, c, "failed.csv", corrected)}}))
	require.Equal(t, "complete", r.Status)
	require.Equal(t, "valid", r.Outputs.Pre.Result)
	require.Equal(t, 3, r.State.Summary.Completed)
}

func TestBatchOfPackages(t *testing.T) {
	t.Parallel()
	s := apitest.Start(t)
	c := s.Tenant(t).As(t, identity.RoleAdmin)
	publish(t, c, affordability)
	first := c.Post(t, "/v1/workflows/affordability/v1/execute-batch", map[string]any{"attachmentFileNames": []string{
		upload(t, c, "a.csv", "borrowerId,income,debt\nB-1,10,1\nB-2,10,9\n"), upload(t, c, "b.tsv", "borrowerId\tincome\tdebt\nB-3\t10\t9\n"),
	}}).Expect(http.StatusAccepted)
	r := follow(t, c, first.Text("executionBatchId"))
	require.Equal(t, 2, r.State.Summary.Failed)
	raw := c.Get(t, "/v1/stores/packages/"+first.Text("rawPackageId")+"/attachments").Expect(http.StatusOK)
	require.Equal(t, "input", raw.Text("data[1].role"))
	require.Equal(t, "b.tsv", raw.Text("data[1].fileName"))
	// All files of the raw package are sources, and the failed items of the output package.
	r = follow(t, c, start(t, c, "affordability", map[string]any{"label": "again", "workflowInput": map[string]any{
		"rawPackageIds": []string{first.Text("rawPackageId"), *r.Outputs.Post.PackageID},
	}}))
	require.Equal(t, "complete", r.Status)
	require.Equal(t, "again", r.Label)
	require.Equal(t, [3]int{5, 1, 4}, [3]int{r.State.Summary.Total, r.State.Summary.Completed, r.State.Summary.Failed})
}

func TestUnreadableFileFailsBatch(t *testing.T) {
	t.Parallel()
	s := apitest.Start(t)
	c := s.Tenant(t).As(t, identity.RoleAdmin)
	publish(t, c, affordability)
	for name, want := range map[string]struct {
		text, result string
		total        int
	}{
		"empty.csv":  {"", "failed: empty.csv: the file is empty; the first row must name the columns", 0},
		"header.csv": {"borrowerId,income,debt\n", "failed: header.csv: there is no item in it", 0},
		"empty.json": {"[]", "failed: empty.json: there is no item in it", 0},
		"none.csv":   {"borrowerId,income,debt\nB-1,x,1\nB-2,1,y\n", "failed: no item matches the input schema; the first: none.csv, row 2: income: must be a number such as 1234.56", 2},
		"broken.csv": {"borrowerId,income,debt\n" + strings.Repeat("B-1,10,1\n", 2500) + "\"B-2,1,1\nB-3,10,1\n", "failed: broken.csv, row 2502: a quote is out of place or not closed", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			id := start(t, c, "affordability", map[string]any{"attachmentFileNames": []string{upload(t, c, name, want.text)}})
			r := follow(t, c, id)
			require.Equal(t, "pre_processing_failed", r.Status)
			require.Equal(t, want.result, r.Outputs.Pre.Result)
			require.Equal(t, [3]int{want.total, want.total, 0}, [3]int{r.State.Summary.Total, r.State.Summary.Failed, r.State.Summary.Pending})
			require.Nil(t, r.Outputs.Post.PackageID)
			var left int
			require.NoError(t, s.Pool.QueryRow(t.Context(), "SELECT count(*) FROM executions JOIN execution_payloads p ON p.execution_id = id WHERE batch_id = $1", uuid.MustParse(id)).Scan(&left))
			require.Equal(t, want.total, left)
		})
	}
}

// A broken row fails only its item. Its row of failed.csv can be corrected and uploaded.
func TestBrokenRowFailsAlone(t *testing.T) {
	t.Parallel()
	s := apitest.Start(t)
	c := s.Tenant(t).As(t, identity.RoleAdmin)
	publish(t, c, affordability)
	long := `{"borrowerId":"` + strings.Repeat("x", 1<<20) + `"}`
	first := map[string]any{"attachmentFileNames": []string{
		upload(t, c, "excel.csv", "sep=;\rborrowerId;income;debt;note\rB-1;1000.10;1;say \"hi\"\rB-2;10;1;\rB-3;10\r"),
		upload(t, c, "lines.jsonl", long+"\n\n{\"borrowerId\":\"B-4\",\"income\":10,\"debt\":1}\n{\"borrowerId\":\"B-5\"\n"+long+long),
	}}
	id := start(t, c, "affordability", first)
	r := follow(t, c, id)
	require.Equal(t, "complete", r.Status)
	require.Equal(t, "partially_valid", r.Outputs.Pre.Result)
	require.Equal(t, [4]int{7, 2, 5, 0}, counts(r))
	list := c.Get(t, "/v1/execution-batches/"+id+"/items?status=failed").Expect(http.StatusOK)
	for i, want := range []string{
		"excel.csv, row 2: note: a quote is out of place or not closed",
		"excel.csv, row 4: the row has 2 cells, but the header has 4; debt: is required",
		"lines.jsonl, row 1: the row is longer than 1048576 bytes",
		"lines.jsonl, row 4: invalid JSON at byte 19",
		"lines.jsonl, row 5: the row is longer than 1048576 bytes",
	} {
		require.Equal(t, want, list.Text(fmt.Sprintf("data[%d].errorMessage", i)))
	}
	failed := files(t, c, *r.Outputs.Post.PackageID)["failed.csv"]
	require.Equal(t, "borrowerId,income,debt,note,currency,_row,_sourceFile,_error\n"+
		"B-1,1000.10,1,,,2,excel.csv,\"excel.csv, row 2: note: a quote is out of place or not closed\"\n"+
		"B-3,10,,,,4,excel.csv,\"excel.csv, row 4: the row has 2 cells, but the header has 4; debt: is required\"\n"+
		",,,,,1,lines.jsonl,\"lines.jsonl, row 1: the row is longer than 1048576 bytes\"\n"+
		",,,,,4,lines.jsonl,\"lines.jsonl, row 4: invalid JSON at byte 19\"\n"+
		",,,,,5,lines.jsonl,\"lines.jsonl, row 5: the row is longer than 1048576 bytes\"\n", failed)
	corrected := strings.Replace(strings.Replace(failed, "B-1,1000.10,1,,", `B-1,1000.10,1,"say ""hi""",`, 1), "B-3,10,,", "B-3,10,1,", 1)
	r = follow(t, c, start(t, c, "affordability", map[string]any{"attachmentFileNames": []string{upload(t, c, "failed.csv", corrected)}}))
	require.Equal(t, [4]int{5, 2, 3, 0}, counts(r))
	require.Contains(t, files(t, c, *r.Outputs.Post.PackageID)["results.jsonl"], `"note":"say \"hi\""`)
}

// A batch that was cancelled while it was read has a notice.
func TestCancelWhileReading(t *testing.T) {
	t.Parallel()
	s := newStages(t, 10)
	at := "/v1/execution-batches/" + s.id.String()
	s.caller.Post(t, at+"/cancel", nil).Expect(http.StatusOK)
	require.Equal(t, "failed: the batch was cancelled before all items were read", s.record(t).Outputs.Pre.Result)
	done, err := s.runner.CancelItems(t.Context(), s.key())
	require.NoError(t, err)
	require.True(t, done)
	require.NoError(t, s.output.PostProcess(t.Context(), s.key()))
	require.Equal(t, "cancelled", s.record(t).Status)
}

// A large batch has several chunks, ranges and windows.
func TestBatchOfManyWindows(t *testing.T) {
	t.Parallel()
	s := apitest.Start(t)
	c := s.Tenant(t).As(t, identity.RoleAdmin)
	publish(t, c, affordability)
	var file strings.Builder
	file.WriteString("borrowerId,income,debt\n")
	const items = 12_500 // thirteen chunks, of which eight are a window
	for i := range items {
		switch {
		case i%100 == 7:
			fmt.Fprintf(&file, "B-%d,none,%d.10\n", i, i%9)
		case i%10 == 3:
			fmt.Fprintf(&file, "B-%d,10,9\n", i)
		default:
			fmt.Fprintf(&file, "B-%d,1000.00,%d.10\n", i, i%9)
		}
	}
	began := time.Now()
	r := follow(t, c, start(t, c, "affordability", map[string]any{"attachmentFileNames": []string{upload(t, c, "many.csv", file.String())}}))
	t.Logf("%d items in %v", items, time.Since(began))
	require.Equal(t, "complete", r.Status)
	require.Equal(t, [4]int{items, items - items/100 - items/10, items/100 + items/10, 0}, [4]int{r.State.Summary.Total, r.State.Summary.Completed, r.State.Summary.Failed, r.State.Summary.Pending})
	results := table(t, files(t, c, *r.Outputs.Post.PackageID)["results.csv"])
	require.Len(t, results, items)
	for i, row := range results {
		require.Equal(t, fmt.Sprint(i), row["itemIndex"])
		require.Equal(t, fmt.Sprintf("B-%d", i), row["input.borrowerId"])
	}
}

// Items with effects run one by one: also items that wait between two tries, and items with a
// failed source.
func TestBatchWithEffects(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("id") == "B-7" {
			http.Error(w, "{}", http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"score": 700.50}`))
	}))
	t.Cleanup(server.Close)
	s := apitest.Start(t)
	c := s.Tenant(t).As(t, identity.RoleAdmin)
	publish(t, c, `{"name": "Bureau", "alias": "bureau", "inputSchema": {"type": "object", "properties": {"borrowerId": {"type": "string"}}},
		"tasks": [
			{"id": "score", "type": "http-request", "config": {"method": "GET", "url": "`+server.URL+`/score?id={{ input.borrowerId }}", "source": "bureau", "onError": "continue"}},
			{"id": "done", "type": "end", "config": {"output": {"score": "{{ tasks.score.output.body.score }}"}}}],
		"edges": [{"source": "start", "target": "score"}, {"source": "score", "target": "done"}]}`)
	var items []any
	const count = 2200
	for i := range count {
		items = append(items, map[string]any{"borrowerId": fmt.Sprintf("B-%d", i)})
	}
	began := time.Now()
	r := follow(t, c, start(t, c, "bureau", map[string]any{"workflowInput": map[string]any{"items": items}}))
	t.Logf("%d items in %v", count, time.Since(began))
	require.Equal(t, "complete", r.Status)
	require.Equal(t, [4]int{count, count, 0, 1}, [4]int{r.State.Summary.Total, r.State.Summary.Completed, r.State.Summary.Failed, r.State.Summary.UnsuccessfulSources})
	results := table(t, files(t, c, *r.Outputs.Post.PackageID)["results.csv"])
	require.Equal(t, "700.50", results[0]["output.score"])
	require.Empty(t, results[7]["output.score"])
}
