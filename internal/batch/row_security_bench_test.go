package batch_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"tranche/internal/apitest"
	"tranche/internal/identity"
)

// BenchmarkRowSecurity measures what row-level security costs: the same work
// alternately with and without it, in one database, and the median of the rounds.
// What a change of tenant costs shows where sixteen share the connections: go
// test -run - -bench RowSecurity -benchtime 1x ./internal/batch.
func BenchmarkRowSecurity(b *testing.B) {
	const rounds, calls, items = 7, 4000, 10_000
	s := apitest.Start(b)
	definition, err := os.ReadFile("testdata/bench_workflow.json")
	require.NoError(b, err)
	callers := make([]*apitest.Caller, 16)
	for i := range callers {
		callers[i] = s.Tenant(b).As(b, identity.RoleAdmin)
		id := callers[i].Post(b, "/v2/workflows", apitest.Raw(definition)).Expect(http.StatusCreated).Text("id")
		callers[i].Post(b, "/v2/workflows/"+id+"/publish", nil).Expect(http.StatusOK)
	}
	protect := func(how string) {
		_, err := s.Pool.Exec(b.Context(), `DO $$ DECLARE name regclass; BEGIN
			FOR name IN SELECT DISTINCT polrelid::regclass FROM pg_policy LOOP
				EXECUTE format('ALTER TABLE %s `+how+` ROW LEVEL SECURITY', name);
			END LOOP; END $$`)
		require.NoError(b, err)
	}
	for name, work := range map[string]func(){
		"execute":          func() { executeMany(b, s, callers[:1], calls) },
		"execute, tenants": func() { executeMany(b, s, callers, calls) },
		"batch":            func() { runBatch(b, callers[0], items) },
	} {
		b.Run(name, func(b *testing.B) {
			work() // plans and caches
			var with, without []float64
			for range rounds {
				for _, round := range []struct {
					how  string
					took *[]float64
				}{{"ENABLE", &with}, {"DISABLE", &without}} {
					protect(round.how)
					began := time.Now()
					work()
					*round.took = append(*round.took, time.Since(began).Seconds())
				}
			}
			protect("ENABLE")
			slices.Sort(with)
			slices.Sort(without)
			b.ReportMetric(with[rounds/2]/without[rounds/2], "ratio")
			b.ReportMetric(with[rounds/2], "s-with")
			b.ReportMetric(without[rounds/2], "s-without")
		})
	}
}

// executeMany makes calls on 16 connections, by each caller in turn.
func executeMany(b *testing.B, s *apitest.Service, callers []*apitest.Caller, calls int) {
	b.Helper()
	const input = `{"borrowerId":"B-1","firstName":"Maria","lastName":"Santos","email":"m@example.com","income":5400.10,"debt":310.10,"amount":12000,"months":36,"score":710,"purpose":"home","address":{"street":"12 Long Avenue","zip":"01000","city":"Springfield"}}`
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}
	defer client.CloseIdleConnections()
	var all errgroup.Group
	for worker := range 16 {
		all.Go(func() error {
			for i := range calls / 16 {
				request, err := http.NewRequestWithContext(b.Context(), http.MethodPost, s.URL+"/v1/workflows/bench/v1/execute", strings.NewReader(input))
				if err != nil {
					return err
				}
				request.Header.Set("Authorization", "Bearer "+callers[(worker+i)%len(callers)].Token)
				request.Header.Set("Content-Type", "application/json")
				answer, err := client.Do(request)
				if err != nil {
					return err
				}
				text, err := io.ReadAll(answer.Body)
				_ = answer.Body.Close()
				if err != nil || answer.StatusCode != http.StatusOK {
					return fmt.Errorf("%s: %s %w", answer.Status, text, err)
				}
			}
			return nil
		})
	}
	require.NoError(b, all.Wait())
}

func runBatch(b *testing.B, c *apitest.Caller, items int) {
	b.Helper()
	var file strings.Builder
	file.WriteString("borrowerId,income,debt,amount,months,score\n")
	for i := range items {
		fmt.Fprintf(&file, "B-%07d,%d.50,%d.10,%d.00,36,%d\n", i, 2000+i%9000, i%900, 1000+i%50000, 500+i%350)
	}
	name := upload(b, c, "loans.csv", file.String())
	require.Equal(b, items, follow(b, c, start(b, c, "bench", map[string]any{"attachmentFileNames": []string{name}})).State.Summary.Total)
}
