package httpapi

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"

	"tranche/internal/exactjson"
	"tranche/internal/fault"
)

// ContentTypeJSON is the type of bodies and answers.
const ContentTypeJSON = "application/json"

// bodyTimeMaxDefault is how long a body may take to arrive before 408.
const bodyTimeMaxDefault = 30 * time.Second

// Limits for draining a rejected body.
const (
	drainBytesMax = 32 << 20
	drainTimeMax  = 5 * time.Second
)

// WholeBody is the field of a detail about the body as a whole.
const WholeBody = "body"

type bodyKey struct{}

// RequestBody returns the body of the request as an exactjson value. It is nil if
// there is none.
func RequestBody(ctx context.Context) any { return ctx.Value(bodyKey{}) }

// readBody reads the body within the limits of the operation and checks that it is
// strict JSON that matches the declared schema.
func (s *Server) readBody(ctx huma.Context, next func(huma.Context)) {
	if method := ctx.Method(); method == http.MethodGet || method == http.MethodHead || method == http.MethodDelete {
		next(ctx) // a body has no meaning there and is ignored (RFC 9110, 9.3)
		return
	}
	r, w := humachi.Unwrap(ctx)
	op := ctx.Operation()
	limit := cmp.Or(declared(op).BodyMax, BodyMaxDefault)
	release, err := s.acquireBody(ctx.Context(), w, r, limit)
	if err != nil {
		s.reject(ctx, err)
		return
	}
	defer release()
	text, err := s.receive(w, r, limit)
	if err == nil {
		err = checkContentType(r, text)
	}
	var value any
	if err == nil {
		value, err = s.decodeBody(op, text)
	}
	if err != nil {
		s.reject(ctx, err)
		return
	}
	next(&bodyContext{
		humaContext: ctx,
		reader:      bytes.NewReader(text),
		ctx:         context.WithValue(ctx.Context(), bodyKey{}, value),
	})
}

// receive reads a body of at most limit bytes within bodyTimeMax.
func (s *Server) receive(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	tooLarge := fault.New(fault.TooLarge, "the body is larger than %d bytes", limit)
	if r.ContentLength > limit {
		drainUnlessExpecting(w, r)
		return nil, tooLarge
	}
	// A ResponseWriter of a test has no deadlines. The limit in bytes holds anyway.
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(s.bodyTimeMax))
	var text bytes.Buffer
	if r.ContentLength > 0 {
		text.Grow(int(r.ContentLength))
	}
	n, err := io.Copy(&text, io.LimitReader(r.Body, limit+1))
	var timeout net.Error
	switch {
	case n > limit:
		drain(w, r)
		return nil, tooLarge
	case errors.As(err, &timeout) && timeout.Timeout():
		w.Header().Set("Connection", "close") // otherwise the server waits for the rest
		return nil, fault.Wrap(err, fault.Timeout, "the body took longer than %d s to arrive", int(s.bodyTimeMax.Seconds()))
	case err != nil:
		return nil, fault.Wrap(err, fault.Invalid, "the body ended before its announced length")
	}
	_ = control.SetReadDeadline(time.Time{}) // the handler may take longer
	return text.Bytes(), nil
}

// drainUnlessExpecting drains a body that is rejected before it was read. A client
// that sent Expect has not begun to send it.
func drainUnlessExpecting(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Expect") == "" {
		drain(w, r)
	}
}

// drain reads and discards the rest of a rejected body within limits. Without it, a
// client that sends the whole body before it reads would see a closed connection
// instead of the error.
func drain(w http.ResponseWriter, r *http.Request) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(drainTimeMax))
	_, _ = io.CopyN(io.Discard, r.Body, drainBytesMax)
}

// checkContentType accepts JSON in UTF-8. A missing type counts as JSON, and the
// type of an empty body is ignored (contract 1.4).
func checkContentType(r *http.Request, text []byte) error {
	header := r.Header.Get("Content-Type")
	if len(text) == 0 || header == "" {
		return nil
	}
	kind, parameters, err := mime.ParseMediaType(header)
	charset, given := parameters["charset"]
	if err != nil || kind != ContentTypeJSON || given && !strings.EqualFold(charset, "utf-8") {
		return fault.New(fault.UnsupportedMedia, "the Content-Type must be %s in UTF-8", ContentTypeJSON)
	}
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return fault.New(fault.UnsupportedMedia, "the body must not have a Content-Encoding")
	}
	return nil
}

// decodeBody returns the value of a body, or all its errors.
func (s *Server) decodeBody(op *huma.Operation, text []byte) (any, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		if op.RequestBody != nil && op.RequestBody.Required {
			return nil, fault.InvalidRequest(fault.Detail{Field: WholeBody, Message: "is required", SubCode: fault.MissingRequiredField})
		}
		return nil, nil
	}
	value, err := exactjson.Decode(text)
	if err != nil {
		detail := fault.Detail{Field: WholeBody, Message: "must be JSON"}
		if malformed, ok := errors.AsType[*exactjson.Error](err); ok {
			detail.Message = malformed.Message
			detail.Field = cmp.Or(malformed.Path, WholeBody)
		}
		return nil, fault.New(fault.Invalid, "the body is not valid JSON").WithDetails(detail)
	}
	schema := emptyObject()
	if op.RequestBody != nil {
		schema = op.RequestBody.Content[ContentTypeJSON].Schema
	}
	details := s.validate(schema, value)
	inspect := declared(op).Inspect
	if members, isObject := value.(map[string]any); isObject && inspect != nil {
		details = merge(details, inspect(members))
	}
	if len(details) > 0 {
		return nil, fault.InvalidRequest(details...)
	}
	return value, nil
}

// merge adds the details whose fields are not reported yet.
func merge(details, more []fault.Detail) []fault.Detail {
	reported := map[string]bool{}
	for _, d := range details {
		reported[d.Field] = true
	}
	for _, d := range more {
		if !reported[d.Field] {
			details = append(details, d)
		}
	}
	return details
}

// emptyObject is the schema of the body of operations without one. They accept an
// empty object.
func emptyObject() *huma.Schema {
	return &huma.Schema{Type: huma.TypeObject, AdditionalProperties: false}
}

// humaContext renames huma.Context, because an embedded Context would hide its
// method of that name.
type humaContext huma.Context

// bodyContext gives Huma the body that has been read.
type bodyContext struct {
	humaContext
	ctx    context.Context
	reader io.Reader
}

func (c *bodyContext) Context() context.Context { return c.ctx }
func (c *bodyContext) BodyReader() io.Reader    { return c.reader }
func (c *bodyContext) Unwrap() huma.Context     { return c.humaContext }

// Header reports JSON as the Content-Type, which has been checked.
func (c *bodyContext) Header(name string) string {
	if strings.EqualFold(name, "Content-Type") {
		return ContentTypeJSON
	}
	return c.humaContext.Header(name)
}
