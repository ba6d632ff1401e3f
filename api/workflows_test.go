package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"tranche/internal/apitest"
	"tranche/internal/identity"
	"tranche/internal/pgtest"
)

// timePattern matches the times of contract 1.2.
var timePattern = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$`)

const unknownID = "0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11"

// scoring is a valid definition with numbers that float64 cannot represent.
const scoring = `"inputSchema":{"type":"object","required":["amount"],"properties":{"amount":{"type":"number","maximum":1.10}}},` +
	`"tasks":[{"id":"rate","type":"transform","name":"Rate","config":{"fields":{"rate":0.100000000000000000000000000001}}},` +
	`{"id":"done","type":"end","config":{"output":{"rate":"{{ tasks.rate.output.rate }}"}}}],` +
	`"edges":[{"source":"start","target":"rate"},{"source":"rate","target":"done"}]`

func workflowBody(alias string) apitest.Raw {
	return apitest.Raw(fmt.Sprintf(`{"name":"Workflow %s","alias":%q,"description":"for tests",%s}`, alias, alias, scoring))
}

// createWorkflow returns the id of a new draft.
func createWorkflow(t *testing.T, c *apitest.Caller, alias string) string {
	t.Helper()
	return c.Post(t, "/v2/workflows", workflowBody(alias)).Expect(http.StatusCreated).Text("id")
}

// publishWorkflow returns the id of a new active workflow.
func publishWorkflow(t *testing.T, c *apitest.Caller, alias string) string {
	t.Helper()
	id := createWorkflow(t, c, alias)
	c.Post(t, "/v2/workflows/"+id+"/publish", nil).Expect(http.StatusOK)
	return id
}

func TestWorkflows(t *testing.T) {
	t.Parallel()
	service := apitest.Start(t)
	for name, test := range map[string]func(*testing.T, *apitest.Service){
		"lifecycle":         testLifecycle,
		"definition":        testDefinition,
		"create errors":     testCreateErrors,
		"update":            testUpdate,
		"update errors":     testUpdateErrors,
		"publish errors":    testPublishErrors,
		"validate":          testValidate,
		"wrong status":      testWrongStatus,
		"deletion":          testDeletion,
		"list":              testList,
		"list errors":       testListErrors,
		"cursor":            testCursor,
		"long list":         testLongList,
		"If-Match":          testIfMatch,
		"unknown":           testUnknown,
		"scopes":            testScopes,
		"races":             testRaces,
		"bodies where none": testBodiesWhereNone,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, service)
		})
	}
}

func testLifecycle(t *testing.T, s *apitest.Service) {
	t.Helper()
	c := s.Tenant(t).As(t, identity.RoleDeveloper)
	made := c.Post(t, "/v2/workflows", workflowBody("life")).Expect(http.StatusCreated)
	id := made.Text("id")
	require.Equal(t, "/v2/workflows/"+id, made.Header.Get("Location"))
	require.Equal(t, []string{"v1", "draft", "life", "Workflow life", "for tests"},
		[]string{made.Text("version"), made.Text("status"), made.Text("alias"), made.Text("name"), made.Text("description")})
	require.Contains(t, string(made.Body), `"publishedAt":null`)
	require.Regexp(t, timePattern, made.Text("createdAt"))
	require.Equal(t, made.Text("createdAt"), made.Text("updatedAt"))
	require.NotContains(t, string(made.Body), "parentVersion")
	require.NotContains(t, string(made.Body), "archivedAt")

	published := c.Post(t, "/v2/workflows/"+id+"/publish", nil).Expect(http.StatusOK)
	require.Equal(t, map[string]any{
		"id": id, "status": "active", "version": "v1", "publishedAt": published.Text("publishedAt"),
	}, published.Value(""))
	require.Regexp(t, timePattern, published.Text("publishedAt"))

	drafted := c.Post(t, "/v2/workflows/"+id+"/create-draft", nil).Expect(http.StatusCreated)
	second := drafted.Text("id")
	require.NotEqual(t, id, second)
	require.Equal(t, "/v2/workflows/"+second, drafted.Header.Get("Location"))
	require.Equal(t, map[string]any{
		"id": second, "name": "Workflow life", "alias": "life", "version": "v2", "status": "draft",
		"parentVersion": "v1", "createdAt": drafted.Text("createdAt"),
	}, drafted.Value(""))
	require.Equal(t, "active", c.Get(t, "/v2/workflows/"+id).Text("status"))
	detail := c.Get(t, "/v2/workflows/"+second).Expect(http.StatusOK)
	require.Equal(t, "v1", detail.Text("parentVersion"))
	require.Equal(t, c.Get(t, "/v2/workflows/"+id).Value("tasks"), detail.Value("tasks"))

	// Several versions may be active. The next draft gets the highest version ever plus one.
	c.Post(t, "/v2/workflows/"+second+"/publish", nil).Expect(http.StatusOK)
	third := c.Post(t, "/v2/workflows/"+id+"/create-draft", nil).Expect(http.StatusCreated)
	require.Equal(t, "v3", third.Text("version"))
	require.Equal(t, "v1", third.Text("parentVersion"))
	c.Delete(t, "/v2/workflows/"+third.Text("id")).Expect(http.StatusNoContent)
	fourth := c.Post(t, "/v2/workflows/"+second+"/create-draft", nil).Expect(http.StatusCreated)
	require.Equal(t, "v4", fourth.Text("version"))

	archived := c.Post(t, "/v2/workflows/"+id+"/archive", nil).Expect(http.StatusOK)
	require.Equal(t, map[string]any{"id": id, "status": "archived", "archivedAt": archived.Text("archivedAt")}, archived.Value(""))
	require.Regexp(t, timePattern, archived.Text("archivedAt"))
	retained := c.Get(t, "/v2/workflows/"+id).Expect(http.StatusOK)
	require.Equal(t, archived.Text("archivedAt"), retained.Text("archivedAt"))
	require.Equal(t, published.Text("publishedAt"), retained.Text("publishedAt"))
}

func testDefinition(t *testing.T, s *apitest.Service) {
	t.Helper()
	c := s.Tenant(t).As(t, identity.RoleDeveloper)
	id := createWorkflow(t, c, "exact")
	detail := c.Get(t, "/v2/workflows/"+id).Expect(http.StatusOK)
	require.Contains(t, string(detail.Body), scoring, "the definition keeps its text")

	// Absent members have defaults. A draft may be incomplete.
	bare := c.Post(t, "/v2/workflows", apitest.Raw(`{"name":"x","alias":"bare"}`)).Expect(http.StatusCreated)
	detail = c.Get(t, "/v2/workflows/"+bare.Text("id")).Expect(http.StatusOK)
	require.Equal(t, map[string]any{"type": "object"}, detail.Value("inputSchema"))
	require.Equal(t, []any{}, detail.Value("tasks"))
	require.Equal(t, []any{}, detail.Value("edges"))
	require.Empty(t, detail.Text("description"))

	extended := c.Post(t, "/v2/workflows", apitest.Raw(
		`{"name":"x","alias":"extended","type":"scoring","executionMode":"async","timeoutSeconds":3600,"description":null}`)).Expect(http.StatusCreated)
	require.Equal(t, "scoring", extended.Text("type"))
	detail = c.Get(t, "/v2/workflows/"+extended.Text("id")).Expect(http.StatusOK)
	require.Equal(t, []string{"scoring", "async", "3600"}, []string{detail.Text("type"), detail.Text("executionMode"), detail.Text("timeoutSeconds")})
}

func testCreateErrors(t *testing.T, s *apitest.Service) {
	t.Helper()
	c := s.Tenant(t).As(t, identity.RoleDeveloper)
	publishWorkflow(t, c, "taken")
	for name, tc := range map[string]struct {
		body    string
		subCode string
		fields  []string
	}{
		"nothing":               {``, "MISSING_REQUIRED_FIELD", []string{"body"}},
		"empty":                 {`{}`, "MISSING_REQUIRED_FIELD", []string{"name", "alias"}},
		"null":                  {`null`, "INVALID_FIELD_TYPE", []string{"body"}},
		"array":                 {`[]`, "INVALID_FIELD_TYPE", []string{"body"}},
		"types":                 {`{"name":1,"alias":[],"description":{},"tasks":{},"edges":"x","inputSchema":[]}`, "INVALID_FIELD_TYPE", []string{"name", "alias", "description", "tasks", "edges", "inputSchema"}},
		"null name":             {`{"name":null,"alias":"a"}`, "INVALID_FIELD_TYPE", []string{"name"}},
		"empty name":            {`{"name":"","alias":"a"}`, "", []string{"name"}},
		"blank names":           {`{"name":" \t","alias":"a","tasks":[{"id":"a","type":"end","name":"  "}]}`, "", []string{"name", "tasks[0].name"}},
		"long name":             {`{"name":"` + strings.Repeat("x", 201) + `","alias":"a"}`, "", []string{"name"}},
		"upper case alias":      {`{"name":"x","alias":"A"}`, "", []string{"alias"}},
		"long alias":            {`{"name":"x","alias":"` + strings.Repeat("a", 65) + `"}`, "", []string{"alias"}},
		"alias with newline":    {`{"name":"x","alias":"a\n"}`, "", []string{"alias"}},
		"unknown members":       {`{"name":"x","alias":"a","Name":"y","extra":1,"a.b":2}`, "", []string{"Name", "extra", "a.b"}},
		"mode":                  {`{"name":"x","alias":"a","executionMode":"fast"}`, "", []string{"executionMode"}},
		"timeout":               {`{"name":"x","alias":"a","timeoutSeconds":0}`, "", []string{"timeoutSeconds"}},
		"timeout not whole":     {`{"name":"x","alias":"a","timeoutSeconds":1.5}`, "INVALID_FIELD_TYPE", []string{"timeoutSeconds"}},
		"task not an object":    {`{"name":"x","alias":"a","tasks":[1]}`, "INVALID_FIELD_TYPE", []string{"tasks[0]"}},
		"task incomplete":       {`{"name":"x","alias":"a","tasks":[{"name":"t"}]}`, "MISSING_REQUIRED_FIELD", []string{"tasks[0].id", "tasks[0].type"}},
		"task of wrong types":   {`{"name":"x","alias":"a","tasks":[{"id":1,"type":2,"config":3}]}`, "INVALID_FIELD_TYPE", []string{"tasks[0].id", "tasks[0].type", "tasks[0].config"}},
		"task id":               {`{"name":"x","alias":"a","tasks":[{"id":"1 a","type":"end"}]}`, "", []string{"tasks[0].id"}},
		"task's unknown member": {`{"name":"x","alias":"a","tasks":[{"id":"a","type":"end","konfig":{}}]}`, "", []string{"tasks[0].konfig"}},
		"edge incomplete":       {`{"name":"x","alias":"a","edges":[{"source":"start"}]}`, "MISSING_REQUIRED_FIELD", []string{"edges[0].target"}},
		"all together":          {`{"alias":"A","tasks":[{"id":"1 a"}]}`, "", []string{"name", "alias", "tasks[0].id", "tasks[0].type"}},
	} {
		t.Run(name, func(t *testing.T) {
			problem := c.Post(t, "/v2/workflows", apitest.Raw(tc.body)).
				ExpectProblem(http.StatusBadRequest, "VALIDATION_ERROR", tc.subCode, tc.fields...)
			require.NotContains(t, problem.Message, "fast")
		})
	}
	c.Post(t, "/v2/workflows", workflowBody("taken")).ExpectProblem(http.StatusConflict, "CONFLICT", "")
	require.Equal(t, "1", c.Get(t, "/v2/workflows").Text("pagination.total"), "rejected requests store nothing")
}

func testUpdate(t *testing.T, s *apitest.Service) {
	t.Helper()
	c := s.Tenant(t).As(t, identity.RoleDeveloper)
	id := createWorkflow(t, c, "changing")
	before := c.Get(t, "/v2/workflows/"+id)

	after := c.Put(t, "/v2/workflows/"+id, apitest.Raw(`{"description":"new","type":"scoring"}`)).Expect(http.StatusOK)
	require.Equal(t, "new", after.Text("description"))
	require.Equal(t, "scoring", after.Text("type"))
	require.Equal(t, before.Text("name"), after.Text("name"))
	require.Equal(t, before.Value("tasks"), after.Value("tasks"))
	require.Equal(t, before.Text("createdAt"), after.Text("createdAt"))
	require.Greater(t, after.Text("updatedAt"), before.Text("createdAt"))
	require.NotEqual(t, before.Header.Get("ETag"), after.Header.Get("ETag"))

	// The answer of GET can be changed and sent back. Changed read-only members are ignored.
	var detail map[string]json.RawMessage
	after.Decode(&detail)
	detail["name"] = json.RawMessage(`"Renamed"`)
	detail["alias"] = json.RawMessage(`"other"`)
	detail["status"] = json.RawMessage(`7`)
	detail["version"] = json.RawMessage(`"v9"`)
	detail["id"] = json.RawMessage(`null`)
	detail["tasks"] = json.RawMessage(`[]`)
	detail["edges"] = json.RawMessage(`[]`)
	again := c.Put(t, "/v2/workflows/"+id, detail).Expect(http.StatusOK)
	require.Equal(t, []string{id, "Renamed", "changing", "v1", "draft"},
		[]string{again.Text("id"), again.Text("name"), again.Text("alias"), again.Text("version"), again.Text("status")})
	require.Equal(t, []any{}, again.Value("tasks"))
	require.Equal(t, before.Value("inputSchema"), again.Value("inputSchema"))
	require.Equal(t, again.Body, c.Get(t, "/v2/workflows/"+id).Body)

	require.Empty(t, c.Put(t, "/v2/workflows/"+id, apitest.Raw(`{"type":""}`)).Expect(http.StatusOK).Text("type"))
	c.Put(t, "/v2/workflows/"+id, apitest.Raw(`{}`)).Expect(http.StatusOK)
}

func testUpdateErrors(t *testing.T, s *apitest.Service) {
	t.Helper()
	c := s.Tenant(t).As(t, identity.RoleDeveloper)
	id := createWorkflow(t, c, "fixed")
	before := c.Get(t, "/v2/workflows/"+id)
	for name, tc := range map[string]struct {
		body    string
		subCode string
		fields  []string
	}{
		"nothing":         {``, "MISSING_REQUIRED_FIELD", []string{"body"}},
		"text":            {`"x"`, "INVALID_FIELD_TYPE", []string{"body"}},
		"empty name":      {`{"name":""}`, "", []string{"name"}},
		"blank name":      {`{"name":"  "}`, "", []string{"name"}},
		"types":           {`{"name":[],"description":1,"type":true}`, "INVALID_FIELD_TYPE", []string{"name", "description", "type"}},
		"unknown member":  {`{"nmae":"x"}`, "", []string{"nmae"}},
		"tasks":           {`{"tasks":1}`, "INVALID_FIELD_TYPE", []string{"tasks"}},
		"a task":          {`{"description":"lost","tasks":[{"id":"a"}]}`, "MISSING_REQUIRED_FIELD", []string{"tasks[0].type"}},
		"edges":           {`{"edges":[[]]}`, "INVALID_FIELD_TYPE", []string{"edges[0]"}},
		"schema":          {`{"inputSchema":"object"}`, "INVALID_FIELD_TYPE", []string{"inputSchema"}},
		"mode and limits": {`{"executionMode":"","timeoutSeconds":-1}`, "", []string{"executionMode", "timeoutSeconds"}},
		"too long":        {`{"timeoutSeconds":2592001}`, "", []string{"timeoutSeconds"}},
	} {
		t.Run(name, func(t *testing.T) {
			c.Put(t, "/v2/workflows/"+id, apitest.Raw(tc.body)).
				ExpectProblem(http.StatusBadRequest, "VALIDATION_ERROR", tc.subCode, tc.fields...)
		})
	}
	require.Equal(t, before.Body, c.Get(t, "/v2/workflows/"+id).Body, "rejected requests store nothing")
}

func testPublishErrors(t *testing.T, s *apitest.Service) {
	t.Helper()
	c := s.Tenant(t).As(t, identity.RoleDeveloper)
	for name, tc := range map[string]struct {
		definition string
		subCode    string
		fields     []string
	}{
		"no task":         {`"tasks":[]`, "", nil},
		"unknown target":  {`"tasks":[{"id":"a","type":"end"}],"edges":[{"source":"start","target":"a"},{"source":"start","target":"b"}]`, "", []string{"edges[1].target"}},
		"unreachable":     {`"tasks":[{"id":"a","type":"end"},{"id":"b","type":"end"}],"edges":[{"source":"start","target":"a"}]`, "", []string{"tasks[1]"}},
		"unknown type":    {`"tasks":[{"id":"a","type":"sorcery"}],"edges":[]`, "", []string{"tasks[0].type"}},
		"duplicate id":    {`"tasks":[{"id":"a","type":"end"},{"id":"a","type":"end"}],"edges":[{"source":"start","target":"a"}]`, "", nil},
		"broken template": {`"tasks":[{"id":"a","type":"end","config":{"output":{"x":"{{ 1 + }}"}}}],"edges":[]`, "", []string{"tasks[0].config.output.x"}},
		"cycle": {`"tasks":[{"id":"a","type":"transform","config":{"fields":{"x":"1"}}},{"id":"b","type":"transform","config":{"fields":{"x":"1"}}}],` +
			`"edges":[{"source":"start","target":"a"},{"source":"a","target":"b"},{"source":"b","target":"a"}]`, "CIRCULAR_DEPENDENCY", nil},
		"several": {`"tasks":[{"id":"a","type":"sorcery"},{"id":"b","type":"end","config":{"output":"{{ nope.x }}"}}],` +
			`"edges":[{"source":"start","target":"a"},{"source":"start","target":"b"},{"source":"a","target":"z"}]`, "", []string{"tasks[0].type", "tasks[1].config.output", "edges[2].target"}},
	} {
		t.Run(name, func(t *testing.T) {
			alias := strings.ReplaceAll(name, " ", "-")
			id := c.Post(t, "/v2/workflows", apitest.Raw(fmt.Sprintf(`{"name":"x","alias":%q,%s}`, alias, tc.definition))).
				Expect(http.StatusCreated).Text("id")
			problem := c.Post(t, "/v2/workflows/"+id+"/publish", nil).
				ExpectProblem(http.StatusUnprocessableEntity, "UNPROCESSABLE_ENTITY", tc.subCode, tc.fields...)
			require.NotEmpty(t, problem.Details)
			require.Equal(t, "draft", c.Get(t, "/v2/workflows/"+id).Text("status"))
		})
	}
}

func testValidate(t *testing.T, s *apitest.Service) {
	t.Helper()
	c := s.Tenant(t).As(t, identity.RoleDeveloper)
	good := createWorkflow(t, c, "good")
	require.JSONEq(t, `{"valid":true,"errors":[],"warnings":[]}`, string(c.Post(t, "/v2/workflows/"+good+"/validate", nil).Expect(http.StatusOK).Body))
	require.Equal(t, "draft", c.Get(t, "/v2/workflows/"+good).Text("status"))
	bad := c.Post(t, "/v2/workflows", apitest.Raw(`{"name":"x","alias":"bad","tasks":[{"id":"a","type":"sorcery"}],"edges":[{"source":"start","target":"b"}]}`)).
		Expect(http.StatusCreated).Text("id")
	found := c.Post(t, "/v2/workflows/"+bad+"/validate", nil).Expect(http.StatusOK)
	refused := c.Post(t, "/v2/workflows/"+bad+"/publish", nil).Expect(http.StatusUnprocessableEntity)
	require.Equal(t, false, found.Value("valid"))
	require.Equal(t, refused.Value("details"), found.Value("errors"))
}

func testWrongStatus(t *testing.T, s *apitest.Service) {
	t.Helper()
	c := s.Tenant(t).As(t, identity.RoleDeveloper)
	draft := createWorkflow(t, c, "a-draft")
	active := publishWorkflow(t, c, "an-active")
	archived := publishWorkflow(t, c, "an-archived")
	c.Post(t, "/v2/workflows/"+archived+"/archive", nil).Expect(http.StatusOK)
	for _, tc := range []struct{ method, id, action string }{
		{http.MethodPost, active, "/publish"},
		{http.MethodPost, archived, "/publish"},
		{http.MethodPost, draft, "/create-draft"},
		{http.MethodPost, archived, "/create-draft"},
		{http.MethodPost, draft, "/archive"},
		{http.MethodPost, archived, "/archive"},
		{http.MethodDelete, active, ""},
	} {
		c.Do(t, tc.method, "/v2/workflows/"+tc.id+tc.action, nil).ExpectProblem(http.StatusConflict, "CONFLICT", "INVALID_WORKFLOW_STATUS")
	}
	for _, id := range []string{active, archived} {
		c.Put(t, "/v2/workflows/"+id, apitest.Raw(`{"name":"y"}`)).ExpectProblem(http.StatusConflict, "CONFLICT", "INVALID_WORKFLOW_STATUS")
	}
	c.Post(t, "/v2/workflows/"+active+"/create-draft", nil).Expect(http.StatusCreated)
	c.Post(t, "/v2/workflows/"+active+"/create-draft", nil).ExpectProblem(http.StatusConflict, "CONFLICT", "")
}

func testDeletion(t *testing.T, s *apitest.Service) {
	t.Helper()
	c := s.Tenant(t).As(t, identity.RoleDeveloper)
	draft := createWorkflow(t, c, "gone")
	require.Empty(t, c.Delete(t, "/v2/workflows/"+draft).Expect(http.StatusNoContent).Body)
	c.Get(t, "/v2/workflows/"+draft).ExpectProblem(http.StatusNotFound, "NOT_FOUND", "")
	c.Delete(t, "/v2/workflows/"+draft).ExpectProblem(http.StatusNotFound, "NOT_FOUND", "")
	require.Equal(t, "v1", c.Post(t, "/v2/workflows", workflowBody("gone")).Expect(http.StatusCreated).Text("version"), "the alias can be used again")

	unused := publishWorkflow(t, c, "unused")
	c.Post(t, "/v2/workflows/"+unused+"/archive", nil).Expect(http.StatusOK)
	c.Delete(t, "/v2/workflows/"+unused).Expect(http.StatusNoContent)

	used := publishWorkflow(t, c, "used")
	_, err := s.Pool.Exec(t.Context(), `INSERT INTO executions (id, tenant_id, workflow_id, workflow_alias, workflow_version, principal_id, status, created_at)
		SELECT $2, tenant_id, id, alias, version, 'test', 'completed', now() FROM workflows WHERE id = $1`, used, pgtest.NewID(t))
	require.NoError(t, err)
	c.Post(t, "/v2/workflows/"+used+"/archive", nil).Expect(http.StatusOK)
	c.Delete(t, "/v2/workflows/"+used).ExpectProblem(http.StatusConflict, "CONFLICT", "")
	c.Get(t, "/v2/workflows/"+used).Expect(http.StatusOK)
}

func testIfMatch(t *testing.T, s *apitest.Service) {
	t.Helper()
	c := s.Tenant(t).As(t, identity.RoleDeveloper)
	id := createWorkflow(t, c, "locked")
	path := "/v2/workflows/" + id
	etag := c.Get(t, path).Header.Get("ETag")
	require.NotEmpty(t, etag)
	put := func(ifMatch string) *apitest.Answer {
		return c.Put(t, path, apitest.Raw(`{"description":"d"}`), apitest.Header{Name: "If-Match", Value: ifMatch})
	}
	next := put(etag).Expect(http.StatusOK).Header.Get("ETag")
	require.NotEqual(t, etag, next)
	require.Equal(t, next, c.Get(t, path).Header.Get("ETag"))
	put(etag).ExpectProblem(http.StatusPreconditionFailed, "PRECONDITION_FAILED", "")
	put("nonsense").ExpectProblem(http.StatusPreconditionFailed, "PRECONDITION_FAILED", "")
	put("W/"+next).ExpectProblem(http.StatusPreconditionFailed, "PRECONDITION_FAILED", "")
	require.Equal(t, next, c.Get(t, path).Header.Get("ETag"))
	put(etag + ", " + next).Expect(http.StatusOK)
	put("*").Expect(http.StatusOK)
}

// An id of another tenant, an unknown id and an id of the wrong form get the same answer,
// byte for byte except the request id.
func testUnknown(t *testing.T, s *apitest.Service) {
	t.Helper()
	c := s.Tenant(t).As(t, identity.RoleAdmin)
	foreign := publishWorkflow(t, s.Tenant(t).As(t, identity.RoleAdmin), "foreign")
	requestID := apitest.Header{Name: "X-Request-Id", Value: "same"}
	for _, tc := range []struct{ method, action, body string }{
		{http.MethodGet, "", ""},
		{http.MethodPut, "", `{"name":"x"}`},
		{http.MethodDelete, "", ""},
		{http.MethodPost, "/publish", ""},
		{http.MethodPost, "/create-draft", ""},
		{http.MethodPost, "/validate", ""},
		{http.MethodPost, "/archive", ""},
	} {
		var want string
		for _, id := range []string{unknownID, foreign, strings.ToUpper(foreign), "{" + foreign + "}", "x", "0", "%00", "%FF", "a%2Fb"} {
			var body any
			if tc.body != "" {
				body = apitest.Raw(tc.body)
			}
			answer := c.Do(t, tc.method, "/v2/workflows/"+id+tc.action, body, requestID)
			answer.ExpectProblem(http.StatusNotFound, "NOT_FOUND", "")
			if want == "" {
				want = string(answer.Body)
			}
			if !strings.ContainsRune(id, '%') {
				require.Equal(t, want, string(answer.Body), "%s %s %s", tc.method, id, tc.action)
			}
		}
	}
}

func testScopes(t *testing.T, s *apitest.Service) {
	t.Helper()
	n := s.Tenant(t)
	id := createWorkflow(t, n.As(t, identity.RoleAdmin), "guarded")
	for _, tc := range []struct {
		method, path, body string
		scope              identity.Scope
	}{
		{http.MethodGet, "/v2/workflows", "", identity.ScopeWorkflowsRead},
		{http.MethodGet, "/v2/workflows/" + id, "", identity.ScopeWorkflowsRead},
		{http.MethodPost, "/v2/workflows", `{"name":"x","alias":"y"}`, identity.ScopeWorkflowsWrite},
		{http.MethodPut, "/v2/workflows/" + id, `{"name":"x"}`, identity.ScopeWorkflowsWrite},
		{http.MethodPost, "/v2/workflows/" + id + "/publish", "", identity.ScopeWorkflowsPublish},
		{http.MethodPost, "/v2/workflows/" + id + "/validate", "", identity.ScopeWorkflowsRead},
		{http.MethodPost, "/v2/workflows/" + id + "/create-draft", "", identity.ScopeWorkflowsWrite},
		{http.MethodPost, "/v2/workflows/" + id + "/archive", "", identity.ScopeWorkflowsPublish},
		{http.MethodDelete, "/v2/workflows/" + id, "", identity.ScopeWorkflowsWrite},
	} {
		var others []identity.Scope
		for _, scope := range identity.Scopes() {
			if scope != tc.scope {
				others = append(others, scope)
			}
		}
		refused := n.With(t, others...).Do(t, tc.method, tc.path, apitest.Raw(tc.body))
		problem := refused.ExpectProblem(http.StatusForbidden, "FORBIDDEN", "")
		require.Contains(t, problem.Message, string(tc.scope))
		require.Contains(t, refused.Header.Get("WWW-Authenticate"), "insufficient_scope")
		for _, anonymous := range []*apitest.Caller{s.Anonymous(), s.WithToken("x"), s.WithToken("eyJhbGciOiJub25lIn0.e30.")} {
			refused := anonymous.Do(t, tc.method, tc.path, apitest.Raw(tc.body))
			refused.ExpectProblem(http.StatusUnauthorized, "UNAUTHORIZED", "")
			want := `Bearer error="invalid_token"`
			if anonymous.Token == "" {
				want = "Bearer"
			}
			require.Equal(t, want, refused.Header.Get("WWW-Authenticate"))
		}
	}
	require.Equal(t, "1", n.With(t, identity.ScopeWorkflowsRead).Get(t, "/v2/workflows?status=draft").Text("pagination.total"))
}

func testRaces(t *testing.T, s *apitest.Service) {
	t.Helper()
	c := s.Tenant(t).As(t, identity.RoleDeveloper)
	// race sends concurrent identical requests and counts the statuses.
	race := func(method, path string, body any) map[int]int {
		var mu sync.Mutex
		var wait sync.WaitGroup
		statuses := map[int]int{}
		for range 8 {
			wait.Go(func() {
				answer := c.Do(t, method, path, body)
				mu.Lock()
				defer mu.Unlock()
				statuses[answer.Status]++
			})
		}
		wait.Wait()
		return statuses
	}
	once := func(success int) map[int]int { return map[int]int{success: 1, http.StatusConflict: 7} }

	require.Equal(t, once(http.StatusCreated), race(http.MethodPost, "/v2/workflows", workflowBody("raced")))
	id := c.Get(t, "/v2/workflows?search=raced").Text("data[0].id")
	require.Equal(t, once(http.StatusOK), race(http.MethodPost, "/v2/workflows/"+id+"/publish", nil))
	require.Equal(t, once(http.StatusCreated), race(http.MethodPost, "/v2/workflows/"+id+"/create-draft", nil))
	require.Equal(t, once(http.StatusOK), race(http.MethodPost, "/v2/workflows/"+id+"/archive", nil))
	require.Equal(t, map[int]int{http.StatusNoContent: 1, http.StatusNotFound: 7}, race(http.MethodDelete, "/v2/workflows/"+id, nil))
	draft := c.Get(t, "/v2/workflows?search=raced").Text("data[0].id")
	require.Equal(t, "v2", c.Get(t, "/v2/workflows/"+draft).Text("version"))
}

func testBodiesWhereNone(t *testing.T, s *apitest.Service) {
	t.Helper()
	c := s.Tenant(t).As(t, identity.RoleDeveloper)
	id := createWorkflow(t, c, "bodiless")
	path := "/v2/workflows/" + id + "/publish"
	c.Post(t, path, apitest.Raw(`{"force":true}`)).ExpectProblem(http.StatusBadRequest, "VALIDATION_ERROR", "", "force")
	c.Post(t, path, apitest.Raw(`[]`)).ExpectProblem(http.StatusBadRequest, "VALIDATION_ERROR", "INVALID_FIELD_TYPE", "body")
	c.Post(t, path, apitest.Raw(`{`)).ExpectProblem(http.StatusBadRequest, "VALIDATION_ERROR", "", "body")
	c.Post(t, path, apitest.Raw(`x`), apitest.Header{Name: "Content-Type", Value: "text/plain"}).
		ExpectProblem(http.StatusUnsupportedMediaType, "UNSUPPORTED_MEDIA_TYPE", "")
	c.Post(t, path, apitest.Raw(``)).Expect(http.StatusOK)
	c.Post(t, "/v2/workflows/"+id+"/archive", apitest.Raw(`{}`)).Expect(http.StatusOK)
}
