package api_test

import (
	"bufio"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"
)

// The header of a table: the operation, request or response, and the status.
var tableLine = regexp.MustCompile(`^([A-Z]+) (\S+) (request|query|answer)(?: (\d+))?$`)

// A line of a table: the path of a field, its type and its default.
var fieldLine = regexp.MustCompile(`^(\S+): ([a-z|\[\]]+)(?: = (\S+))?$`)

// The document has every field of docs/contract.md with its type, and no request
// requires a member that the specification does not have.
func TestInterface(t *testing.T) {
	t.Parallel()
	spec, err := openapi3.NewLoader().LoadFromData(newServer(t).Document())
	require.NoError(t, err)
	file, err := os.Open("testdata/interface.txt")
	require.NoError(t, err)
	defer file.Close()
	c := &contract{spec: spec, needed: map[string]map[string]bool{}}
	fields, lines := 0, bufio.NewScanner(file)
	for lines.Scan() {
		line := lines.Text()
		if line == "" || line[0] == '#' {
			continue
		}
		if table := tableLine.FindStringSubmatch(line); table != nil {
			c.open(table[1], table[2], table[3], table[4])
			continue
		}
		field := fieldLine.FindStringSubmatch(line)
		require.NotNil(t, field, "not a line of a table: %s", line)
		c.field(field[1], field[2], field[3])
		fields++
	}
	require.NoError(t, lines.Err())
	require.Greater(t, fields, 200)
	for request, stated := range c.needed {
		for _, name := range c.required[request] {
			if !stated[name] {
				c.fault(request + ": requires " + name + ", which the specification does not have")
			}
		}
	}
	require.Empty(t, c.faults)
}

// contract compares tables with a document.
type contract struct {
	spec     *openapi3.T
	at       string
	side     string
	op       *openapi3.Operation
	schema   *openapi3.Schema // of the body; nil for a query
	needed   map[string]map[string]bool
	required map[string][]string
	faults   []string
}

func (c *contract) fault(text string) { c.faults = append(c.faults, text) }

// open starts a table.
func (c *contract) open(method, path, side, status string) {
	c.at, c.side, c.op, c.schema = method+" "+path+" "+side, side, nil, nil
	for have, item := range c.spec.Paths.Map() {
		if unnamed(have) == unnamed(path) && item.GetOperation(method) != nil {
			c.op = item.GetOperation(method)
		}
	}
	if c.op == nil {
		c.fault(c.at + ": there is no such operation")
		return
	}
	switch side {
	case "request":
		c.schema = c.op.RequestBody.Value.Content["application/json"].Schema.Value
		c.remember(c.schema.Required)
	case "query":
		var required []string
		for _, parameter := range c.op.Parameters {
			if parameter.Value.In == "query" && parameter.Value.Required {
				required = append(required, parameter.Value.Name)
			}
		}
		c.remember(required)
	default:
		c.schema = c.answer(status)
	}
}

func (c *contract) remember(required []string) {
	if c.required == nil {
		c.required = map[string][]string{}
	}
	c.needed[c.at], c.required[c.at] = map[string]bool{}, required
}

// answer returns the schema of a status, or of the only success.
func (c *contract) answer(status string) *openapi3.Schema {
	for _, candidate := range []string{status, "200", "201", "202"} {
		response := c.op.Responses.Value(candidate)
		if response == nil || candidate == "" {
			if status != "" {
				break
			}
			continue
		}
		if content := response.Value.Content["application/json"]; content != nil {
			return content.Schema.Value
		}
		return nil // 204 has no body
	}
	c.fault(c.at + ": there is no such answer")
	return nil
}

// field checks one field.
func (c *contract) field(path, kind, standard string) {
	at := c.at + ": " + path
	switch {
	case c.op == nil:
		return
	case c.side == "query":
		c.parameter(at, path, kind, standard)
		return
	case c.schema == nil:
		c.fault(at + ": there is no body")
		return
	}
	schema := c.schema
	segments := strings.Split(path, ".")
	for i, segment := range segments {
		name, presence := strings.TrimRight(segment, "?~"), segment[len(segment)-1]
		name, isArray := strings.CutSuffix(name, "[]")
		if i == 0 && c.needed[c.at] != nil {
			c.needed[c.at][name] = true
		}
		property := schema.Properties[name]
		if property == nil {
			c.fault(at + ": there is no member " + name)
			return
		}
		required := slices.Contains(schema.Required, name)
		if presence == '?' && required || presence != '?' && presence != '~' && !required {
			c.fault(at + ": required is " + strconv.FormatBool(required))
		}
		schema = property.Value
		if isArray {
			schema = schema.Items.Value
		}
	}
	c.kind(at, schema, kind)
}

// kind compares types. any matches every type.
func (c *contract) kind(at string, schema *openapi3.Schema, kind string) {
	element, isArray := strings.CutSuffix(kind, "[]")
	if isArray {
		if !schema.Type.Is("array") {
			c.fault(at + ": is not an array")
			return
		}
		schema, kind = schema.Items.Value, element
	}
	var have []string
	if schema.Type != nil {
		have = schema.Type.Slice()
	}
	want := strings.Split(kind, "|")
	if kind == "any" {
		want = nil
	}
	slices.Sort(have)
	slices.Sort(want)
	if !slices.Equal(have, want) {
		c.fault(at + ": is " + strings.Join(have, "|") + " instead of " + kind)
	}
}

func (c *contract) parameter(at, path, kind, standard string) {
	name := strings.TrimRight(path, "?~")
	parameter := c.op.Parameters.GetByInAndName("query", name)
	if parameter == nil {
		c.fault(at + ": there is no such parameter")
		return
	}
	if parameter.Required {
		c.fault(at + ": is required")
	}
	c.needed[c.at][name] = true
	if have := parameter.Schema.Value.Type; kind != "string" || !have.Is("array") { // a comma-separated list is a string
		c.kind(at, parameter.Schema.Value, kind)
	}
	if have := parameter.Schema.Value.Default; standard != "" && have != float64(must(strconv.Atoi(standard))) {
		c.fault(at + ": the default is not " + standard)
	}
}

// unnamed returns a path without the names of its parameters.
func unnamed(path string) string { return pathParameter.ReplaceAllString(path, "{}") }

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
