package api_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"tranche/internal/apitest"
	"tranche/internal/identity"
	"tranche/internal/logging"
	"tranche/internal/server"
)

const batchWorkflow = `{"name": "Echo", "alias": "echo", "inputSchema": {"type": "object", "properties": {"borrowerId": {"type": "string"}}},
	"tasks": [{"id": "echo", "type": "transform", "config": {"fields": {"id": "{{ input.borrowerId }}"}}}], "edges": []}`

const uploadPath = "/v1/stores/packages/commands/attachments/generate-upload-signed-url"

// noToken removes the Authorization header, which signed URLs do not need.
var noToken = apitest.Header{Name: "Authorization"}

func contentType(kind string) apitest.Header {
	return apitest.Header{Name: "Content-Type", Value: kind}
}

func publishBatchWorkflow(t *testing.T, c *apitest.Caller) (id string) {
	t.Helper()
	id = c.Post(t, "/v2/workflows", apitest.Raw(batchWorkflow)).Expect(http.StatusCreated).Text("id")
	c.Post(t, "/v2/workflows/"+id+"/publish", nil).Expect(http.StatusOK)
	return id
}

func uploadFile(t *testing.T, c *apitest.Caller, name, text string) (storedName string) {
	t.Helper()
	address := c.Post(t, uploadPath, map[string]any{"fileName": name}).Expect(http.StatusCreated)
	c.Put(t, address.Text("signedUrl"), apitest.Raw(text), noToken, contentType(address.Text("contentType"))).Expect(http.StatusOK)
	return address.Text("fileName")
}

func awaitBatch(t *testing.T, c *apitest.Caller, id string) *apitest.Answer {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		record := c.Get(t, "/v1/execution-batches/"+id).Expect(http.StatusOK)
		if status := record.Text("status"); status == "complete" || strings.HasSuffix(status, "_failed") {
			return record
		}
	}
	t.Fatal("the batch does not end")
	return nil
}

func TestBatches(t *testing.T) {
	t.Parallel()
	runShared(t, map[string]func(*testing.T, *apitest.Service){
		"UploadURLErrors":               testBatchesUploadURLErrors,
		"UploadErrors":                  testBatchesUploadErrors,
		"Downloads":                     testBatchesDownloads,
		"ExecuteRequiresActiveWorkflow": testBatchesExecuteRequiresActiveWorkflow,
		"GetErrors":                     testBatchesGetErrors,
		"List":                          testBatchesList,
		"SandboxBatchIsTest":            testBatchesSandboxBatchIsTest,
		"ResultAttachments":             testBatchesResultAttachments,
		"EveryPropertyHasColumn":        testBatchesEveryPropertyHasColumn,
	})
}

func testBatchesUploadURLErrors(t *testing.T, s *apitest.Service) {
	t.Helper()
	tenant := s.Tenant(t)
	c := tenant.As(t, identity.RoleAdmin)
	for name, request := range map[string]any{
		"too long":       map[string]any{"fileName": strings.Repeat("x", 252) + ".csv"},
		"too many bytes": map[string]any{"fileName": strings.Repeat("é", 126) + ".csv"},
		"empty":          map[string]any{"fileName": ""},
		"blank":          map[string]any{"fileName": " "},
		"directory":      map[string]any{"fileName": "../loans.csv"},
		"backslash":      map[string]any{"fileName": `C:\loans.csv`},
		"control":        map[string]any{"fileName": "loans\n.csv"},
		"wrong type":     map[string]any{"fileName": "loans.exe"},
		"no type":        map[string]any{"fileName": "loans"},
		"only gzip":      map[string]any{"fileName": "loans.gz"},
		"null":           map[string]any{"fileName": nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.Post(t, uploadPath, request).Expect(http.StatusBadRequest)
		})
	}
	c.Post(t, uploadPath, map[string]any{"fileName": strings.Repeat("x", 251) + ".csv"}).Expect(http.StatusCreated)
	c.Post(t, uploadPath, map[string]any{}).ExpectProblem(http.StatusBadRequest, "VALIDATION_ERROR", "MISSING_REQUIRED_FIELD", "fileName")
	c.Post(t, uploadPath, map[string]any{"fileName": 7}).ExpectProblem(http.StatusBadRequest, "VALIDATION_ERROR", "INVALID_FIELD_TYPE", "fileName")
	c.Post(t, uploadPath, map[string]any{"fileName": "a.csv", "size": 1}).ExpectProblem(http.StatusBadRequest, "VALIDATION_ERROR", "", "size")
	c.Post(t, uploadPath, apitest.Raw(`[`)).Expect(http.StatusBadRequest)
	s.Anonymous().Post(t, uploadPath, map[string]any{"fileName": "a.csv"}).Expect(http.StatusUnauthorized)
	tenant.With(t, identity.ScopeBatchesRead).Post(t, uploadPath, map[string]any{"fileName": "a.csv"}).Expect(http.StatusForbidden)
	for name, kind := range map[string]string{"a.csv": "text/csv", "A.CSV": "text/csv", "a.tsv": "text/tab-separated-values", "a.csv.gz": "application/gzip"} {
		address := c.Post(t, uploadPath, map[string]any{"fileName": name}).Expect(http.StatusCreated)
		require.Equal(t, kind, address.Text("contentType"))
		require.Equal(t, address.Text("attachmentId")+strings.ToLower(name[1:]), address.Text("fileName"))
	}
}

func testBatchesUploadErrors(t *testing.T, s *apitest.Service) {
	t.Helper()
	c := s.Tenant(t).As(t, identity.RoleAdmin)
	csv := contentType("text/csv")
	address := c.Post(t, uploadPath, map[string]any{"fileName": "a.csv"}).Expect(http.StatusCreated).Text("signedUrl")
	anonymous := s.Anonymous()
	anonymous.Put(t, address, apitest.Raw("x")).ExpectProblem(http.StatusUnsupportedMediaType, "UNSUPPORTED_MEDIA_TYPE", "")
	anonymous.Put(t, address, apitest.Raw("x"), contentType("text/csv; charset=utf-8")).Expect(http.StatusUnsupportedMediaType)
	anonymous.Put(t, address, apitest.Raw("x"), contentType("")).Expect(http.StatusUnsupportedMediaType)
	anonymous.Put(t, address, apitest.Raw("x"), csv, apitest.Header{Name: "Content-Encoding", Value: "gzip"}).Expect(http.StatusUnsupportedMediaType)
	anonymous.Put(t, address, struct{ *strings.Reader }{strings.NewReader("x")}, csv).
		ExpectProblem(http.StatusBadRequest, "VALIDATION_ERROR", "MISSING_REQUIRED_FIELD", "Content-Length")
	anonymous.Put(t, address+"x", apitest.Raw("x"), csv).ExpectProblem(http.StatusForbidden, "FORBIDDEN", "")
	anonymous.Put(t, strings.Replace(address, "text%2Fcsv", "text%2Fhtml", 1), apitest.Raw("x"), contentType("text/html")).Expect(http.StatusForbidden)
	anonymous.Put(t, strings.Replace(address, "size=", "size=9", 1), apitest.Raw("x"), csv).Expect(http.StatusForbidden)
	anonymous.Put(t, address[:strings.Index(address, "?")], apitest.Raw("x"), csv).Expect(http.StatusForbidden)
	anonymous.Get(t, address).Expect(http.StatusForbidden)
	anonymous.Delete(t, address).ExpectProblem(http.StatusMethodNotAllowed, "METHOD_NOT_ALLOWED", "")

	stored := anonymous.Put(t, address, apitest.Raw("borrowerId\nB-1\n"), csv).Expect(http.StatusOK)
	require.Equal(t, "15", stored.Text("size"))
	anonymous.Put(t, address, apitest.Raw("borrowerId\nB-1\n"), csv).Expect(http.StatusOK)
	anonymous.Put(t, address, apitest.Raw("borrowerId\nB-2\n"), csv).ExpectProblem(http.StatusConflict, "CONFLICT", "")
	anonymous.Put(t, address, apitest.Raw(""), csv).Expect(http.StatusConflict)
}

// An interrupted upload stores nothing, and the same URL accepts it again. Larger files and
// URLs of other tenants are rejected.
func TestInterruptedUpload(t *testing.T) {
	t.Parallel()
	s := apitest.Start(t)
	c := s.Tenant(t).As(t, identity.RoleAdmin)
	other := s.Tenant(t)
	publishBatchWorkflow(t, c)
	announced := c.Post(t, uploadPath, map[string]any{"fileName": "a.csv"}).Expect(http.StatusCreated)
	address, name := announced.Text("signedUrl"), announced.Text("fileName")
	begin := func(length int, text string) net.Conn {
		at, err := url.Parse(address)
		require.NoError(t, err)
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		_, err = fmt.Fprintf(conn, "PUT %s HTTP/1.1\r\nHost: x\r\nContent-Type: text/csv\r\nContent-Length: %d\r\n\r\n%s", at.RequestURI(), length, text)
		require.NoError(t, err)
		return conn
	}
	const text = "borrowerId\nB-1\nB-2\n"
	files := map[string]any{"attachmentFileNames": []string{name}}
	underWay := func(want int) func() bool {
		return func() bool {
			var uploads int
			return s.Pool.QueryRow(t.Context(), "SELECT count(*) FROM attachment_uploads").Scan(&uploads) == nil && uploads == want
		}
	}
	conn := begin(len(text), text[:len(text)-4])
	require.Eventually(t, underWay(1), 10*time.Second, 10*time.Millisecond)
	c.Post(t, "/v1/workflows/echo/v1/execute-batch", files).Expect(http.StatusNotFound)
	require.NoError(t, conn.Close())
	require.Eventually(t, underWay(0), 10*time.Second, 10*time.Millisecond)
	c.Post(t, "/v1/workflows/echo/v1/execute-batch", files).Expect(http.StatusNotFound)

	answer, err := http.ReadResponse(bufio.NewReader(begin(1<<30+1, "")), nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusRequestEntityTooLarge, answer.StatusCode)
	require.NoError(t, answer.Body.Close())
	foreign := regexp.MustCompile("tenant=[^&]+").ReplaceAllString(address, "tenant="+other.ID.String())
	s.Anonymous().Put(t, foreign, apitest.Raw(text), contentType("text/csv")).ExpectProblem(http.StatusForbidden, "FORBIDDEN", "")

	stored := s.Anonymous().Put(t, address, apitest.Raw(text), contentType("text/csv")).Expect(http.StatusOK)
	sum := sha256.Sum256([]byte(text))
	require.Equal(t, hex.EncodeToString(sum[:]), stored.Text("sha256"))
	record := awaitBatch(t, c, c.Post(t, "/v1/workflows/echo/v1/execute-batch", files).Expect(http.StatusAccepted).Text("executionBatchId"))
	require.Equal(t, "2", record.Text("state.batchItemsExecutionsSummary.completed"))
	other.As(t, identity.RoleAdmin).Post(t, "/v1/workflows/echo/v1/execute-batch", files).Expect(http.StatusNotFound)
}

func TestSignedURLsExpire(t *testing.T) {
	t.Parallel()
	ahead := make(chan time.Duration, 1)
	ahead <- 0
	shift := func(by time.Duration) { <-ahead; ahead <- by }
	s := apitest.Start(t, func(c *server.Config) {
		c.Clock = func() time.Time {
			by := <-ahead
			ahead <- by
			return time.Now().Add(by)
		}
	})
	c := s.Tenant(t).As(t, identity.RoleAdmin)
	address := c.Post(t, uploadPath, map[string]any{"fileName": "a.csv"}).Expect(http.StatusCreated)
	shift(16 * time.Minute)
	s.Anonymous().Put(t, address.Text("signedUrl"), apitest.Raw("x"), contentType("text/csv")).ExpectProblem(http.StatusForbidden, "FORBIDDEN", "")
	shift(0)
	s.Anonymous().Put(t, address.Text("signedUrl"), apitest.Raw("x"), contentType("text/csv")).Expect(http.StatusOK)
}

func testBatchesDownloads(t *testing.T, s *apitest.Service) {
	t.Helper()
	tenant := s.Tenant(t)
	c := tenant.As(t, identity.RoleAdmin)
	publishBatchWorkflow(t, c)
	text := "borrowerId\n" + strings.Repeat("B-1\n", 200_000)
	stored := uploadFile(t, c, "Anträge.csv", text)
	started := c.Post(t, "/v1/workflows/echo/v1/execute-batch", map[string]any{"attachmentFileNames": []string{stored}}).Expect(http.StatusAccepted)
	list := c.Get(t, "/v1/stores/packages/"+started.Text("rawPackageId")+"/attachments").Expect(http.StatusOK)
	require.Equal(t, "input", list.Text("data[0].role"))
	address := list.Text("data[0].downloadUrl")
	anonymous := s.Anonymous()

	whole := anonymous.Get(t, address).Expect(http.StatusOK)
	require.Equal(t, text, string(whole.Body))
	require.Equal(t, "nosniff", whole.Header.Get("X-Content-Type-Options"))
	require.Equal(t, "attachment; filename*=utf-8''Antr%C3%A4ge.csv", whole.Header.Get("Content-Disposition"))
	require.Equal(t, `"`+list.Text("data[0].sha256")+`"`, whole.Header.Get("ETag"))

	part := anonymous.Get(t, address, apitest.Header{Name: "Range", Value: "bytes=600000-600003"}).Expect(http.StatusPartialContent)
	require.Equal(t, text[600000:600004], string(part.Body))
	tail := anonymous.Get(t, address, apitest.Header{Name: "Range", Value: "bytes=-4"}).Expect(http.StatusPartialContent)
	require.Equal(t, "B-1\n", string(tail.Body))
	require.Equal(t, text, string(anonymous.Get(t, address, apitest.Header{Name: "Range", Value: "rows=1-2"}).Expect(http.StatusOK).Body), "an unknown unit is ignored")
	anonymous.Get(t, address, apitest.Header{Name: "Range", Value: "bytes=900000-"}).ExpectProblem(http.StatusRequestedRangeNotSatisfiable, "RANGE_NOT_SATISFIABLE", "")
	anonymous.Get(t, address, apitest.Header{Name: "If-None-Match", Value: whole.Header.Get("ETag")}).Expect(http.StatusNotModified)
	anonymous.Get(t, address, apitest.Header{Name: "If-Match", Value: `"x"`}).Expect(http.StatusPreconditionFailed)
	anonymous.Get(t, strings.Replace(address, "signature=", "signature=A", 1)).ExpectProblem(http.StatusForbidden, "FORBIDDEN", "")
	anonymous.Put(t, address, apitest.Raw("x"), contentType("text/csv")).Expect(http.StatusForbidden)

	// A package of another tenant gets the same answer as an unknown one.
	path := "/v1/stores/packages/" + started.Text("rawPackageId") + "/attachments"
	s.Tenant(t).As(t, identity.RoleAdmin).Get(t, path).ExpectProblem(http.StatusNotFound, "NOT_FOUND", "")
	c.Get(t, "/v1/stores/packages/"+uuid.NewString()+"/attachments").ExpectProblem(http.StatusNotFound, "NOT_FOUND", "")
	c.Get(t, "/v1/stores/packages/x/attachments").ExpectProblem(http.StatusNotFound, "NOT_FOUND", "")
	c.Get(t, path+"?page=1").Expect(http.StatusBadRequest)
	anonymous.Get(t, path).Expect(http.StatusUnauthorized)
	tenant.With(t, identity.ScopeBatchesRun).Get(t, path).Expect(http.StatusForbidden)
}

// If a file cannot be read completely, the download is aborted and the log has the error.
func TestInterruptedDownload(t *testing.T) {
	t.Parallel()
	log := &safeBuffer{}
	s := apitest.Start(t, func(c *server.Config) { c.Log = slog.New(logging.NewHandler(slog.NewJSONHandler(log, nil))) })
	c := s.Tenant(t).As(t, identity.RoleAdmin)
	publishBatchWorkflow(t, c)
	stored := uploadFile(t, c, "a.csv", "borrowerId\n"+strings.Repeat(strings.Repeat("B", 10_000)+"\n", 80))
	started := c.Post(t, "/v1/workflows/echo/v1/execute-batch", map[string]any{"attachmentFileNames": []string{stored}}).Expect(http.StatusAccepted)
	address := c.Get(t, "/v1/stores/packages/"+started.Text("rawPackageId")+"/attachments").Expect(http.StatusOK).Text("data[0].downloadUrl")
	awaitBatch(t, c, started.Text("executionBatchId"))
	_, err := s.Pool.Exec(t.Context(), `DELETE FROM attachment_chunks c USING attachment_uploads u
		WHERE u.id = c.upload_id AND u.attachment_id = (SELECT id FROM attachments WHERE stored_name = $1) AND c.position = 1`, stored)
	require.NoError(t, err)
	for i, part := range []string{"", "bytes=500000-", "bytes=0-9,700000-700009"} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
		require.NoError(t, err)
		if part != "" {
			request.Header.Set("Range", part)
		}
		response, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		_, err = io.Copy(io.Discard, response.Body)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF, part)
		require.NoError(t, response.Body.Close())
		require.Equal(t, i+1, strings.Count(log.String(), "read chunk 1 of attachment"), part)
	}
	unread := s.Anonymous().Get(t, address, apitest.Header{Name: "Range", Value: "bytes=700000-"})
	unread.ExpectProblem(http.StatusInternalServerError, "INTERNAL_ERROR", "")
	for _, name := range []string{"Content-Disposition", "Content-Range", "ETag", "Last-Modified"} {
		require.Empty(t, unread.Header.Get(name), "no header of the file in an error")
	}
}

func TestExecuteBatchErrors(t *testing.T) {
	t.Parallel()
	s := apitest.Start(t)
	tenant := s.Tenant(t)
	c := tenant.As(t, identity.RoleAdmin)
	publishBatchWorkflow(t, c)
	const path = "/v1/workflows/echo/v1/execute-batch"
	items := []any{map[string]any{"borrowerId": "B-1"}}
	stranger := s.Tenant(t).As(t, identity.RoleAdmin)
	foreign := uploadFile(t, stranger, "a.csv", "borrowerId\nB-1\n")
	announced := c.Post(t, uploadPath, map[string]any{"fileName": "a.csv"}).Expect(http.StatusCreated).Text("fileName")

	for name, request := range map[string]struct {
		body          any
		status        int
		code, subCode string
		fields        []string
	}{
		"no source":             {map[string]any{"label": "x"}, 400, "VALIDATION_ERROR", "MISSING_REQUIRED_FIELD", []string{"workflowInput.items"}},
		"empty sources":         {map[string]any{"attachmentFileNames": []any{}, "workflowInput": map[string]any{"items": []any{}, "rawPackageIds": []any{}}}, 400, "VALIDATION_ERROR", "MISSING_REQUIRED_FIELD", nil},
		"items not objects":     {map[string]any{"workflowInput": map[string]any{"items": []any{map[string]any{}, map[string]any{}, 3, "x"}}}, 400, "VALIDATION_ERROR", "INVALID_FIELD_TYPE", []string{"workflowInput.items[2]", "workflowInput.items[3]"}},
		"items not an array":    {map[string]any{"workflowInput": map[string]any{"items": map[string]any{}}}, 400, "VALIDATION_ERROR", "INVALID_FIELD_TYPE", []string{"workflowInput.items"}},
		"custom not an object":  {map[string]any{"workflowInput": map[string]any{"items": items, "customInput": 1}}, 400, "VALIDATION_ERROR", "INVALID_FIELD_TYPE", []string{"workflowInput.customInput"}},
		"unknown members":       {map[string]any{"labels": "x", "workflowInput": map[string]any{"items": items, "item": 1}}, 400, "VALIDATION_ERROR", "", []string{"labels", "workflowInput.item"}},
		"label too long":        {map[string]any{"label": strings.Repeat("x", 201), "workflowInput": map[string]any{"items": items}}, 400, "VALIDATION_ERROR", "", []string{"label"}},
		"too many files":        {map[string]any{"attachmentFileNames": make([]string, 101)}, 400, "VALIDATION_ERROR", "", []string{"attachmentFileNames"}},
		"file not text":         {map[string]any{"attachmentFileNames": []any{1}}, 400, "VALIDATION_ERROR", "INVALID_FIELD_TYPE", []string{"attachmentFileNames[0]"}},
		"unknown file":          {map[string]any{"attachmentFileNames": []any{"x.csv"}}, 404, "NOT_FOUND", "", []string{"attachmentFileNames[0]"}},
		"file not uploaded yet": {map[string]any{"attachmentFileNames": []any{announced}}, 404, "NOT_FOUND", "", []string{"attachmentFileNames[0]"}},
		"another tenant's file": {map[string]any{"attachmentFileNames": []any{foreign}}, 404, "NOT_FOUND", "", []string{"attachmentFileNames[0]"}},
		"unknown package":       {map[string]any{"workflowInput": map[string]any{"rawPackageIds": []any{uuid.NewString(), "x"}}}, 404, "NOT_FOUND", "", []string{"workflowInput.rawPackageIds[0]", "workflowInput.rawPackageIds[1]"}},
		"NUL":                   {apitest.Raw(`{"workflowInput":{"items":[{"a":"\u0000"}]}}`), 400, "VALIDATION_ERROR", "", nil},
		"duplicate key":         {apitest.Raw(`{"workflowInput":{"items":[{"a":1,"a":2}]}}`), 400, "VALIDATION_ERROR", "", nil},
		"no body":               {nil, 400, "VALIDATION_ERROR", "MISSING_REQUIRED_FIELD", []string{"body"}},
		"too large":             {apitest.Raw(`{"label":"` + strings.Repeat("x", 20<<20) + `"}`), 413, "PAYLOAD_TOO_LARGE", "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.Post(t, path, request.body).ExpectProblem(request.status, request.code, request.subCode, request.fields...)
		})
	}
	body := map[string]any{"workflowInput": map[string]any{"items": items}}
	for _, unknown := range []string{"/v1/workflows/echo/v2/", "/v1/workflows/other/v1/", "/v1/workflows/echo/1/"} {
		c.Post(t, unknown+"execute-batch", body).ExpectProblem(http.StatusNotFound, "NOT_FOUND", "")
	}
	stranger.Post(t, path, body).ExpectProblem(http.StatusNotFound, "NOT_FOUND", "")
	s.Anonymous().Post(t, path, body).Expect(http.StatusUnauthorized)
	tenant.With(t, identity.ScopeExecutionsRun).Post(t, path, body).Expect(http.StatusForbidden)

	t.Cleanup(func() { // runs after the parallel cases
		var rows int
		require.NoError(t, s.Pool.QueryRow(context.Background(), "SELECT (SELECT count(*) FROM execution_batches) + (SELECT count(*) FROM packages) + (SELECT count(*) FROM river.river_job WHERE kind LIKE 'batch%')").Scan(&rows))
		require.Zero(t, rows, "a rejected request stores nothing")
	})
}

func testBatchesExecuteRequiresActiveWorkflow(t *testing.T, s *apitest.Service) {
	t.Helper()
	c := s.Tenant(t).As(t, identity.RoleAdmin)
	id := c.Post(t, "/v2/workflows", apitest.Raw(batchWorkflow)).Expect(http.StatusCreated).Text("id")
	body := map[string]any{"workflowInput": map[string]any{"items": []any{map[string]any{"borrowerId": "B-1"}}}}
	const path = "/v1/workflows/echo/v1/execute-batch"
	c.Post(t, path, body).ExpectProblem(http.StatusConflict, "CONFLICT", "INVALID_WORKFLOW_STATUS")
	c.Post(t, "/v2/workflows/"+id+"/publish", nil).Expect(http.StatusOK)
	started := c.Post(t, path, body).Expect(http.StatusAccepted)
	require.Equal(t, id, started.Text("workflowId"))
	require.Nil(t, started.Value("rawPackageId"))
	c.Post(t, "/v2/workflows/"+id+"/archive", nil).Expect(http.StatusOK)
	c.Post(t, path, body).ExpectProblem(http.StatusConflict, "CONFLICT", "INVALID_WORKFLOW_STATUS")
	// A batch that was accepted before continues.
	record := awaitBatch(t, c, started.Text("executionBatchId"))
	require.Equal(t, "complete", record.Text("status"))
	require.Equal(t, "echo", record.Text("label"))
	c.Delete(t, "/v2/workflows/"+id).Expect(http.StatusConflict)
}

func testBatchesGetErrors(t *testing.T, s *apitest.Service) {
	t.Helper()
	tenant := s.Tenant(t)
	c := tenant.As(t, identity.RoleAdmin)
	publishBatchWorkflow(t, c)
	id := c.Post(t, "/v1/workflows/echo/v1/execute-batch", map[string]any{"workflowInput": map[string]any{"items": []any{map[string]any{}}}}).
		Expect(http.StatusAccepted).Text("executionBatchId")
	awaitBatch(t, c, id)
	path := "/v1/execution-batches/" + id
	unknown := s.Tenant(t).As(t, identity.RoleAdmin).Get(t, path).ExpectProblem(http.StatusNotFound, "NOT_FOUND", "")
	for _, wrong := range []string{uuid.NewString(), "x", strings.ToUpper(id), strings.ReplaceAll(id, "-", ""), "{" + id + "}", "0"} {
		problem := c.Get(t, "/v1/execution-batches/"+wrong).ExpectProblem(http.StatusNotFound, "NOT_FOUND", "")
		require.Equal(t, unknown.Message, problem.Message)
	}
	c.Get(t, path+"?x=1").ExpectProblem(http.StatusBadRequest, "VALIDATION_ERROR", "", "x")
	c.Delete(t, path).Expect(http.StatusMethodNotAllowed)
	s.Anonymous().Get(t, path).Expect(http.StatusUnauthorized)
	tenant.With(t, identity.ScopeExecutionsRead).Get(t, path).Expect(http.StatusForbidden)
}

func testBatchesList(t *testing.T, s *apitest.Service) {
	t.Helper()
	tenant := s.Tenant(t)
	c := tenant.As(t, identity.RoleAdmin)
	publishBatchWorkflow(t, c)
	const path = "/v1/execution-batches"
	require.Equal(t, "[]", c.Get(t, path).Expect(http.StatusOK).Text("data"))
	var ids []string
	for range 3 {
		id := c.Post(t, "/v1/workflows/echo/v1/execute-batch", map[string]any{"workflowInput": map[string]any{"items": []any{map[string]any{}}}}).
			Expect(http.StatusAccepted).Text("executionBatchId")
		awaitBatch(t, c, id)
		ids = append(ids, id)
	}
	page := c.Get(t, path+"?per-page=2&status=complete&workflow-alias=echo").Expect(http.StatusOK)
	require.Equal(t, []string{ids[2], ids[1]}, []string{page.Text("data[0].executionBatchId"), page.Text("data[1].executionBatchId")})
	require.Equal(t, `{"page":1,"perPage":2,"total":3,"totalPages":2}`, page.Text("pagination"))
	first := c.Get(t, path+"?per-page=2&cursor=").Expect(http.StatusOK)
	second := c.Get(t, path+"?per-page=2&cursor="+first.Text("pagination.nextCursor")).Expect(http.StatusOK)
	require.Equal(t, ids[0], second.Text("data[0].executionBatchId"))
	for _, none := range []string{"?status=paused", "?workflow-alias=other", "?page=9"} {
		require.Equal(t, "[]", c.Get(t, path+none).Expect(http.StatusOK).Text("data"), none)
	}
	for _, wrong := range []string{"?page=0", "?per-page=101", "?per-page=x", "?status=done", "?cursor=x", "?x=1", "?page=1&page=2", "?page=1&cursor="} {
		c.Get(t, path+wrong).Expect(http.StatusBadRequest)
	}
	require.Equal(t, "[]", s.Tenant(t).As(t, identity.RoleAdmin).Get(t, path).Expect(http.StatusOK).Text("data"))
	s.Anonymous().Get(t, path).Expect(http.StatusUnauthorized)
	tenant.With(t, identity.ScopeBatchesRun).Get(t, path).Expect(http.StatusForbidden)
}

// Items of a batch of a sandbox client are tests.
func testBatchesSandboxBatchIsTest(t *testing.T, s *apitest.Service) {
	t.Helper()
	c := s.Tenant(t).Sandbox(t, identity.RoleAdmin)
	publishBatchWorkflow(t, c)
	id := c.Post(t, "/v1/workflows/echo/v1/execute-batch", map[string]any{"workflowInput": map[string]any{"items": []any{map[string]any{"borrowerId": "B-1"}}}}).
		Expect(http.StatusAccepted).Text("executionBatchId")
	awaitBatch(t, c, id)
	var isTest bool
	var borrower, principal string
	require.NoError(t, s.Pool.QueryRow(t.Context(), "SELECT is_test, borrower_id, principal_id FROM executions WHERE batch_id = $1", id).Scan(&isTest, &borrower, &principal))
	require.True(t, isTest)
	require.Equal(t, "B-1", borrower)
	require.Equal(t, c.ClientID, principal)
}

// The result contains the files that the end task names.
func testBatchesResultAttachments(t *testing.T, s *apitest.Service) {
	t.Helper()
	c := s.Tenant(t).As(t, identity.RoleAdmin)
	stored := uploadFile(t, c, "terms.csv", "rate\n4.50\n")
	foreign := uploadFile(t, s.Tenant(t).As(t, identity.RoleAdmin), "terms.csv", "rate\n9.99\n")
	id := c.Post(t, "/v2/workflows", apitest.Raw(`{"name": "Terms", "alias": "terms", "inputSchema": {"type": "object"},
		"tasks": [{"id": "done", "type": "end", "config": {"output": {}, "attachments": [
			{"fileName": "`+stored+`", "metadata": {"rate": 4.50}}, {"fileName": "`+foreign+`"}, {"fileName": "unknown.csv"}]}}], "edges": []}`)).Expect(http.StatusCreated).Text("id")
	c.Post(t, "/v2/workflows/"+id+"/publish", nil).Expect(http.StatusOK)
	result := c.Post(t, "/v1/workflows/terms/v1/execute", map[string]any{}).Expect(http.StatusOK)
	output := c.Get(t, "/v1/executions/"+result.Text("executionId")+"/output").Expect(http.StatusOK)
	for _, answer := range []*apitest.Answer{result, output} {
		require.Len(t, answer.Value("attachments"), 1)
		require.Equal(t, "csv", answer.Text("attachments[0].fileExtension"))
		require.Equal(t, `{"rate":4.50}`, answer.Text("attachments[0].metadata"))
		require.Len(t, answer.Value("notices"), 2)
		require.Equal(t, result.Text("notices"), answer.Text("notices"))
		for i, notice := range []string{"notices[0].", "notices[1]."} {
			require.Equal(t, "ATTACHMENT_MISSING", answer.Text(notice+"code"))
			require.Equal(t, "warning", answer.Text(notice+"level"))
			require.Equal(t, fmt.Sprintf("attachments[%d] of the end task does not name a stored file and is left out", i+1), answer.Text(notice+"message"))
		}
		require.Equal(t, "rate\n4.50\n", string(s.Anonymous().Get(t, answer.Text("attachments[0].url")).Expect(http.StatusOK).Body))
	}
}
