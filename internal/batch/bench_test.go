package batch_test

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tranche/internal/apitest"
	"tranche/internal/identity"
)

// BenchmarkBatch measures a batch without effects from execute-batch to the
// readable package, and how long each stage took: go test -bench Batch
// -benchtime 100000x ./internal/batch.
func BenchmarkBatch(b *testing.B) {
	if b.N < 1000 {
		return // the try that the testing package begins with
	}
	s := apitest.Start(b)
	c := s.Tenant(b).As(b, identity.RoleAdmin)
	definition, err := os.ReadFile("testdata/bench_workflow.json")
	require.NoError(b, err)
	id := c.Post(b, "/v2/workflows", apitest.Raw(definition)).Expect(http.StatusCreated).Text("id")
	c.Post(b, "/v2/workflows/"+id+"/publish", nil).Expect(http.StatusOK)
	var file strings.Builder
	file.WriteString("borrowerId,firstName,lastName,email,income,debt,amount,months,score,purpose,address.street,address.zip,address.city\n")
	for i := range b.N {
		fmt.Fprintf(&file, "B-%07d,Maria,Santos-%d,maria.santos.%d@example.com,%d.%02d,%d.10,%d.00,36,%d,home improvement,12 Long Avenue,0%d,Springfield\n",
			i, i, i, 2000+i%9000, i%100, i%900, 1000+i%50000, 500+i%350, 1000+i%9000)
	}
	name := upload(b, c, "loans.csv", file.String())
	b.ResetTimer()
	timeStages(b, c, start(b, c, "bench", map[string]any{"attachmentFileNames": []string{name}}))
}

// timeStages follows a new batch to its end and reports the duration of each stage.
func timeStages(b *testing.B, c *apitest.Caller, batchID string) {
	b.Helper()
	began, stages := time.Now(), map[string]time.Time{}
	var r record
	for r.Status != "complete" {
		c.Get(b, "/v1/execution-batches/"+batchID).Expect(http.StatusOK).Decode(&r)
		require.NotContains(b, r.Status, "failed")
		if _, ok := stages[r.Status]; !ok {
			stages[r.Status] = time.Now()
		}
		time.Sleep(20 * time.Millisecond)
	}
	b.StopTimer()
	require.Equal(b, b.N, r.State.Summary.Completed)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "items/s")
	b.ReportMetric(stages["processing"].Sub(began).Seconds(), "s-reading")
	b.ReportMetric(stages["post_processing"].Sub(stages["processing"]).Seconds(), "s-running")
	b.ReportMetric(stages["complete"].Sub(stages["post_processing"]).Seconds(), "s-writing")
}
