package expression_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tranche/internal/exactjson"
	"tranche/internal/expression"
)

// block matches the fenced blocks of docs/expressions.md.
var block = regexp.MustCompile("(?s)```(json|expression|template|cell)\n(.*?)```")

// TestDocumentation evaluates every example of docs/expressions.md. A line of
// an expression or template block is a source, an arrow and the result: JSON,
// or "error" and a part of the message.
func TestDocumentation(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "expressions.md"))
	require.NoError(t, err)
	env := environment(t)
	examples := 0
	for _, match := range block.FindAllStringSubmatch(string(text), -1) {
		if match[1] == "json" {
			env.Input = decode(t, match[2])
			continue
		}
		for line := range strings.Lines(match[2]) {
			source, want, found := strings.Cut(strings.TrimSpace(line), " → ")
			require.True(t, found, line)
			v, err := evaluateExample(match[1], strings.TrimSpace(source), env)
			examples++
			want = strings.TrimSpace(want)
			if message, isError := strings.CutPrefix(want, "error "); isError {
				require.ErrorContains(t, err, message, source)
				continue
			}
			require.NoError(t, err, source)
			value, err := exactjson.Decode([]byte(want))
			require.NoError(t, err, line)
			require.Equal(t, value, v, source)
		}
	}
	require.Greater(t, examples, 150)
}

func evaluateExample(language, source string, env *expression.Env) (any, error) {
	switch language {
	case "template":
		template, err := expression.CompileTemplate(source, all)
		if err != nil {
			return nil, err
		}
		return template.Eval(env)
	case "cell":
		x, err := expression.Compile(source, expression.Scope{Column: true})
		if err != nil {
			return nil, err
		}
		inColumn := *env
		inColumn.Column = decodeNumber("700")
		return x.Eval(&inColumn)
	default:
		x, err := expression.Compile(source, all)
		if err != nil {
			return nil, err
		}
		return x.Eval(env)
	}
}

func decodeNumber(text string) any {
	v, err := exactjson.Decode([]byte(text))
	if err != nil {
		panic(err)
	}
	return v
}

// TestDocumentationNamesEveryFunction reads the names of the functions from
// the tables in which they are looked up.
func TestDocumentationNamesEveryFunction(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "expressions.md"))
	require.NoError(t, err)
	files, err := filepath.Glob("function_*.go")
	require.NoError(t, err)
	entry := regexp.MustCompile(`case ("\w+"(?:, "\w+")*):\n\t\treturn function\{`)
	names := []string{
		"all", "none", "any", "one", "filter", "map", "count", "sum", "find", "findIndex", "findLast",
		"findLastIndex", "groupBy", "sortBy", "reduce",
	}
	for _, file := range files {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, match := range entry.FindAllStringSubmatch(string(source), -1) {
			for name := range strings.SplitSeq(match[1], ", ") {
				names = append(names, strings.Trim(name, `"`))
			}
		}
	}
	require.Greater(t, len(names), 70)
	for _, name := range names {
		require.Contains(t, string(text), "`"+name, "docs/expressions.md does not name %s", name)
	}
}
