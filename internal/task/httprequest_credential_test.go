package task

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tranche/internal/egress"
)

// What may not be published is told together with all else that is wrong.
func TestRefusalsAreReportedWithFaults(t *testing.T) {
	t.Parallel()
	const config = `{"url":"https://example.com/?token=abc","method":"LATER"}`
	requireRefusals(t, "http-request", []refusal{
		{config, "tasks[0].config.url", mustBeSecret}, {config, "tasks[0].config.method", "must be one of"},
	})
}

func TestHTTPRequestRefusesNamesThatNoSecretHas(t *testing.T) {
	t.Parallel()
	const at = "tasks[0].config."
	for _, name := range []string{"", "Bearer hunter2", "hunter2/x", ".hunter2", strings.Repeat("hunter2", 43)} {
		requireRefusals(t, "http-request", []refusal{
			{fmt.Sprintf(`{"url":"https://example.com/","auth":{"type":"bearer","secret":%q}}`, name), at + "auth.secret", "is not the name of a secret"},
			{fmt.Sprintf(`{"url":"https://example.com/","headers":{"Authorization":{"secret":%q}}}`, name), at + "headers.Authorization.secret", "is not the name of a secret"},
		})
	}
}

func TestHTTPRequestRefusesCredentials(t *testing.T) {
	t.Parallel()
	const at, message = "tasks[0].config.", "must not hold a credential"
	var refused []refusal
	for _, name := range []string{
		"Authorization", "Cookie", "X-Api-Key", "apikey", "Private-Token", "Ocp-Apim-Subscription-Key", "X-Vault-Token",
		"X-Amz-Security-Token", "X-Secret", "X-Client-Secret", "X.Access.Key",
	} {
		refused = append(refused, refusal{fmt.Sprintf(`{"url":"https://example.com/","headers":{%q:"hunter2"}}`, name), at + "headers." + name, message})
	}
	for _, name := range []string{"api_key", "apiKey", "APIKey", "access_token", "client_secret", "password", "userPwd", "dbCredentials"} {
		for _, member := range []string{"query", "body", "bodyForm"} {
			refused = append(refused, refusal{fmt.Sprintf(`{"url":"https://example.com/",%q:{%q:"hunter2"}}`, member, name), at + member + "." + name, message})
		}
		for _, url := range []string{
			"https://example.com/?a=b&" + name + "=hunter2", "https://{{ input.host }}/?x={{ input.a ? 1 : 2 }}&" + name + "=hunter2",
			"https://example.com/{{ input.x }}?" + name + "={{ 'hunter2' }}#x", "{{ 'https://example.com/?" + name + "=hunter2' }}",
		} {
			refused = append(refused, refusal{fmt.Sprintf(`{"url":%q}`, url), at + "url", message})
		}
	}
	refused = append(refused,
		refusal{`{"url":"https://example.com/?api%5Fkey=hunter2"}`, at + "url", message},
		refusal{`{"url":"https://example.com/","headers":{"Authorization":"Bearer {{ \"hunter2\" }}"}}`, at + "headers.Authorization", message},
		refusal{`{"url":"https://example.com/","headers":{"Authorization":"{{ \"Bearer \" + lower(\"HUNTER2\") }}"}}`, at + "headers.Authorization", message},
		refusal{`{"url":"https://example.com/","body":{"a":[{"login":{"password":"hunter2"}}]}}`, at + "body.a[0].login.password", message},
		refusal{`{"url":"https://example.com/","bodyForm":{"token":["{{ input.a }}","hunter2"]}}`, at + "bodyForm.token[1]", message},
		refusal{
			`{"url":"https://example.com/","auth":{"type":"oauth2ClientCredentials","secret":"s","clientId":"c","tokenUrl":"https://example.com/?client_secret=hunter2"}}`,
			at + "auth.tokenUrl", message,
		},
	)
	requireRefusals(t, "http-request", refused)
	for _, c := range refused {
		published, _ := compile(t, Types(Ports{HTTP: egress.New(nil)}), "http-request", c.config)
		require.NotNil(t, published, "what an earlier version published runs on")
	}
}

func TestHTTPRequestAcceptsNonCredentials(t *testing.T) {
	t.Parallel()
	for _, config := range []string{
		`{"url":"https://example.com/?api_key={{ input.key }}&token_type=x&page={{ input.n }}"}`,
		`{"url":"https://example.com/?api_key="}`,
		`{"url":"https://example.com/","query":{"token_type":"x","key":"score","secret":"","password":null}}`,
		`{"url":"https://example.com/","body":{"tokens":"five","maxTokens":"5","primaryKey":"id","token":5,"secret":true,"keys":["a"],"creditAuthorization":"Y","cookie":"oat"}}`,
		`{"url":"https://example.com/","body":{"token":"{{ callbackUrl(\"w\") }}","password":"{{ uuid() }}","secret":"{{ now() }}"}}`,
		`{"url":"https://example.com/","body":{"token":"{{ execution.id }}","password":"a{{ input.b }}","secret":"{{ tasks.w.output.s }}","pwd":"{{ \"\" }}"}}`,
		`{"url":"https://example.com/","headers":{"X-Token":{"secret":"key"},"Authorization":"Bearer {{ input.token }}","X-Api-Key":""}}`,
	} {
		_, details := plan(t, Types(Ports{HTTP: egress.New(nil)}),
			`[{"id":"w","type":"wait-for-signal","config":{}},{"id":"t","type":"http-request","config":`+config+`}]`,
			`[{"source":"start","target":"w"},{"source":"w","target":"t"}]`)
		require.Empty(t, details, config)
	}
}
