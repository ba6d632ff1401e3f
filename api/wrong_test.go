package api_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"tranche/internal/apitest"
	"tranche/internal/identity"
)

// wrong is a change of a valid request, after which it must be rejected.
type wrong struct {
	status  int
	path    string // appended to the path of the route
	method  string // empty means the method of the route
	body    string // empty means the body of the route
	headers []apitest.Header
	caller  *apitest.Caller
}

// The cases are derived from the document: every operation rejects at least ten kinds of
// invalid requests, and none of them stores anything.
func TestInvalidRequestsOfEveryOperation(t *testing.T) {
	t.Parallel()
	s := apitest.Start(t)
	tenant := s.Tenant(t)
	admin := tenant.As(t, identity.RoleAdmin)
	poor := tenant.With(t, identity.ScopeAuditRead)
	before := rowCounts(t, s)
	spec, err := openapi3.NewLoader().LoadFromData(s.Anonymous().Get(t, "/openapi.json").Body)
	require.NoError(t, err)
	for _, path := range spec.Paths.InMatchingOrder() {
		for method, op := range spec.Paths.Value(path).Operations() {
			if len(*op.Security) > 0 {
				requireRejected(t, admin, poor, s, rightRequest(t, method, path, op))
			}
		}
	}
	require.Equal(t, before, rowCounts(t, s), "rejected requests store nothing")
}

// right is a valid request whose path has ids that do not exist. Errors must be reported
// before the ids are looked up.
type right struct {
	method, path string
	scope        identity.Scope
	body         any
}

func rightRequest(t *testing.T, method, path string, op *openapi3.Operation) right {
	t.Helper()
	r := right{method: method, path: pathParameter.ReplaceAllString(path, unknownID), scope: identity.Scope((*op.Security)[0]["bearer"][0])}
	if op.RequestBody != nil {
		text, err := json.Marshal(op.RequestBody.Value.Content["application/json"].Example)
		require.NoError(t, err)
		r.body = text
	}
	return r
}

// requireRejected sends all changes of a valid request.
func requireRejected(t *testing.T, admin, poor *apitest.Caller, s *apitest.Service, route right) {
	t.Helper()
	requests := wrongAddresses(route)
	requests["no token"] = wrong{status: http.StatusUnauthorized, caller: s.Anonymous()}
	requests["a token of nobody"] = wrong{status: http.StatusUnauthorized, caller: s.WithToken("x.y.z")}
	requests["not a bearer"] = wrong{status: http.StatusUnauthorized, headers: []apitest.Header{{Name: "Authorization", Value: "Basic eDp5"}}}
	if route.scope != identity.ScopeAuditRead {
		requests["no scope"] = wrong{status: http.StatusForbidden, caller: poor}
	}
	if route.method == http.MethodPost || route.method == http.MethodPut || route.method == http.MethodPatch {
		addWrongBodies(requests, route)
	}
	require.GreaterOrEqual(t, len(requests), 10, "%s %s", route.method, route.path)
	for name, request := range requests {
		body := route.body
		if request.body != "" {
			body = apitest.Raw(request.body)
		}
		caller := cmp.Or(request.caller, admin)
		answer := caller.Do(t, cmp.Or(request.method, route.method), route.path+request.path, body, request.headers...)
		require.Equal(t, request.status, answer.Status, "%s %s, %s: %s", route.method, route.path, name, answer.Body)
		var problem apitest.Problem
		answer.Decode(&problem)
		require.NotEmpty(t, problem.Code, name)
		require.NotEmpty(t, problem.Message, name)
		require.Equal(t, answer.Header.Get("X-Request-Id"), problem.RequestID, name)
	}
}

func wrongAddresses(r right) map[string]wrong {
	requests := map[string]wrong{
		"unknown parameter":      {status: http.StatusBadRequest, path: "?borrower=1"},
		"malformed query":        {status: http.StatusBadRequest, path: "?x=%zz"},
		"semicolons":             {status: http.StatusBadRequest, path: "?x=1;y=2"},
		"unknown path behind it": {status: http.StatusNotFound, path: "/nothing/at/all"},
		"a slash behind it":      {status: http.StatusNotFound, path: "/"},
		"unknown method":         {status: http.StatusMethodNotAllowed, method: "BREW"},
		"OPTIONS":                {status: http.StatusMethodNotAllowed, method: http.MethodOptions},
	}
	if r.method == http.MethodGet && !strings.Contains(r.path, unknownID) {
		requests["page 0"] = wrong{status: http.StatusBadRequest, path: "?page=0"}
		requests["too much per page"] = wrong{status: http.StatusBadRequest, path: "?per-page=101"}
		requests["NUL"] = wrong{status: http.StatusBadRequest, path: "?page=%00"}
	}
	return requests
}

func addWrongBodies(requests map[string]wrong, r right) {
	example, _ := r.body.([]byte)
	if example == nil {
		example = []byte(`{}`)
	}
	// changed returns the example with another member in front.
	changed := func(member string) string {
		rest := bytes.TrimPrefix(bytes.TrimSpace(example), []byte("{"))
		if !bytes.Equal(bytes.TrimSpace(rest), []byte("}")) {
			member += ","
		}
		return "{" + member + string(rest)
	}
	for name, body := range map[string]string{
		"cut JSON":      string(example[:len(example)-1]),
		"an array":      `[1]`,
		"a text":        `"x"`,
		"garbage":       `name=x`,
		"two values":    string(example) + `{}`,
		"twice":         changed(`"x":1,"x":2`),
		"NUL":           changed(`"x":"\u0000"`),
		"invalid UTF-8": changed("\"x\":\"\xff\""),
		"too deep":      changed(`"x":` + strings.Repeat(`[`, 64) + strings.Repeat(`]`, 64)),
		"huge exponent": changed(`"x":1e1000000`),
	} {
		requests[name] = wrong{status: http.StatusBadRequest, body: body}
	}
	if !strings.HasSuffix(r.path, "/execute") { // the input may have any member
		requests["unknown member"] = wrong{status: http.StatusBadRequest, body: changed(`"noSuchMember":1`)}
	}
	requests["not JSON"] = wrong{status: http.StatusUnsupportedMediaType, body: string(example), headers: []apitest.Header{{Name: "Content-Type", Value: "text/plain"}}}
	requests["compressed"] = wrong{status: http.StatusUnsupportedMediaType, body: string(example), headers: []apitest.Header{{Name: "Content-Encoding", Value: "gzip"}}}
	requests["too large"] = wrong{status: http.StatusRequestEntityTooLarge, body: changed(`"x":"` + strings.Repeat("x", 21<<20) + `"`)}
}

// rowCounts counts the rows of every table except those that count and record requests.
func rowCounts(t *testing.T, s *apitest.Service) map[string]int {
	t.Helper()
	rows, err := s.Pool.Query(t.Context(), `SELECT relname FROM pg_class
		WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
			AND relname NOT IN ('rate_limits', 'rate_limit_hits', 'audit_refusals', 'audit_events', 'processes', 'goose_db_version',
				'refresh_token_families', 'refresh_tokens')`)
	require.NoError(t, err)
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	counts := map[string]int{}
	for _, table := range tables {
		var n int
		require.NoError(t, s.Pool.QueryRow(t.Context(), "SELECT count(*) FROM "+pgx.Identifier{table}.Sanitize()).Scan(&n))
		counts[table] = n
	}
	return counts
}
