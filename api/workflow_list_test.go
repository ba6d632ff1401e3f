package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tranche/internal/apitest"
	"tranche/internal/identity"
)

func testList(t *testing.T, s *apitest.Service) {
	t.Helper()
	n := s.Tenant(t)
	c := n.As(t, identity.RoleDeveloper)
	empty := c.Get(t, "/v2/workflows").Expect(http.StatusOK)
	require.JSONEq(t, `{"data":[],"pagination":{"page":1,"perPage":20,"total":0,"totalPages":0}}`, string(empty.Body))

	var ids []string
	for i := range 5 {
		ids = append(ids, createWorkflow(t, c, fmt.Sprintf("item-%d", i)))
	}
	c.Post(t, "/v2/workflows/"+ids[0]+"/publish", nil).Expect(http.StatusOK)
	c.Put(t, "/v2/workflows/"+ids[1], apitest.Raw(`{"name":"Überprüfung 100%_"}`)).Expect(http.StatusOK)
	createWorkflow(t, s.Tenant(t).As(t, identity.RoleDeveloper), "item-foreign")

	listed := func(query string) []string {
		t.Helper()
		var body struct{ Data []struct{ ID string } }
		c.Get(t, "/v2/workflows"+query).Expect(http.StatusOK).Decode(&body)
		got := []string{}
		for _, item := range body.Data {
			got = append(got, item.ID)
		}
		return got
	}
	require.Equal(t, []string{ids[4], ids[3], ids[2], ids[1], ids[0]}, listed(""), "newest first")
	require.Equal(t, []string{ids[4], ids[3]}, listed("?per-page=2"))
	require.Equal(t, []string{ids[0]}, listed("?per-page=2&page=3"))
	require.Empty(t, listed("?per-page=2&page=4"))
	require.JSONEq(t, `{"page":2,"perPage":2,"total":5,"totalPages":3}`, c.Get(t, "/v2/workflows?page=2&per-page=2").Text("pagination"))
	require.Equal(t, []string{ids[0]}, listed("?status=active"))
	require.Len(t, listed("?status=draft"), 4)
	require.Empty(t, listed("?status=archived"))
	require.Equal(t, []string{ids[3]}, listed("?search=ITEM-3"), "the alias, ignoring case")
	require.Equal(t, []string{ids[1]}, listed("?search=%C3%9CBERPR%C3%9CFUNG"), "the name")
	require.Equal(t, []string{ids[1]}, listed("?search=%25_"), "no wildcards")
	require.Empty(t, listed("?search=foreign"))
	require.Empty(t, listed("?search=item-0&status=draft"))
	require.Len(t, listed("?search=&status=&page="), 5, "an empty parameter counts as absent")
	item := c.Get(t, "/v2/workflows?search=item-0").Value("data[0]")
	require.Equal(t, c.Get(t, "/v2/workflows/"+ids[0]).Value("publishedAt"), item.(map[string]any)["publishedAt"])
}

func testListErrors(t *testing.T, s *apitest.Service) {
	t.Helper()
	c := s.Tenant(t).As(t, identity.RoleDeveloper)
	for query, field := range map[string]string{
		"page=0":                             "page",
		"page=-1":                            "page",
		"page=x":                             "page",
		"page=1.5":                           "page",
		"page=99999999999999":                "page",
		"per-page=0":                         "per-page",
		"per-page=101":                       "per-page",
		"per-page=":                          "",
		"status=open":                        "status",
		"status=DRAFT":                       "status",
		"perPage=10":                         "perPage",
		"page=1&page=2":                      "page",
		"search=%00":                         "search",
		"search=%FF":                         "search",
		"search=%zz":                         "query",
		"cursor=xyz":                         "cursor",
		"cursor=&page=1":                     "cursor",
		"search=" + strings.Repeat("x", 201): "search",
	} {
		answer := c.Get(t, "/v2/workflows?"+query)
		if field == "" {
			answer.Expect(http.StatusOK)
			continue
		}
		problem := answer.Expect(http.StatusBadRequest)
		require.Equal(t, field, problem.Text("details[0].field"), query)
		require.NotContains(t, problem.Text("details[0].message"), "expected")
	}
	c.Get(t, "/v2/workflows?page=x").ExpectProblem(http.StatusBadRequest, "VALIDATION_ERROR", "INVALID_FIELD_TYPE", "page")

	// The message has the bound as 10000000, not as 1e+07.
	require.Equal(t, "must be at most 10000000", c.Get(t, "/v2/workflows?page=10000001").Text("details[0].message"))
	require.Equal(t, "must be at most 2592000", c.Post(t, "/v2/workflows", apitest.Raw(`{"name":"x","alias":"x","timeoutSeconds":2592001}`)).Text("details[0].message"))
}

func testCursor(t *testing.T, s *apitest.Service) {
	t.Helper()
	c := s.Tenant(t).As(t, identity.RoleDeveloper)
	for i := range 5 {
		createWorkflow(t, c, fmt.Sprintf("c%d", i))
	}
	first := c.Get(t, "/v2/workflows?per-page=2&cursor=").Expect(http.StatusOK)
	require.Equal(t, []string{"c4", "c3"}, []string{first.Text("data[0].alias"), first.Text("data[1].alias")})
	createWorkflow(t, c, "newer") // does not shift the next page
	second := c.Get(t, "/v2/workflows?per-page=2&cursor="+first.Text("pagination.nextCursor")).Expect(http.StatusOK)
	require.Equal(t, []string{"c2", "c1", "2"}, []string{second.Text("data[0].alias"), second.Text("data[1].alias"), second.Text("pagination.page")})
	third := c.Get(t, "/v2/workflows?per-page=2&cursor="+second.Text("pagination.nextCursor")).Expect(http.StatusOK)
	require.Equal(t, "c0", third.Text("data[0].alias"))
	require.Contains(t, string(third.Body), `"nextCursor":null`)
	require.NotContains(t, string(c.Get(t, "/v2/workflows").Body), "nextCursor")

	admin := s.Tenant(t).As(t, identity.RoleAdmin)
	for _, list := range []string{
		"/v1/executions", "/v1/execution-batches", "/v1/execution-batches/" + unknownID + "/items", "/v1/authorizations",
	} {
		problem := admin.Get(t, list+"?cursor="+first.Text("pagination.nextCursor")).ExpectProblem(http.StatusBadRequest, "VALIDATION_ERROR", "", "cursor")
		require.Equal(t, "is not a cursor of this list; send the nextCursor of the previous response", problem.Details[0].Message)
	}
}

// The total is at most 10,000 (contract 1.10).
func testLongList(t *testing.T, s *apitest.Service) {
	t.Helper()
	n := s.Tenant(t)
	_, err := s.Pool.Exec(t.Context(), `WITH made AS (
			INSERT INTO workflow_aliases (tenant_id, alias, latest_version) SELECT $1, 'a' || i, 1 FROM generate_series(0, 10000) i
		)
		INSERT INTO workflows (id, tenant_id, alias, version, name, status, input_schema, tasks, edges)
		SELECT gen_random_uuid(), $1, 'a' || i, 1, 'x', 'draft', '{}', '[]', '[]' FROM generate_series(0, 10000) i`, n.ID)
	require.NoError(t, err)
	c := n.With(t, identity.ScopeWorkflowsRead)
	require.JSONEq(t, `{"page":1,"perPage":100,"total":10000,"totalPages":100,"totalCapped":true}`,
		c.Get(t, "/v2/workflows?per-page=100").Expect(http.StatusOK).Text("pagination"))
	beyond := c.Get(t, "/v2/workflows?per-page=100&page=101").Expect(http.StatusOK)
	require.Len(t, beyond.Value("data"), 1, "items after the counted total can be read")
	require.JSONEq(t, `{"page":1,"perPage":20,"total":1,"totalPages":1}`, c.Get(t, "/v2/workflows?search=a10000").Text("pagination"))
}
