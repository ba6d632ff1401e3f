package apitest

import (
	"bytes"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
)

// document checks answers against an OpenAPI document. kin-openapi parses the document and
// finds the operation. jsonschema validates bodies, because kin-openapi applies the rules of
// OpenAPI 3.0 to schemas that refer to others.
type document struct {
	spec   *openapi3.T
	router routers.Router

	mu       sync.Mutex
	compiler *jsonschema.Compiler
}

const documentURL = "tranche:openapi.json"

// documents caches the parsed documents by their text. There is usually one, and parsing it
// takes longer than the rest of the start of a service.
var documents = struct {
	sync.Mutex
	byText map[string]*document
}{byText: map[string]*document{}}

// loadDocument returns the document of the service at a URL.
func loadDocument(tb testing.TB, address string) *document {
	tb.Helper()
	request, err := http.NewRequestWithContext(tb.Context(), http.MethodGet, address+"/openapi.json", http.NoBody)
	require.NoError(tb, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(tb, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(tb, err)
	documents.Lock()
	defer documents.Unlock()
	if documents.byText[string(text)] == nil {
		documents.byText[string(text)] = newDocument(tb, text)
	}
	return documents.byText[string(text)]
}

// newDocument parses a document and requires it to be valid.
func newDocument(tb testing.TB, text []byte) *document {
	tb.Helper()
	spec, err := openapi3.NewLoader().LoadFromData(text)
	require.NoError(tb, err)
	require.NoError(tb, spec.Validate(tb.Context(), openapi3.IsOpenAPI31OrLater(), openapi3.DisableExamplesValidation()))
	router, err := gorillamux.NewRouter(spec)
	require.NoError(tb, err)
	tree, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	require.NoError(tb, err)
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	require.NoError(tb, compiler.AddResource(documentURL, tree))
	return &document{spec: spec, router: router, compiler: compiler}
}

// check fails the test if the status, the headers, the type or the body of the answer are
// not documented.
func (d *document) check(tb testing.TB, request *http.Request, answer *Answer) {
	tb.Helper()
	require.NotEmpty(tb, answer.Header.Get("X-Request-Id"), answer.request)
	if request.Method == http.MethodHead {
		require.Empty(tb, answer.Body, answer.request)
		return
	}
	if path := request.URL.Path; path == "/openapi.json" || path == "/docs" || strings.HasPrefix(path, "/docs/") {
		return
	}
	route, _, err := d.router.FindRoute(request)
	if err != nil {
		// The router answers without an operation.
		require.Contains(tb, []int{http.StatusNotFound, http.StatusMethodNotAllowed}, answer.Status, "%s: %s", answer.request, answer.Body)
		d.checkBody(tb, "/components/schemas/Problem", answer)
		return
	}
	reference := route.Operation.Responses.Value(strconv.Itoa(answer.Status))
	require.NotNil(tb, reference, "%s: status %d is not documented: %s", answer.request, answer.Status, answer.Body)
	for name, header := range reference.Value.Headers {
		if header.Value != nil && header.Value.Required {
			require.NotEmpty(tb, answer.Header.Get(name), "%s: header %s", answer.request, name)
		}
	}
	if len(reference.Value.Content) == 0 {
		require.Empty(tb, answer.Body, "%s: %d", answer.request, answer.Status)
		return
	}
	kind, _, err := mime.ParseMediaType(answer.Header.Get("Content-Type"))
	require.NoError(tb, err, answer.request)
	require.NotNil(tb, reference.Value.Content[kind], "%s: %d of type %s is not documented", answer.request, answer.Status, kind)
	if kind != "application/json" {
		return
	}
	pointer := "/paths/" + escape(route.Path) + "/" + strings.ToLower(route.Method) + "/responses/" + strconv.Itoa(answer.Status)
	if reference.Ref != "" {
		pointer = strings.TrimPrefix(reference.Ref, "#")
	}
	d.checkBody(tb, pointer+"/content/"+escape(kind)+"/schema", answer)
}

// checkBody validates the body with the schema at a JSON pointer in the document.
func (d *document) checkBody(tb testing.TB, pointer string, answer *Answer) {
	tb.Helper()
	d.mu.Lock()
	schema, err := d.compiler.Compile(documentURL + "#" + pointer)
	d.mu.Unlock()
	require.NoError(tb, err, pointer)
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(answer.Body))
	require.NoError(tb, err, "%s: %s", answer.request, answer.Body)
	require.NoError(tb, schema.Validate(value), "%s: %d %s", answer.request, answer.Status, answer.Body)
}

// escape escapes a segment of a JSON pointer for the fragment of a URL.
func escape(segment string) string {
	return strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D").Replace(segment)
}
