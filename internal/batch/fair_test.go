package batch_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tranche/internal/apitest"
	"tranche/internal/identity"
)

// A large batch holds up neither another tenant's small one nor its single
// executions.
func TestBatchesTakeTurns(t *testing.T) {
	t.Parallel()
	s := apitest.Start(t)
	large, small := s.Tenant(t).As(t, identity.RoleAdmin), s.Tenant(t).As(t, identity.RoleAdmin)
	publish(t, large, affordability)
	publish(t, small, affordability)
	const items = 40_000
	var file strings.Builder
	file.WriteString("borrowerId,income,debt\n")
	for i := range items {
		fmt.Fprintf(&file, "B-%d,1000.00,%d.10\n", i, i%9)
	}
	id := start(t, large, "affordability", map[string]any{"attachmentFileNames": []string{upload(t, large, "large.csv", file.String())}})
	until(t, large, id, func(r record) bool { return r.Status == "processing" })

	one := map[string]any{"borrowerId": "B-1", "income": 10, "debt": 1}
	began := time.Now()
	r := follow(t, small, start(t, small, "affordability", map[string]any{"workflowInput": map[string]any{"items": []any{one, one, one}}}))
	took := time.Since(began)
	require.Equal(t, 3, r.State.Summary.Completed)
	var singles []time.Duration
	for range 20 {
		began := time.Now()
		small.Post(t, "/v1/workflows/affordability/v1/execute", one).Expect(http.StatusOK)
		singles = append(singles, time.Since(began))
	}
	var now record
	large.Get(t, "/v1/execution-batches/"+id).Expect(http.StatusOK).Decode(&now)
	slices.Sort(singles)
	t.Logf("beside %d items, of which %d were pending: a batch of three in %v, an execution in %v (median) and %v (slowest)",
		items, now.State.Summary.Pending, took, singles[len(singles)/2], singles[len(singles)-1])
	require.Positive(t, now.State.Summary.Pending, "the large batch ended first")
	require.Equal(t, items, follow(t, large, id).State.Summary.Completed)
}
