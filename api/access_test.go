package api_test

import (
	"encoding/json"
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

// pathParameter finds the parameters of a path.
var pathParameter = regexp.MustCompile(`\{(\w+)\}`)

// route is an operation of the document that needs a token.
type route struct {
	method, path string
	scope        identity.Scope
	body         any // the document's example of it
}

func (r route) at(values map[string]string) string {
	return pathParameter.ReplaceAllStringFunc(r.path, func(name string) string { return values[strings.Trim(name, "{}")] })
}

// TestAccess is generated from the document: every route × every parameter of
// its path × {own, foreign, unknown, malformed} × scope. A route with a
// parameter that the test has no value for fails it.
func TestAccess(t *testing.T) {
	t.Parallel()
	s := apitest.Start(t)
	owner, stranger := s.Tenant(t), s.Tenant(t)
	own := ownedThings(t, owner.As(t, identity.RoleAdmin))
	unknown, malformed := map[string]string{}, map[string]string{}
	for name := range own {
		unknown[name], malformed[name] = unknownID, "x"
	}
	unknown["alias"], unknown["version"] = "unknown", "v1"
	malformed["alias"], malformed["version"] = "Not-An-Alias", "one"

	sameID := apitest.Header{Name: "X-Request-Id", Value: "same"}
	admin := stranger.As(t, identity.RoleAdmin)
	for _, route := range routes(t, s) {
		name := route.method + " " + route.path
		for _, parameter := range pathParameter.FindAllStringSubmatch(route.path, -1) {
			require.Contains(t, own, parameter[1], "%s: say in ownedThings what %s is", name, parameter[0])
		}

		refused := s.Anonymous().Do(t, route.method, route.at(own), route.body)
		refused.ExpectProblem(http.StatusUnauthorized, "UNAUTHORIZED", "")
		others := slices.DeleteFunc(identity.Scopes(), func(scope identity.Scope) bool { return scope == route.scope })
		problem := owner.With(t, others...).Do(t, route.method, route.at(own), route.body).ExpectProblem(http.StatusForbidden, "FORBIDDEN", "")
		require.Contains(t, problem.Message, string(route.scope), name)

		if strings.Contains(route.path, "{") {
			want := admin.Do(t, route.method, route.at(unknown), route.body, sameID)
			require.Equal(t, http.StatusNotFound, want.Status, "%s: %s", name, want.Body)
			for kind, values := range map[string]map[string]string{"foreign": own, "malformed": malformed} {
				got := admin.Do(t, route.method, route.at(values), route.body, sameID)
				require.Equal(t, http.StatusNotFound, got.Status, "%s, %s: %s", name, kind, got.Body)
				require.Equal(t, string(want.Body), string(got.Body), "%s, %s", name, kind)
			}
		}

		allowed := owner.With(t, route.scope).Do(t, route.method, route.at(own), route.body)
		require.NotContains(t, []int{http.StatusUnauthorized, http.StatusForbidden}, allowed.Status, "%s: %s", name, allowed.Body)
		if strings.Contains(route.path, "{") && route.path != "/v1/workflows/{alias}/{version}/execute-batch" { // its example names a file
			require.NotEqual(t, http.StatusNotFound, allowed.Status, "%s: %s", name, allowed.Body)
		}
	}
}

// ownedThings makes one of everything that a path can name.
func ownedThings(t *testing.T, c *apitest.Caller) map[string]string {
	t.Helper()
	workflow := c.Post(t, "/v2/workflows", apitest.Raw(`{"name":"x","alias":"owned","tasks":[{"id":"done","type":"end","config":{"output":{}}}]}`)).
		Expect(http.StatusCreated).Text("id")
	c.Post(t, "/v2/workflows/"+workflow+"/publish", nil).Expect(http.StatusOK)
	execution := c.Post(t, "/v1/workflows/owned/v1/execute", apitest.Raw(`{}`)).Expect(http.StatusOK).Text("executionId")
	batch := c.Post(t, "/v1/workflows/owned/v1/execute-batch", apitest.Raw(`{"workflowInput":{"items":[{}]}}`)).
		Expect(http.StatusAccepted).Text("executionBatchId")
	var pkg string
	require.Eventually(t, func() bool {
		pkg = c.Get(t, "/v1/execution-batches/"+batch).Text("outputs.wBatchPostProcessingOutput.processedOutputPackageId")
		return pkg != ""
	}, time.Minute, 50*time.Millisecond)
	c.Put(t, "/v1/secrets/owned", apitest.Raw(`{"value":"long enough","hosts":["api.example"]}`)).Expect(http.StatusOK)
	return map[string]string{
		"name": "owned",
		"id":   workflow, "alias": "owned", "version": "v1",
		"executionId": execution, "batchId": batch, "packageId": pkg,
	}
}

// routes are the operations that need a token, in the order of the document.
func routes(t *testing.T, s *apitest.Service) []route {
	t.Helper()
	spec, err := openapi3.NewLoader().LoadFromData(s.Anonymous().Get(t, "/openapi.json").Body)
	require.NoError(t, err)
	var found []route
	for _, path := range spec.Paths.InMatchingOrder() {
		for method, op := range spec.Paths.Value(path).Operations() {
			if len(*op.Security) == 0 {
				continue
			}
			r := route{method: method, path: path, scope: identity.Scope((*op.Security)[0]["bearer"][0])}
			if op.RequestBody != nil {
				text, err := json.Marshal(op.RequestBody.Value.Content["application/json"].Example)
				require.NoError(t, err)
				r.body = text
			}
			found = append(found, r)
		}
	}
	require.NotEmpty(t, found)
	return found
}
