package api_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tranche/internal/apitest"
	"tranche/internal/identity"
	"tranche/internal/pgtest"
	"tranche/queries"
)

// listed is an execution in the model of the list.
type listed struct {
	id                         uuid.UUID
	workflowID                 uuid.UUID
	alias, version, kind       string
	billable, borrower, status string
	tags                       []string
	isTest, isItem             bool
	createdAt                  time.Time
}

// The values of random executions and requests. Some are prefixes of others, differ in case
// only, or look like patterns.
var (
	listAliases   = []string{"pre-qualification", "pre", "risk_score"}
	listBorrowers = []string{"", "B-1", "B-10", "b-1", "Müller", "100%", "1_0", "019"}
	listBillables = []string{"", "contract", "Contract-7"}
	listStatuses  = []string{"pending", "running", "completed", "completed", "completed", "failed", "cancelled", "timeout"}
	listTags      = []string{"web", "new", "B-1", "pre"}
)

// seedExecutions inserts random executions of a tenant, created within two days, and
// returns them newest first.
func seedExecutions(t *testing.T, s *apitest.Service, tenantID uuid.UUID, r *rand.Rand, n int) []listed {
	t.Helper()
	var workflows []queries.Workflow
	for i, alias := range listAliases {
		for version := range int32(2) {
			w := pgtest.PublishedWorkflow(t, s.Pool, tenantID, func(p *queries.WorkflowInsertParams) {
				p.Alias, p.Version = alias, version+1
				if i > 0 {
					p.Type = new("scoring")
				}
			})
			workflows = append(workflows, w)
		}
	}
	var all []listed
	var rows [][]any
	begin := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	for i := range n {
		w := workflows[r.IntN(len(workflows))]
		e := listed{
			workflowID: w.ID, alias: w.Alias, version: fmt.Sprintf("v%d", w.Version), isTest: r.IntN(4) == 0, isItem: r.IntN(3) == 0,
			billable: listBillables[r.IntN(len(listBillables))], borrower: listBorrowers[r.IntN(len(listBorrowers))],
			status: listStatuses[r.IntN(len(listStatuses))], createdAt: begin.Add(time.Duration(r.IntN(2*86400)) * time.Second), tags: []string{},
		}
		if w.Type != nil {
			e.kind = *w.Type
		}
		for _, tag := range listTags {
			if r.IntN(3) == 0 {
				e.tags = append(e.tags, tag)
			}
		}
		if r.IntN(10) == 0 { // common tags, for which lists do not use the index
			e.tags = append(e.tags, strings.Split("a,b,c,d,e,f,g,h,i", ",")...)
		}
		e.id = queries.FirstIDAt(e.createdAt)
		e.id[6], e.id[8], e.id[14], e.id[15] = 0x70, 0x80, byte(i>>8), byte(i)
		var batchID *uuid.UUID
		if e.isItem {
			batchID = new(queries.FirstIDAt(begin)) // the batch does not exist; lists do not depend on it
		}
		rows = append(rows, []any{
			e.id, tenantID, w.ID, w.Alias, w.Version, w.Type, "tester", orNull(e.billable), orNull(e.borrower), e.tags, e.isTest,
			batchID, e.status, e.status == "completed", e.createdAt,
		})
		all = append(all, e)
	}
	_, err := s.Pool.CopyFrom(t.Context(), pgx.Identifier{"executions"}, []string{
		"id", "tenant_id", "workflow_id", "workflow_alias", "workflow_version", "workflow_type", "principal_id", "billable_id", "borrower_id",
		"tags", "is_test", "batch_id", "status", "is_success", "created_at",
	}, pgx.CopyFromRows(rows))
	require.NoError(t, err)
	_, err = s.Pool.Exec(t.Context(), `ANALYZE executions`) // the planner learns that the tags above are common
	require.NoError(t, err)
	slices.SortFunc(all, func(a, b listed) int { return cmp.Compare(b.id.String(), a.id.String()) })
	return all
}

func orNull(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// listModel is the reference implementation of the list.
func listModel(all []listed, q url.Values) []listed {
	var found []listed
	for _, e := range all {
		has := func(parameter, value string) bool { return q.Get(parameter) == "" || q.Get(parameter) == value }
		in := has("billable-id", e.billable) && has("borrower-id", e.borrower) && has("workflow-id", e.workflowID.String()) &&
			has("workflow-version", e.version) && has("workflow-alias", e.alias) && has("workflow-type", e.kind) && has("status", e.status) &&
			(q.Get("exclude-tests") != "true" || !e.isTest) && (q.Get("exclude-batch-executions") != "true" || !e.isItem)
		for tag := range strings.SplitSeq(q.Get("tags"), ",") {
			in = in && (tag == "" || slices.Contains(e.tags, tag))
		}
		if from, ok := parsedDate(q.Get("date-from")); ok {
			in = in && !e.createdAt.Before(from)
		}
		if to, ok := parsedDate(q.Get("date-to")); ok {
			if len(q.Get("date-to")) == len(time.DateOnly) {
				to = to.Add(24*time.Hour - time.Microsecond)
			}
			in = in && !e.createdAt.After(to)
		}
		if in && e.matches(q.Get("search")) {
			found = append(found, e)
		}
	}
	if q.Get("sort-direction") == "asc" {
		slices.Reverse(found)
	}
	return found
}

func (e *listed) matches(search string) bool {
	lower := strings.ToLower(search)
	begins := func(text string) bool { return strings.HasPrefix(text, search) }
	words := strings.FieldsFunc(e.alias, func(r rune) bool { return strings.ContainsRune("-_", r) })
	return search == "" || strings.HasPrefix(e.id.String(), lower) || begins(e.borrower) || begins(e.billable) || strings.HasPrefix(e.alias, lower) ||
		slices.Contains(words, lower) || slices.Contains(e.tags, search)
}

func parsedDate(text string) (time.Time, bool) {
	if day, err := time.Parse(time.DateOnly, text); err == nil {
		return day, true
	}
	moment, err := time.Parse(time.RFC3339, text)
	return moment, err == nil
}

// drawFilters draws a combination of filters. Most of them match something.
func drawFilters(t *rapid.T, all []listed) url.Values {
	some := all[rapid.IntRange(0, len(all)-1).Draw(t, "execution")]
	q := url.Values{}
	maybe := func(parameter string, values ...string) {
		if rapid.IntRange(0, 5).Draw(t, parameter) == 0 {
			q.Set(parameter, rapid.SampledFrom(values).Draw(t, parameter+" value"))
		}
	}
	maybe("billable-id", some.billable, "contract", "nothing")
	maybe("borrower-id", some.borrower, "B-1", "b-1", "Müller")
	maybe("workflow-id", some.workflowID.String(), "nonsense", some.id.String())
	maybe("workflow-version", "v1", "v2", "v3", "1")
	maybe("workflow-alias", some.alias, "pre", "nothing")
	maybe("workflow-type", "scoring", "nothing")
	maybe("status", some.status, "pending", "failed", "completed")
	maybe("tags", "web", "a", "new, web", strings.Join(some.tags, ","), "nothing")
	maybe("exclude-tests", "true", "false")
	maybe("exclude-batch-executions", "true", "false")
	maybe("date-from", some.createdAt.Format(time.DateOnly), some.createdAt.Format(time.RFC3339), "2026-11-02", "2030-01-01")
	maybe("date-to", some.createdAt.Format(time.DateOnly), some.createdAt.Format(time.RFC3339), "2026-11-02", "2020-01-01")
	maybe("search", some.id.String(), some.id.String()[:9], "019", "b-1", "MÜLL", "100%", "1_", "pre", "score", "QUALIFICATION", "contract", "web", `\`, "zzz")
	maybe("sort-direction", "asc", "desc")
	maybe("sort-by", "createdAt")
	if tags := strings.ReplaceAll(q.Get("tags"), " ", ""); tags != "" {
		q.Set("tags", tags)
	}
	return q
}

func unlimited(t *testing.T, s *apitest.Service, tenantID uuid.UUID) {
	t.Helper()
	require.NoError(t, pgx.BeginFunc(t.Context(), s.Pool, func(tx pgx.Tx) error {
		limits := identity.DefaultLimits()
		for i := range limits {
			limits[i].PerMinute = identity.Unlimited
		}
		return identity.SetLimits(t.Context(), tx, tenantID, limits)
	}))
}

// For random data and parameters, the list equals the model, by page and by cursor.
func TestExecutionListMatchesModel(t *testing.T) {
	t.Parallel()
	s := apitest.Start(t)
	tenant, other := s.Tenant(t), s.Tenant(t)
	unlimited(t, s, tenant.ID)
	r := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1))
	all := seedExecutions(t, s, tenant.ID, r, 400)
	seedExecutions(t, s, other.ID, r, 50)
	c := tenant.As(t, identity.RoleAdmin)

	ids := func(found []listed) []string {
		texts := []string{}
		for _, e := range found {
			texts = append(texts, e.id.String())
		}
		return texts
	}
	list := func(q url.Values) (got []string, answer *apitest.Answer) {
		answer = c.Get(t, "/v1/executions?"+q.Encode()).Expect(http.StatusOK)
		got = []string{}
		var body struct{ Data []struct{ ID string } }
		answer.Decode(&body)
		for _, e := range body.Data {
			got = append(got, e.ID)
		}
		return got, answer
	}
	rapid.Check(t, func(rt *rapid.T) {
		q := drawFilters(rt, all)
		want := ids(listModel(all, q))
		perPage := rapid.IntRange(1, 100).Draw(rt, "per-page")
		page := rapid.IntRange(1, 3).Draw(rt, "page")
		q.Set("per-page", strconv.Itoa(perPage))

		q.Set("page", strconv.Itoa(page))
		got, answer := list(q)
		first := min((page-1)*perPage, len(want))
		require.Equal(rt, want[first:min(first+perPage, len(want))], got, q.Encode())
		require.JSONEq(rt, fmt.Sprintf(`{"page":%d,"perPage":%d,"total":%d,"totalPages":%d}`, page, perPage, len(want), (len(want)+perPage-1)/perPage),
			answer.Text("pagination"), q.Encode())

		q.Del("page")
		walked := []string{}
		for next := ""; len(walked) < 3*perPage; {
			q.Set("cursor", next)
			got, answer := list(q)
			walked = append(walked, got...)
			if next = answer.Text("pagination.nextCursor"); next == "" {
				require.Len(rt, walked, len(want), q.Encode())
				break
			}
		}
		require.Equal(rt, want[:len(walked)], walked, q.Encode())
	})
}
