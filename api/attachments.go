package api

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"

	"tranche/internal/fault"
	"tranche/internal/httpapi"
	"tranche/internal/postgres"
	"tranche/internal/storage"
	"tranche/internal/workflow"
	"tranche/queries"
)

const (
	// transferPauseMax is how long a transfer may pause. transferTimeMax limits the
	// duration of an upload.
	transferPauseMax = 30 * time.Second
	transferTimeMax  = time.Hour
)

const attachmentPath = storage.AddressPath + "{attachmentId}"

// attachmentRoutes registers the operations of signed URLs. They stream, which Huma
// does not support.
func attachmentRoutes(s *Server) {
	stored := s.http.Schemas().Schema(reflect.TypeFor[StoredAttachment](), true, "")
	httpapi.RegisterRaw(s.http, httpapi.Operation{
		ID: "uploadAttachment", Method: http.MethodPut, Path: attachmentPath, Tag: "Stores",
		Summary: "Upload a file",
		Description: "Stores a file at a URL that `generate-upload-signed-url` returned. `Content-Length` is required, and `Content-Type` must be the " +
			"type that was returned with the URL. The first complete upload is stored. If you upload the same bytes again, you get the same " +
			"response; other bytes get 409. An interrupted upload stores nothing. A file accepts 200 requests per minute.",
		Errors: []int{http.StatusForbidden, http.StatusNotFound, http.StatusConflict},
	}, huma.Operation{
		Parameters: signedParameters(),
		RequestBody: &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
			"*/*": {Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}},
		}},
		Responses: map[string]*huma.Response{"200": {
			Description: "The file is stored.",
			Content: map[string]*huma.MediaType{httpapi.ContentTypeJSON: {Schema: stored, Example: json.RawMessage(
				`{"attachmentId":"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11","fileName":"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11.csv","contentType":"text/csv","size":48213,"sha256":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}`)}},
		}},
	}, s.uploadAttachment)
	httpapi.RegisterRaw(s.http, httpapi.Operation{
		ID: "downloadAttachment", Method: http.MethodGet, Path: attachmentPath, Tag: "Stores",
		Summary:     "Download a file",
		Description: "Returns the bytes of a file at a download URL of a package. Range requests are supported. A file accepts 200 requests per minute.",
		Errors:      []int{http.StatusForbidden, http.StatusNotFound, http.StatusPreconditionFailed, http.StatusRequestedRangeNotSatisfiable},
	}, huma.Operation{
		Parameters: signedParameters(),
		Responses: map[string]*huma.Response{
			"200": {Description: "The file.", Content: downloadContent()},
			"206": {Description: "The range of the file that `Range` names.", Content: downloadContent()},
			"304": {Description: "The file has the ETag in `If-None-Match`."},
		},
	}, s.downloadAttachment)
}

func signedParameters() []*huma.Param {
	parameters := []*huma.Param{{
		Name: "attachmentId", In: "path", Required: true, Description: "The id of the file.",
		Schema: &huma.Schema{Type: huma.TypeString},
	}}
	for _, p := range []struct{ name, description string }{
		{"tenant", "Part of the signed URL: the tenant."},
		{"name", "Part of the signed URL: the stored name."},
		{"type", "Part of the signed URL: the Content-Type."},
		{"size", "Part of the signed URL: the maximum size in bytes."},
		{"expires", "Part of the signed URL: the time at which it expires, in Unix seconds."},
		{"signature", "The HMAC of the method and the signed URL."},
	} {
		parameters = append(parameters, &huma.Param{
			Name: p.name, In: "query", Required: true, Description: p.description, Schema: &huma.Schema{Type: huma.TypeString},
		})
	}
	return parameters
}

func downloadContent() map[string]*huma.MediaType {
	content := map[string]*huma.MediaType{
		httpapi.ContentTypeJSON: {Schema: &huma.Schema{Description: "A manifest."}, Example: json.RawMessage(`{"counts":{"total":2000,"completed":1961,"failed":39,"pending":0}}`)},
	}
	for _, kind := range []string{
		"text/csv", "text/tab-separated-values", "application/gzip", "application/jsonl", "multipart/byteranges",
		"application/pdf", "image/png", "image/jpeg", "image/tiff", "text/plain",
	} {
		content[kind] = &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}, Example: "borrowerId,income\nB-1001,54000.00\n"}
	}
	return content
}

// granted verifies the signed URL of a request and counts the request against the rate
// limit of the file.
func (s *Server) granted(r *http.Request, action storage.Action) (storage.Grant, error) {
	grant, err := s.config.Signer.Verify(action, chi.URLParam(r, "attachmentId"), r.URL.Query())
	if err != nil {
		return storage.Grant{}, err
	}
	if err := s.config.Identity.CheckTenant(r.Context(), grant.TenantID); err != nil {
		return storage.Grant{}, err
	}
	return grant, s.config.Identity.AdmitAddress(r.Context(), grant.AttachmentID)
}

func (s *Server) uploadAttachment(w http.ResponseWriter, r *http.Request) error {
	grant, err := s.granted(r, storage.ActionUpload)
	if err != nil {
		return err
	}
	if err := checkUpload(r, &grant); err != nil {
		return err
	}
	source := &uploadReader{body: r.Body, control: http.NewResponseController(w), clock: s.config.HTTP.Clock, until: s.config.HTTP.Clock().Add(transferTimeMax)}
	a, err := s.config.Store.Put(postgres.WithTenant(r.Context(), grant.TenantID), grant.TenantID, grant.AttachmentID, r.ContentLength, source)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", httpapi.ContentTypeJSON)
	return json.NewEncoder(w).Encode(StoredAttachment{
		AttachmentID: a.ID.String(), FileName: a.StoredName, ContentType: a.ContentType, Size: a.Size, SHA256: hex.EncodeToString(a.SHA256),
	})
}

// checkUpload checks the headers of an upload before the body is read.
func checkUpload(r *http.Request, grant *storage.Grant) error {
	switch encoding := r.Header.Get("Content-Encoding"); {
	case r.Header.Get("Content-Type") != grant.ContentType:
		return fault.New(fault.UnsupportedMedia, "the Content-Type must be %s", grant.ContentType)
	case encoding != "" && !strings.EqualFold(encoding, "identity"):
		return fault.New(fault.UnsupportedMedia, "the body must not have a Content-Encoding")
	case r.ContentLength < 0 || r.ContentLength == 0 && r.Header.Get("Content-Length") == "":
		return fault.InvalidRequest(fault.Detail{Field: "Content-Length", Message: "is required", SubCode: fault.MissingRequiredField})
	case r.ContentLength > grant.SizeMax:
		return fault.New(fault.TooLarge, "the file is larger than %d bytes", grant.SizeMax)
	default:
		return nil
	}
}

// uploadReader reads a body and fails if the sender pauses for too long.
type uploadReader struct {
	body    io.Reader
	control *http.ResponseController
	clock   func() time.Time
	until   time.Time
}

// Read implements io.Reader.
func (u *uploadReader) Read(p []byte) (int, error) {
	now := u.clock()
	if now.After(u.until) {
		return 0, fault.New(fault.Timeout, "the upload took longer than %d minutes", int(transferTimeMax.Minutes()))
	}
	_ = u.control.SetReadDeadline(now.Add(transferPauseMax)) // writers of tests have no deadlines
	n, err := u.body.Read(p)
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		err = fault.Wrap(err, fault.Timeout, "the upload received no data for %d s", int(transferPauseMax.Seconds()))
	}
	return n, err
}

func (s *Server) downloadAttachment(w http.ResponseWriter, r *http.Request) error {
	grant, err := s.granted(r, storage.ActionDownload)
	if err != nil {
		return err
	}
	file, err := s.config.Store.Open(postgres.WithTenant(r.Context(), grant.TenantID), grant.TenantID, grant.AttachmentID)
	if err != nil {
		return err
	}
	header := w.Header()
	header.Set("Content-Type", file.ContentType)
	header.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": file.FileName}))
	header.Set("Content-Security-Policy", "sandbox")
	header.Set("ETag", `"`+hex.EncodeToString(file.SHA256)+`"`)
	out := &downloadWriter{ResponseWriter: w, control: http.NewResponseController(w), clock: s.config.HTTP.Clock}
	if unit, _, _ := strings.Cut(r.Header.Get("Range"), "="); unit != "bytes" {
		r.Header.Del("Range") // an unknown unit is ignored (RFC 9110, 14.2)
	}
	source := &downloadReader{ReadSeeker: file}
	http.ServeContent(out, r, "", file.CreatedAt, source)
	switch {
	case out.delayed >= http.StatusBadRequest:
		return s.downloadProblem(r, header, out.delayed)
	case source.err == nil:
		out.begin() // an answer without a body
	case out.delayed != 0:
		for _, name := range []string{"Content-Disposition", "Content-Length", "Content-Range", "ETag", "Last-Modified"} {
			header.Del(name)
		}
		return source.err
	case r.Context().Err() == nil:
		s.config.HTTP.Log.ErrorContext(r.Context(), "download aborted", "error", source.err)
	}
	return nil
}

// downloadProblem returns the problem for a status that http.ServeContent answered.
func (s *Server) downloadProblem(r *http.Request, header http.Header, status int) error {
	header.Del("Content-Disposition")
	header.Del("Content-Length")
	switch status {
	case http.StatusPreconditionFailed:
		return fault.New(fault.Stale, "the file does not match the If-Match or If-Unmodified-Since header")
	case http.StatusRequestedRangeNotSatisfiable:
		return s.http.Problem(r.Context(), fault.New(fault.Invalid, "the file does not have the range of bytes that Range names")).
			WithStatus(status, "RANGE_NOT_SATISFIABLE")
	default:
		return fault.New(fault.Internal, "the file cannot be read")
	}
}

// downloadReader keeps the error of a read, which http.ServeContent does not return.
type downloadReader struct {
	io.ReadSeeker
	err error
}

// Read implements io.Reader.
func (d *downloadReader) Read(p []byte) (int, error) {
	n, err := d.ReadSeeker.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		d.err = err
	}
	return n, err
}

// downloadWriter fails if the receiver pauses for too long. It delays the status until
// the first byte of the file, so that errors can still be answered with a problem.
type downloadWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	clock   func() time.Time
	delayed int // the status; 0 if it has been sent
}

// WriteHeader implements http.ResponseWriter.
func (d *downloadWriter) WriteHeader(status int) { d.delayed = status }

func (d *downloadWriter) begin() {
	if d.delayed != 0 {
		d.ResponseWriter.WriteHeader(d.delayed)
		d.delayed = 0
	}
}

// Write implements http.ResponseWriter.
func (d *downloadWriter) Write(p []byte) (int, error) {
	if d.delayed >= http.StatusBadRequest {
		return len(p), nil
	}
	d.begin()
	_ = d.control.SetWriteDeadline(d.clock().Add(transferPauseMax)) // writers of tests have no deadlines
	return d.ResponseWriter.Write(p)
}

// noticeFileMissing is the code of the notice for a file of a result that does not exist.
const noticeFileMissing = "ATTACHMENT_MISSING"

// resultFiles returns the stored files of a result with download URLs (contract 5.8).
// A missing file is left out and reported by a notice. The notice has the time of the
// execution, so that every request returns the same notice.
func (s *Server) resultFiles(ctx context.Context, id uuid.UUID, named []workflow.Attachment) (files []ExecutionFile, notices []workflow.Notice, err error) {
	names := make([]string, len(named))
	for i, a := range named {
		names[i] = a.FileName
	}
	files = []ExecutionFile{}
	if len(names) == 0 {
		return files, nil, nil
	}
	stored, err := s.config.Store.Stored(ctx, s.config.Pool, httpapi.Principal(ctx).TenantID, names)
	if err != nil {
		return nil, nil, err
	}
	for i, a := range named {
		file, ok := stored[a.FileName]
		if !ok {
			notices = append(notices, workflow.Notice{
				Code: noticeFileMissing, Level: workflow.LevelWarning, CreatedAt: queries.CreatedAt(id),
				Message: fmt.Sprintf("attachments[%d] of the end task does not name a stored file and is left out", i),
			})
			continue
		}
		address, _ := s.config.Signer.DownloadURL(file)
		_, extension, _ := strings.Cut(file.StoredName, ".")
		files = append(files, ExecutionFile{URL: address, FileExtension: extension, Metadata: JSONObject{a.Metadata}})
	}
	return files, notices, nil
}
