package api_test

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"

	"tranche/internal/apitest"
	"tranche/internal/identity"
)

// pathParameter matches the parameters of a path.
var pathParameter = regexp.MustCompile(`\{(\w+)\}`)

// route is an operation of the document that requires a token.
type route struct {
	method, path string
	scope        identity.Scope
	body         any // the example in the document
}

func (r route) at(values map[string]string) string {
	return pathParameter.ReplaceAllStringFunc(r.path, func(name string) string { return values[strings.Trim(name, "{}")] })
}

// parameters returns the names of the path parameters.
func (r route) parameters() (names []string) {
	for _, match := range pathParameter.FindAllStringSubmatch(r.path, -1) {
		names = append(names, match[1])
	}
	return names
}

// creates reports whether the route creates the resource that its path names. It has no
// unknown names.
func (r route) creates() bool {
	return r.method == http.MethodPut && (strings.HasPrefix(r.path, "/v1/secrets/") || strings.HasPrefix(r.path, "/v1/message-templates/"))
}

// sameID sets the request id, so that answers can be compared byte for byte.
func sameID() apitest.Header { return apitest.Header{Name: "X-Request-Id", Value: "same"} }

func TestAccess(t *testing.T) {
	t.Parallel()
	runShared(t, map[string]func(*testing.T, *apitest.Service){
		"Matrix":     testAccessMatrix,
		"ForeignIDs": testAccessForeignIDs,
		"AuditTrail": testAccessAuditTrail,
	})
}

// The access matrix is derived from the document: every route, every parameter of its
// path, {own, foreign, unknown, malformed} ids, and scopes. A parameter without a value in
// ownedThings fails the test.
func testAccessMatrix(t *testing.T, s *apitest.Service) {
	t.Helper()
	owner, stranger := s.Tenant(t), s.Tenant(t)
	admin, other := owner.As(t, identity.RoleAdmin), stranger.As(t, identity.RoleAdmin)
	own, foreign := ownedThings(t, admin, "owned"), ownedThings(t, other, "foreign")
	unknown, malformed := map[string]string{}, map[string]string{}
	for name := range own {
		unknown[name], malformed[name] = unknownID, "x"
	}
	unknown["alias"], unknown["version"] = "unknown", "v9"
	malformed["alias"], malformed["version"] = "Not-An-Alias", "one"

	for _, route := range routes(t, s, owner.Slug) {
		name := route.method + " " + route.path
		for _, parameter := range route.parameters() {
			require.Contains(t, own, parameter, "%s: add {%s} to ownedThings", name, parameter)
		}

		refused := s.Anonymous().Do(t, route.method, route.at(own), route.body)
		refused.ExpectProblem(http.StatusUnauthorized, "UNAUTHORIZED", "")
		others := slices.DeleteFunc(identity.Scopes(), func(scope identity.Scope) bool { return scope == route.scope })
		problem := owner.With(t, others...).Do(t, route.method, route.at(own), route.body).ExpectProblem(http.StatusForbidden, "FORBIDDEN", "")
		require.Contains(t, problem.Message, string(route.scope), name)

		if len(route.parameters()) > 0 && !route.creates() {
			want := other.Do(t, route.method, route.at(unknown), route.body, sameID())
			require.Equal(t, http.StatusNotFound, want.Status, "%s: %s", name, want.Body)
			got := other.Do(t, route.method, route.at(own), route.body, sameID())
			require.Equal(t, string(want.Body), string(got.Body), "%s with ids of another tenant", name)
		}
		for _, parameter := range route.parameters() {
			if route.creates() {
				continue
			}
			answer := func(values map[string]string) *apitest.Answer {
				mixed := maps.Clone(own)
				mixed[parameter] = values[parameter]
				return admin.Do(t, route.method, route.at(mixed), route.body, sameID())
			}
			want := answer(unknown)
			require.Equal(t, http.StatusNotFound, want.Status, "%s, unknown %s: %s", name, parameter, want.Body)
			require.Equal(t, string(want.Body), string(answer(malformed).Body), "%s, malformed %s", name, parameter)
			if foreign[parameter] != own[parameter] {
				require.Equal(t, string(want.Body), string(answer(foreign).Body), "%s, foreign %s", name, parameter)
			}
		}

		allowed := owner.With(t, route.scope).Do(t, route.method, route.at(own), route.body)
		require.NotContains(t, []int{http.StatusUnauthorized, http.StatusForbidden}, allowed.Status, "%s: %s", name, allowed.Body)
		if len(route.parameters()) > 0 && !route.namesOthersInBody() {
			require.NotEqual(t, http.StatusNotFound, allowed.Status, "%s: %s", name, allowed.Body)
		}
	}
}

// namesOthersInBody reports whether the example of the body names files, a template or a
// one-time password that do not exist.
func (r route) namesOthersInBody() bool {
	return strings.HasSuffix(r.path, "/execute-batch") || strings.HasSuffix(r.path, "/attempt")
}

// Ids of another tenant in bodies and queries get the same answer as unknown ids, byte for
// byte.
func testAccessForeignIDs(t *testing.T, s *apitest.Service) {
	t.Helper()
	admin, other := s.Tenant(t).As(t, identity.RoleAdmin), s.Tenant(t).As(t, identity.RoleAdmin)
	own, foreign := ownedThings(t, admin, "owned"), ownedThings(t, other, "foreign")
	execute := "/v1/workflows/" + own["alias"] + "/v1/execute"
	for name, c := range map[string]struct{ path, body, foreign string }{
		"configure-schedules":    {"/v1/workflows/commands/configure-schedules", `{"workflowId":"ID","schedule":{"cron":"0 6 * * *"}}`, foreign["id"]},
		"delete-schedules":       {"/v1/workflows/commands/delete-schedules", `{"workflowId":"ID","schedule":true}`, foreign["id"]},
		"raw package":            {execute + "-batch", `{"workflowInput":{"rawPackageIds":["ID"]}}`, foreign["packageId"]},
		"attached file":          {execute + "-batch", `{"attachmentFileNames":["ID.csv"]}`, foreign["fileId"]},
		"execution scored again": {execute + "?rescore-of=ID", `{}`, foreign["executionId"]},
	} {
		require.NotEmpty(t, c.foreign, name)
		ask := func(id string) *apitest.Answer {
			return admin.Post(t, strings.Replace(c.path, "ID", id, 1), apitest.Raw(strings.Replace(c.body, "ID", id, 1)), sameID())
		}
		want := ask(unknownID)
		require.Contains(t, []int{http.StatusNotFound, http.StatusBadRequest, http.StatusOK}, want.Status, "%s: %s", name, want.Body)
		got := ask(c.foreign)
		require.Equal(t, want.Status, got.Status, "%s: %s", name, got.Body)
		if want.Status != http.StatusOK {
			require.Equal(t, string(want.Body), string(got.Body), name)
		}
	}
}

// ownedThings creates one resource for each path parameter and returns their ids.
func ownedThings(t *testing.T, c *apitest.Caller, alias string) map[string]string {
	t.Helper()
	workflow := c.Post(t, "/v2/workflows", apitest.Raw(`{"name":"x","alias":"`+alias+`","tasks":[{"id":"done","type":"end","config":{"output":{}}}]}`)).
		Expect(http.StatusCreated).Text("id")
	c.Post(t, "/v2/workflows/"+workflow+"/publish", nil).Expect(http.StatusOK)
	execution := c.Post(t, "/v1/workflows/"+alias+"/v1/execute", apitest.Raw(`{}`)).Expect(http.StatusOK).Text("executionId")
	batch := c.Post(t, "/v1/workflows/"+alias+"/v1/execute-batch", apitest.Raw(`{"workflowInput":{"items":[{}]}}`)).
		Expect(http.StatusAccepted).Text("executionBatchId")
	var pkg string
	require.Eventually(t, func() bool {
		pkg = c.Get(t, "/v1/execution-batches/"+batch).Text("outputs.wBatchPostProcessingOutput.processedOutputPackageId")
		return pkg != ""
	}, time.Minute, 50*time.Millisecond)
	upload := func(path, file string) string {
		address := c.Post(t, path, map[string]any{"fileName": file}).Expect(http.StatusCreated)
		c.Do(t, http.MethodPut, address.Text("signedUrl"), []byte("a\n1\n"),
			apitest.Header{Name: "Content-Type", Value: address.Text("contentType")}, apitest.Header{Name: "Authorization"}).Expect(http.StatusOK)
		return address.Text("attachmentId")
	}
	authorization := c.Post(t, "/v1/authorizations", map[string]any{
		"tenant": tenantOf(t, c), "key": "credit", "identityKey": "email", "identityValue": "ada@example.com",
	}).Expect(http.StatusCreated).Text("id")
	c.Put(t, "/v1/secrets/"+alias, apitest.Raw(`{"value":"long enough","hosts":["api.example"]}`)).Expect(http.StatusOK)
	c.Put(t, "/v1/message-templates/"+alias, apitest.Raw(`{"subject":"Your code","text":"{{code}}"}`)).Expect(http.StatusOK)
	return map[string]string{
		"name": alias, "templateId": alias,
		"id": workflow, "alias": alias, "version": "v1",
		"executionId": execution, "batchId": batch, "packageId": pkg,
		"fileId":          upload("/v1/stores/packages/commands/attachments/generate-upload-signed-url", "items.csv"),
		"authorizationId": authorization,
		"attachmentId":    upload("/v1/authorizations/"+authorization+"/attachments", "policy.txt"),
	}
}

// tenantOf returns the tenant of a caller's token.
func tenantOf(t *testing.T, c *apitest.Caller) string {
	t.Helper()
	claims, err := base64.RawURLEncoding.DecodeString(strings.Split(c.Token, ".")[1])
	require.NoError(t, err)
	var tenant struct {
		ID string `json:"tenant"`
	}
	require.NoError(t, json.Unmarshal(claims, &tenant))
	return tenant.ID
}

// routes returns the operations that require a token. DELETE comes last, longest path
// first. Bodies name the tenant of the slug.
func routes(t *testing.T, s *apitest.Service, slug string) []route {
	t.Helper()
	spec, err := openapi3.NewLoader().LoadFromData(s.Anonymous().Get(t, "/openapi.json").Body)
	require.NoError(t, err)
	var found []route
	for path, item := range spec.Paths.Map() {
		for method, op := range item.Operations() {
			if len(*op.Security) == 0 {
				continue
			}
			r := route{method: method, path: path, scope: identity.Scope((*op.Security)[0]["bearer"][0])}
			if op.RequestBody != nil {
				example := op.RequestBody.Value.Content["application/json"].Example
				if members, ok := example.(map[string]any); ok && members["tenant"] != nil {
					members["tenant"] = slug
				}
				text, err := json.Marshal(example)
				require.NoError(t, err)
				r.body = text
			}
			found = append(found, r)
		}
	}
	require.NotEmpty(t, found)
	slices.SortFunc(found, func(a, b route) int {
		last := func(r route) int {
			if r.method == http.MethodDelete {
				return 1
			}
			return 0
		}
		return cmp.Or(last(a)-last(b), last(a)*(len(b.path)-len(a.path)), strings.Compare(a.path+a.method, b.path+b.method))
	})
	return found
}
