// Package contract_test checks that the OpenAPI document is compatible with the last
// release.
package contract_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	released = "../../api/openapi.released.json"
	current  = "../../api/openapi.json"
)

// breaking returns oasdiff's list of changes from base to revision that break callers, or
// an empty text. Warnings count. oasdiff-levels.txt overrides two rules: removing an
// optional member of a response breaks callers, and adding a value to a response's enum
// does not, because the document announces such additions.
func breaking(t *testing.T, base, revision string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", "tool", "oasdiff", "breaking", base, revision,
		"--fail-on", "WARN", "--severity-levels", "oasdiff-levels.txt", "--format", "singleline")
	said, err := command.CombinedOutput()
	if err == nil {
		return ""
	}
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, 1, exit.ExitCode(), "oasdiff could not compare: %s", said)
	return string(said)
}

// The document is compatible with that of the last release. `make release-contract`
// replaces the latter.
func TestNothingBreaks(t *testing.T) {
	t.Parallel()
	require.Empty(t, breaking(t, released, current), "callers of the last release would break")
}

// member returns the value of a key path in a document.
func member(t *testing.T, document any, keys ...string) map[string]any {
	t.Helper()
	for _, key := range keys {
		object, ok := document.(map[string]any)
		require.True(t, ok, "%s is in no object", key)
		document = object[key]
	}
	object, ok := document.(map[string]any)
	require.True(t, ok, "there is no object at %q", keys)
	return object
}

// without returns a list without one text.
func without(list any, text string) []any {
	texts, _ := list.([]any)
	rest := []any{}
	for _, t := range texts {
		if t != text {
			rest = append(rest, t)
		}
	}
	return rest
}

const tokenPath = "/identity/resources/auth/v1/api-token"

// The check reports changes that break callers, and accepts other changes.
func TestGuard(t *testing.T) {
	t.Parallel()
	schema := func(t *testing.T, d any, name string) map[string]any {
		t.Helper()
		return member(t, d, "components", "schemas", name)
	}
	property := func(t *testing.T, d any, name, of string) map[string]any {
		t.Helper()
		return member(t, schema(t, d, name), "properties", of)
	}
	for name, c := range map[string]struct {
		change func(*testing.T, map[string]any)
		named  string // text in the report; empty for a compatible change
	}{
		"nothing": {change: func(*testing.T, map[string]any) {}},
		"an operation removed": {func(t *testing.T, d map[string]any) {
			delete(member(t, d, "paths"), "/v1/executions/{executionId}/cancel")
		}, "api-path-removed-without-deprecation"},
		"a member of an answer removed": {func(t *testing.T, d map[string]any) {
			delete(member(t, d, "components", "schemas", "TokenAnswer", "properties"), "refreshToken")
			schema(t, d, "TokenAnswer")["required"] = without(schema(t, d, "TokenAnswer")["required"], "refreshToken")
		}, "refreshToken"},
		"an optional member of an answer removed": {func(t *testing.T, d map[string]any) {
			delete(member(t, d, "components", "schemas", "Problem", "properties"), "errorSubCode")
		}, "errorSubCode"},
		"a member of an answer no longer always there": {func(t *testing.T, d map[string]any) {
			schema(t, d, "TokenAnswer")["required"] = without(schema(t, d, "TokenAnswer")["required"], "refreshToken")
		}, "became optional"},
		"another type in an answer": {func(t *testing.T, d map[string]any) {
			property(t, d, "TokenAnswer", "expiresIn")["type"] = "string"
		}, "response-property-type-changed"},
		"null in an answer": {func(t *testing.T, d map[string]any) {
			property(t, d, "TokenAnswer", "expiresIn")["type"] = []string{"integer", "null"}
		}, "response-property-became-nullable"},
		"another type in a body": {func(t *testing.T, d map[string]any) {
			property(t, d, "TokenRequest", "secret")["type"] = "integer"
		}, "request-property-type-changed"},
		"a shorter text in a body": {func(t *testing.T, d map[string]any) {
			property(t, d, "TokenRequest", "secret")["maxLength"] = 20
		}, "maxLength was decreased"},
		"a new required member of a body": {func(t *testing.T, d map[string]any) {
			member(t, d, "components", "schemas", "TokenRequest", "properties")["audience"] = map[string]any{"type": "string"}
			schema(t, d, "TokenRequest")["required"] = []string{"clientId", "secret", "audience"}
		}, "new-required-request-property"},
		"a parameter's value removed": {func(t *testing.T, d map[string]any) {
			parameters, _ := member(t, d, "paths", "/v2/workflows", "get")["parameters"].([]any)
			for _, p := range parameters {
				if status := member(t, p); status["name"] == "status" {
					member(t, status, "schema")["enum"] = []string{"draft", "active"}
				}
			}
		}, "archived"},
		"another scope": {func(t *testing.T, d map[string]any) {
			member(t, d, "paths", "/v1/executions", "get")["security"] = []any{map[string]any{"bearer": []string{"audit:read"}}}
		}, "audit:read"},
		"a success removed": {func(t *testing.T, d map[string]any) {
			delete(member(t, d, "paths", tokenPath, "post", "responses"), "200")
		}, "response-success-status-removed"},
		"a member of an answer added": {change: func(t *testing.T, d map[string]any) {
			member(t, d, "components", "schemas", "TokenAnswer", "properties")["tokenType"] = map[string]any{"type": "string"}
		}},
		"a value of an answer added": {change: func(t *testing.T, d map[string]any) {
			status := property(t, d, "WorkflowItem", "status")
			values, _ := status["enum"].([]any)
			status["enum"] = append(values, "suspended")
		}},
		"an optional member of a body added": {change: func(t *testing.T, d map[string]any) {
			member(t, d, "components", "schemas", "TokenRequest", "properties")["audience"] = map[string]any{"type": "string"}
		}},
		"an operation added": {change: func(t *testing.T, d map[string]any) {
			health := member(t, d, "paths", "/healthz")
			health["post"] = map[string]any{"operationId": "added", "responses": member(t, health, "get", "responses")}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(current)
			require.NoError(t, err)
			var document map[string]any
			require.NoError(t, json.Unmarshal(text, &document))
			c.change(t, document)
			text, err = json.Marshal(document)
			require.NoError(t, err)
			changed := filepath.Join(t.TempDir(), "openapi.json")
			require.NoError(t, os.WriteFile(changed, text, 0o600))
			said := breaking(t, current, changed)
			if c.named == "" {
				require.Empty(t, said)
				return
			}
			require.Contains(t, said, c.named)
		})
	}
}
