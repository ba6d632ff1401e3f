package api_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"tranche/api"
	"tranche/internal/fault"
	"tranche/internal/httpapi"
	"tranche/internal/identity"
)

var update = flag.Bool("update", false, "write the golden files anew")

func newServer(t *testing.T) *api.Server {
	t.Helper()
	return api.New(api.Config{HTTP: httpapi.Config{
		Log:   slog.New(slog.DiscardHandler),
		Clock: time.Now,
		Verify: func(context.Context, string) (identity.Principal, error) {
			return identity.Principal{}, fault.New(fault.Unauthorized, "the token is not valid")
		},
	}})
}

func TestOpenAPIGolden(t *testing.T) {
	t.Parallel()
	const golden = "openapi.json"
	got := newServer(t).Document()
	if *update {
		require.NoError(t, os.WriteFile(golden, got, 0o600))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err, "run make openapi")
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Fatalf("openapi.json is not what the code declares; run make openapi (-file +code):\n%s", diff)
	}
}

// Every operation has all parts of its documentation.
func TestEveryOperationIsDocumented(t *testing.T) {
	t.Parallel()
	text := newServer(t).Document()
	spec, err := openapi3.NewLoader().LoadFromData(text)
	require.NoError(t, err)
	require.NoError(t, spec.Validate(t.Context(), openapi3.IsOpenAPI31OrLater(), openapi3.DisableExamplesValidation()))
	tree, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	require.NoError(t, err)
	compiler := jsonschema.NewCompiler()
	require.NoError(t, compiler.AddResource("tranche:openapi.json", tree))
	d := documentation{t: t, compiler: compiler}
	seen := map[string]bool{}
	for path, item := range spec.Paths.Map() {
		for method, op := range item.Operations() {
			d.at = method + " " + path
			d.operation(path, method, op)
			d.want(!seen[op.OperationID], "an operationId of its own")
			seen[op.OperationID] = true
		}
	}
	require.Empty(t, d.missing)
}

// documentation collects missing parts.
type documentation struct {
	t        *testing.T
	compiler *jsonschema.Compiler
	at       string
	missing  []string
}

func (d *documentation) want(ok bool, what string) {
	if !ok {
		d.missing = append(d.missing, d.at+": "+what)
	}
}

func (d *documentation) operation(path, method string, op *openapi3.Operation) {
	d.want(op.OperationID != "", "an operationId")
	d.want(op.Summary != "", "a summary")
	d.want(op.Description != "", "a description")
	d.want(len(op.Tags) == 1 && op.Tags[0] != "", "a tag")
	d.want(op.Security != nil, "security, empty for public ones")
	secured := op.Security != nil && len(*op.Security) > 0
	expected := []int{400, 429, 500, 503}
	if secured {
		d.want(len((*op.Security)[0]["bearer"]) == 1, "the scope of its security")
		expected = append(expected, 401, 403)
	}
	if strings.Contains(path, "{") {
		expected = append(expected, 404)
	}
	if op.RequestBody != nil {
		expected = append(expected, 408, 413, 415)
	}
	isIdempotent := op.Parameters.GetByInAndName("header", "Idempotency-Key") != nil
	switch { // statuses for an Idempotency-Key of another request (contract 1.11)
	case !isIdempotent || strings.HasPrefix(path, "/v1/executions/"):
	case strings.HasPrefix(path, "/v1/authorizations"):
		expected = append(expected, 409)
	default:
		expected = append(expected, 409, 422)
	}
	for _, status := range expected {
		d.want(op.Responses.Status(status) != nil, fmt.Sprintf("the response %d", status))
	}
	for _, parameter := range op.Parameters {
		d.want(parameter.Value.Description != "", "a description of parameter "+parameter.Value.Name)
	}
	pointer := "/paths/" + escape(path) + "/" + strings.ToLower(method)
	if op.RequestBody != nil {
		d.content(op.RequestBody.Value.Content, pointer+"/requestBody", "request")
	}
	successes := 0
	for status, response := range op.Responses.Map() {
		if status[0] == '2' {
			successes++
		}
		at := pointer + "/responses/" + status
		if response.Ref != "" {
			at = strings.TrimPrefix(response.Ref, "#")
		}
		d.want(response.Value.Description != nil && *response.Value.Description != "", "a description of "+status)
		d.want(response.Value.Headers["X-Request-Id"] != nil, "the header X-Request-Id of "+status)
		d.content(response.Value.Content, at, "response "+status)
	}
	d.want(successes > 0, "a success")
}

// content requires an example of every JSON content. The schema must accept it.
func (d *documentation) content(content openapi3.Content, pointer, what string) {
	for kind, media := range content {
		if kind != "application/json" {
			continue
		}
		d.want(media.Example != nil || len(media.Examples) > 0, "an example of the "+what)
		examples := []any{media.Example}
		for _, example := range media.Examples {
			examples = append(examples, example.Value.Value)
		}
		schema, err := d.compiler.Compile("tranche:openapi.json#" + pointer + "/content/application~1json/schema")
		require.NoError(d.t, err, pointer)
		for _, example := range examples {
			if example != nil {
				err := schema.Validate(example)
				d.want(err == nil, fmt.Sprintf("an example of the %s that its schema accepts: %v", what, err))
			}
		}
	}
}

// Every member of every schema has a description.
func TestSchemasAreDescribed(t *testing.T) {
	t.Parallel()
	spec, err := openapi3.NewLoader().LoadFromData(newServer(t).Document())
	require.NoError(t, err)
	for name, schema := range spec.Components.Schemas {
		for member, property := range schema.Value.Properties {
			if property.Ref == "" && property.Value.Description == "" {
				t.Errorf("%s.%s has no doc tag", name, member)
			}
		}
	}
}

func TestDocumentIsServed(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	get := func(path string, headers ...string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody)
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		s.ServeHTTP(w, r)
		return w
	}
	first := get("/openapi.json")
	require.Equal(t, http.StatusOK, first.Code)
	require.Equal(t, s.Document(), first.Body.Bytes())
	etag := first.Header().Get("ETag")
	require.NotEmpty(t, etag)
	again := get("/openapi.json", "If-None-Match", etag)
	require.Equal(t, http.StatusNotModified, again.Code)
	require.Empty(t, again.Body.Bytes())
	require.Equal(t, http.StatusNotModified, get("/openapi.json", "If-None-Match", `"other", W/`+etag).Code)
	require.Equal(t, http.StatusOK, get("/openapi.json", "If-None-Match", `"other"`).Code)

	linked := get("/docs") // the README links it
	require.Equal(t, http.StatusOK, linked.Code)
	require.Contains(t, get("/docs/nothing.js").Body.String(), `"NOT_FOUND"`)
	require.Equal(t, http.StatusNotFound, get("/docs/nothing.js").Code)
	page := get("/docs/")
	require.Equal(t, http.StatusOK, page.Code)
	require.Equal(t, page.Body.String(), linked.Body.String())
	require.Equal(t, page.Header().Get("Content-Security-Policy"), linked.Header().Get("Content-Security-Policy"))
	text := page.Body.String()
	assets := regexp.MustCompile(`(?:src|href)="([^"]+)"`).FindAllStringSubmatch(text, -1)
	require.Len(t, assets, 5)
	for _, asset := range assets {
		require.True(t, strings.HasPrefix(asset[1], "/docs/"), "%s is not ours, and the page must work offline", asset[1])
		file := get(asset[1])
		require.Equal(t, http.StatusOK, file.Code, asset[1])
		require.Equal(t, page.Header().Get("Content-Security-Policy"), file.Header().Get("Content-Security-Policy"))
	}
	require.Contains(t, get("/docs/page.js").Body.String(), `"/openapi.json"`)

	// The page has no inline scripts and styles, which the policy forbids.
	require.Equal(t, "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "+
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'", page.Header().Get("Content-Security-Policy"))
	require.NotRegexp(t, `(?i)<style|\sstyle=|\son\w+=|javascript:|<(base|form|iframe|object|embed)`, text)
	require.Len(t, regexp.MustCompile(`<script[^>]*>`).FindAllString(text, -1), len(regexp.MustCompile(`<script src="[^"]+"></script>`).FindAllString(text, -1)))
}

func escape(segment string) string {
	return strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D").Replace(segment)
}
