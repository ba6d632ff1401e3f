package api_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tranche/internal/apitest"
	"tranche/internal/identity"
)

func TestSecrets(t *testing.T) {
	t.Parallel()
	runShared(t, map[string]func(*testing.T, *apitest.Service){
		"Names":                     testSecretsNames,
		"Errors":                    testSecretsErrors,
		"PublishRejectsCredentials": testSecretsPublishRejectsCredentials,
	})
}

// A definition can refer to secrets by valid names only.
func testSecretsNames(t *testing.T, s *apitest.Service) {
	t.Helper()
	c := s.Tenant(t).As(t, identity.RoleAdmin)
	for i, name := range []string{"k", "Bureau-key_2.a", strings.Repeat("k", 64), strings.Repeat("k", 65), "Bearer sk_live_123", ".k", "k/k", "ключ"} {
		put := c.Put(t, "/v1/secrets/"+url.PathEscape(name), apitest.Raw(`{"value":"open sesame","hosts":["example.com"]}`))
		tasks := fmt.Sprintf(`[{"id":"a","type":"http-request","config":{"url":"https://example.com/","auth":{"type":"bearer","secret":%q},"headers":{"X-A":{"secret":%q}}}}]`, name, name)
		id := c.Post(t, "/v2/workflows", apitest.Raw(fmt.Sprintf(`{"name":"x","alias":"w%d","tasks":%s}`, i, tasks))).Expect(http.StatusCreated).Text("id")
		validated := c.Post(t, "/v2/workflows/"+id+"/validate", nil).Expect(http.StatusOK)
		published := c.Post(t, "/v2/workflows/"+id+"/publish", nil)
		if i < 3 {
			put.Expect(http.StatusOK)
			published.Expect(http.StatusOK)
			continue
		}
		put.Expect(http.StatusNotFound)
		published.Expect(http.StatusUnprocessableEntity)
		for _, answer := range []string{string(validated.Body), string(published.Body)} {
			require.Contains(t, answer, "tasks[0].config.auth.secret", name)
			require.Contains(t, answer, "tasks[0].config.headers.X-A.secret", name)
			require.NotContains(t, answer, name)
		}
	}
}

// One response has all errors of a secret.
func testSecretsErrors(t *testing.T, s *apitest.Service) {
	t.Helper()
	c := s.Tenant(t).As(t, identity.RoleAdmin)
	for body, fields := range map[string][]string{
		`{"value":"short","hosts":["a.example","https://a.example/",1]}`: {"value", "hosts[1]", "hosts[2]"},
		`{"value":"line\nbreak","hosts":["a b","a.example"],"name":"x"}`: {"value", "hosts[0]", "name"},
		`{"hosts":[]}`: {"value", "hosts"},
		`[]`:           {"body"},
	} {
		got := c.Put(t, "/v1/secrets/k", apitest.Raw(body)).Expect(http.StatusBadRequest)
		var problem apitest.Problem
		got.Decode(&problem)
		require.ElementsMatch(t, fields, problem.Fields(), string(got.Body))
	}
}

func testSecretsPublishRejectsCredentials(t *testing.T, s *apitest.Service) {
	t.Helper()
	c := s.Tenant(t).As(t, identity.RoleAdmin)
	id := c.Post(t, "/v2/workflows", apitest.Raw(`{"name":"x","alias":"w","tasks":[{"id":"a","type":"http-request","config":{
		"url":"https://example.com/?api_key=hunter2","headers":{"Private-Token":"hunter2"},"query":{"access_token":"hunter2"},"body":{"a":[{"password":"hunter2"}]}}}]}`)).
		Expect(http.StatusCreated).Text("id")
	refused := c.Post(t, "/v2/workflows/"+id+"/publish", nil).Expect(http.StatusUnprocessableEntity)
	for _, field := range []string{"url", "headers.Private-Token", "query.access_token", "body.a[0].password"} {
		require.Contains(t, string(refused.Body), "tasks[0].config."+field+`"`)
	}
	require.NotContains(t, string(refused.Body), "hunter2")
}
