package queries_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"tranche/internal/pgtest"
	"tranche/queries"
)

var (
	listRows = flag.Int("list-rows", 200_000, "how many executions BenchmarkExecutionList generates")
	listURL  = flag.String("list-url", "", "a migrated database that BenchmarkExecutionList fills, or asks again once it is filled; without, one of its own")
)

// BenchmarkExecutionList asks for lists with up to three filters, drawn at
// random, of a tenant with as many executions as -list-rows says, most of them
// items of batches and completed, spread over four months. It reports the
// median, the 99th percentile, the slowest with its plan, and what kinds of lists
// are slow. `make bench-lists` runs it at ten million.
func BenchmarkExecutionList(b *testing.B) {
	pool, tenantID := openExecutions(b)
	q := queries.New()
	r := rand.New(rand.NewPCG(1, 2))
	ask := func() (p queries.ExecutionListParams, took time.Duration) {
		draw := drawList(r)
		p = draw.params
		p.TenantID = tenantID
		begun := time.Now()
		if draw.workflows != nil {
			draw.workflows.TenantID = tenantID
			var err error
			p.WorkflowIDs, err = q.WorkflowListIDs(b.Context(), pool, *draw.workflows)
			require.NoError(b, err)
		}
		_, _, err := q.ExecutionList(b.Context(), pool, p)
		require.NoError(b, err)
		return p, time.Since(begun)
	}
	for range 200 { // fills the caches of the server and the connections
		ask()
	}
	var times []time.Duration
	var slowest queries.ExecutionListParams
	var slowestTime time.Duration
	kinds := map[string][]time.Duration{}
	for b.Loop() {
		p, took := ask()
		times = append(times, took)
		kinds[kind(&p)] = append(kinds[kind(&p)], took)
		if took > slowestTime {
			slowest, slowestTime = p, took
		}
	}
	report(kinds)
	slices.Sort(times)
	at := func(share float64) float64 {
		return float64(times[int(share*float64(len(times)-1))].Microseconds()) / 1000
	}
	fmt.Fprintf(os.Stderr, "p50 %.1f ms, p90 %.1f ms, p99 %.1f ms; the slowest took %s: %+v\n%s", // b.Logf would cut it
		at(0.5), at(0.9), at(0.99), slowestTime, slowest, explain(b, pool, slowest))
	b.ReportMetric(at(0.5), "ms/p50")
	b.ReportMetric(at(0.99), "ms/p99")
	b.ReportMetric(at(1), "ms/slowest")
}

// kind names the filters of a list.
func kind(p *queries.ExecutionListParams) string {
	names := []string{p.Status}
	add := func(is bool, name string) {
		if is {
			names = append(names, name)
		}
	}
	add(p.WorkflowIDs != nil, fmt.Sprintf("%d workflows", len(p.WorkflowIDs)))
	add(p.BorrowerID != "", "borrower")
	add(p.BillableID != "", "billable")
	add(len(p.Tags) > 0, "tag "+strings.Join(p.Tags, ","))
	add(p.Search != nil, "search")
	if p.Search != nil {
		names = append(names, p.Search.Text)
	}
	add(!p.CreatedFrom.IsZero(), "from")
	add(!p.CreatedBefore.IsZero(), "before")
	add(p.ExcludeTests, "no tests")
	add(p.ExcludeBatches, "no items")
	return strings.TrimSpace(strings.Join(names, " "))
}

// report writes the slowest kinds of lists.
func report(kinds map[string][]time.Duration) {
	names := slices.SortedFunc(maps.Keys(kinds), func(a, b string) int { return cmp.Compare(slices.Max(kinds[b]), slices.Max(kinds[a])) })
	for _, name := range names[:min(len(names), 40)] {
		slices.Sort(kinds[name])
		n := len(kinds[name])
		fmt.Fprintf(os.Stderr, "%4d x %6.1f median %6.1f max  %s\n", n, kinds[name][n/2].Seconds()*1000, kinds[name][n-1].Seconds()*1000, name)
	}
}

type listDraw struct {
	params    queries.ExecutionListParams
	workflows *queries.WorkflowListIDsParams
}

// drawList draws up to three filters and a part of the list.
func drawList(r *rand.Rand) listDraw {
	d := listDraw{params: queries.ExecutionListParams{Window: queries.Window{Limit: 11 + r.IntN(90), CountMax: 10_001, Offset: r.IntN(3) * 10}, Ascending: r.IntN(4) == 0}}
	p := &d.params
	of := func(texts ...string) string { return texts[r.IntN(len(texts))] }
	filters := []func(){
		func() { p.BorrowerID = of("B-17", "B-123456", "B-nobody") },
		func() { p.BillableID = of("contract-1", "contract-999", "nothing") },
		func() { d.workflow().Alias = new(of("alias-1", "alias-7", "alias-12", "nothing")) },
		func() { d.workflow().Version = new(int32(1 + r.IntN(3))) },
		func() { d.workflow().Type = new(of("scoring", "check")) },
		func() { p.Status = of("completed", "failed", "failed", "timeout", "cancelled", "running", "pending") },
		func() { p.Tags = []string{of("web", "partner", "vip", "nothing")} },
		func() { p.ExcludeTests = true },
		func() { p.ExcludeBatches = true },
		func() { p.CreatedFrom = monthStart().AddDate(0, 0, r.IntN(120)) },
		func() { p.CreatedBefore = monthStart().AddDate(0, 0, r.IntN(120)) },
		func() { p.Search = &queries.ExecutionSearch{Text: of("B-1234", "b-99", "contract-77", "vip", "zzz")} },
	}
	for range r.IntN(4) {
		filters[r.IntN(len(filters))]()
	}
	return d
}

func (d *listDraw) workflow() *queries.WorkflowListIDsParams {
	if d.workflows == nil {
		d.workflows = &queries.WorkflowListIDsParams{}
	}
	return d.workflows
}

func monthStart() time.Time {
	now := time.Now().UTC()
	return time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, time.UTC)
}

// openExecutions returns a database with executions, and their tenant.
func openExecutions(b *testing.B) (*pgxpool.Pool, uuid.UUID) {
	b.Helper()
	if *listURL == "" {
		pool := pgtest.Pool(b)
		return pool, generateExecutions(b, pool, *listRows)
	}
	pool := pgtest.OpenPool(b, *listURL)
	var tenantID uuid.UUID
	err := pool.QueryRow(b.Context(), `SELECT id FROM tenants WHERE slug = 'bench'`).Scan(&tenantID)
	if errors.Is(err, pgx.ErrNoRows) {
		return pool, generateExecutions(b, pool, *listRows)
	}
	require.NoError(b, err)
	return pool, tenantID
}

// generateExecutions makes a tenant of twelve aliases with three versions each
// and that many executions, and a tenth as many of another tenant.
func generateExecutions(tb testing.TB, pool *pgxpool.Pool, rows int) uuid.UUID {
	tb.Helper()
	tenantID := pgtest.Tenant(tb, pool, func(p *queries.SysTenantInsertParams) { p.Slug = "bench" }).ID
	other := pgtest.Tenant(tb, pool).ID
	for _, tenant := range []uuid.UUID{tenantID, other} {
		insertWorkflows(tb, pool, tenant)
	}
	// The indexes are built after the rows, which is several times faster.
	rebuild := dropIndexes(tb, pool)
	insertExecutions(tb, pool, tenantID, rows)
	insertExecutions(tb, pool, other, rows/10)
	for _, definition := range rebuild {
		exec(tb, pool, definition)
	}
	exec(tb, pool, `VACUUM ANALYZE executions`)
	return tenantID
}

// insertWorkflows makes twelve aliases with three versions each.
func insertWorkflows(tb testing.TB, pool *pgxpool.Pool, tenantID uuid.UUID) {
	tb.Helper()
	exec(tb, pool, `INSERT INTO workflow_aliases (tenant_id, alias, latest_version) SELECT $1, 'alias-' || a, 3 FROM generate_series(1, 12) a`, tenantID)
	exec(tb, pool, `INSERT INTO workflows (id, tenant_id, alias, version, name, status, type, input_schema, tasks, edges)
		SELECT gen_random_uuid(), $1, 'alias-' || a, v, 'x', 'active', CASE WHEN a % 3 = 0 THEN 'check' ELSE 'scoring' END, '{}', '[]', '[]'
		FROM generate_series(1, 12) a, generate_series(1, 3) v`, tenantID)
}

func dropIndexes(tb testing.TB, pool *pgxpool.Pool) (definitions []string) {
	tb.Helper()
	rows, err := pool.Query(tb.Context(), `SELECT indexname, replace(indexdef, ' ON ONLY ', ' ON ') FROM pg_indexes WHERE tablename = 'executions' AND indexname <> 'executions_pkey'`)
	require.NoError(tb, err)
	var name, definition string
	var names []string
	_, err = pgx.ForEachRow(rows, []any{&name, &definition}, func() error {
		names, definitions = append(names, name), append(definitions, definition)
		return nil
	})
	require.NoError(tb, err)
	exec(tb, pool, "DROP INDEX "+strings.Join(names, ", "))
	return definitions
}

// insertExecutions spreads executions over the four months that have partitions:
// seven of ten are items of batches of 50,000, one of 33 is a test, 95 of 100
// have completed, and some workflows run far more often than others.
func insertExecutions(tb testing.TB, pool *pgxpool.Pool, tenantID uuid.UUID, rows int) {
	tb.Helper()
	const chunk = 500_000
	for first := 0; first < rows; first += chunk {
		exec(tb, pool, `
			INSERT INTO executions (id, tenant_id, workflow_id, workflow_alias, workflow_version, workflow_type, principal_id, billable_id,
				borrower_id, tags, is_test, batch_id, item_index, status, is_success, status_code, created_at, started_at, completed_at)
			SELECT (left(uuid_at(at)::text, 14) || '7' || substr(md5(i || $1::text), 1, 3) || '-8' || substr(md5(i || $1::text), 4, 3) || '-' || substr(md5(i || $1::text), 7, 12))::uuid,
				$1::uuid, w.id, w.alias, w.version, w.type, 'bench',
				CASE WHEN i % 10 < 3 THEN 'contract-' || i % 1000 END, 'B-' || (i * 7919) % 2000000,
				CASE i % 20 WHEN 0 THEN '{web,vip}' WHEN 1 THEN '{partner}' WHEN 2 THEN '{web}' WHEN 3 THEN '{web}' ELSE '{}' END::text[],
				i % 33 = 0, CASE WHEN i / 50000 % 10 < 7 THEN uuid_at(at) END, CASE WHEN i / 50000 % 10 < 7 THEN (i % 50000)::int END,
				s.status, s.status = 'completed', 200, at, at, at
			FROM (SELECT i, date_trunc('month', now() AT TIME ZONE 'UTC') + i * interval '118 days' / $4::float8 AS at FROM generate_series($2::bigint, $3::bigint) i) x
			JOIN LATERAL (SELECT CASE WHEN i * 31 % 1000 < 950 THEN 'completed' WHEN i * 31 % 1000 < 990 THEN 'failed' WHEN i * 31 % 1000 < 995 THEN 'timeout'
				WHEN i * 31 % 1000 < 999 THEN 'cancelled' WHEN i % 2 = 0 THEN 'running' ELSE 'pending' END AS status) s ON true
			JOIN (SELECT id, alias, version, type, row_number() OVER (ORDER BY substr(alias, 7)::int, version) - 1 AS n FROM workflows WHERE tenant_id = $1::uuid) w
				ON w.n = (floor(36 * power((i * 104729 % 10007) / 10007.0, 3)))::int`,
			tenantID, first, min(first+chunk, rows)-1, float64(rows))
	}
}

func exec(tb testing.TB, pool *pgxpool.Pool, sql string, args ...any) {
	tb.Helper()
	_, err := pool.Exec(context.WithoutCancel(tb.Context()), sql, args...)
	require.NoError(tb, err)
}

// explain returns the plans of a list's statements.
func explain(b *testing.B, pool *pgxpool.Pool, p queries.ExecutionListParams) string {
	b.Helper()
	statements, err := p.Statements(b.Context(), pool)
	require.NoError(b, err)
	var text strings.Builder
	for _, statement := range statements {
		require.NoError(b, pgx.BeginFunc(b.Context(), pool, func(tx pgx.Tx) error {
			settings, args := statement.Settings()
			_, err := tx.Exec(b.Context(), settings, args...)
			require.NoError(b, err)
			rows, err := tx.Query(b.Context(), "EXPLAIN (ANALYZE, BUFFERS) "+statement.SQL, append([]any{pgx.QueryExecModeCacheDescribe}, statement.Args...)...)
			require.NoError(b, err)
			lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
			text.WriteString(strings.Join(lines, "\n") + "\n\n")
			return err
		}))
	}
	return text.String()
}
