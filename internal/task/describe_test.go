package task

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tranche/internal/workflow"
)

func TestEveryMemberIsDescribed(t *testing.T) {
	t.Parallel()
	schemas := Describe()
	require.Equal(t, sortedNames(Types(Ports{})), sortedNames(schemas))
	var walk func(path string, schema *workflow.ConfigSchema)
	walk = func(path string, schema *workflow.ConfigSchema) {
		for name, property := range schema.Properties {
			require.NotEmpty(t, property.Description, "%s.%s", path, name)
			walk(path+"."+name, property)
			if property.Items != nil {
				walk(path+"."+name, property.Items)
			}
		}
	}
	for name, schema := range schemas {
		require.NotEmpty(t, schema.Description, name)
		require.Contains(t, schema.Properties, "onError", name)
		walk(name, schema)
	}
	request := schemas["http-request"]
	require.Equal(t, []string{"url"}, request.Required)
	require.Equal(t, []string{"bearer", "basic", "apiKey", "oauth2ClientCredentials"}, request.Properties["auth"].Properties["type"].Enum)
	require.InDelta(t, 300_000, *request.Properties["timeoutMs"].Maximum, 0)
	require.Equal(t, []string{"items"}, schemas["for-each"].Required)
	require.Equal(t, workflow.LanguageExpression, schemas["loop"].Properties["until"].Language)
}
