package api

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

const jsonType = "application/json"

// bodyTimeMaxDefault is how long a body may take to arrive before 408.
const bodyTimeMaxDefault = 30 * time.Second

// What is taken in of a body after it was found too large.
const (
	drainBytesMax = 32 << 20
	drainTimeMax  = 5 * time.Second
)

// wholeBody names the body as a whole in details.
const wholeBody = "body"

type bodyKey struct{}

// body returns the request's body as an exactjson value; nil without a body.
func body(ctx context.Context) any { return ctx.Value(bodyKey{}) }

// readBody reads the body within the operation's limits, checks that it is
// strict JSON that matches the declared schema, and passes it on.
func (s *Server) readBody(ctx huma.Context, next func(huma.Context)) {
	if method := ctx.Method(); method == http.MethodGet || method == http.MethodHead || method == http.MethodDelete {
		next(ctx) // a body has no meaning there (RFC 9110, 9.3) and is not looked at
		return
	}
	r, w := humachi.Unwrap(ctx)
	op := ctx.Operation()
	limit := cmp.Or(declared(op).bodyMax, bodyMaxDefault)
	leave, err := s.acquireForBody(ctx.Context(), w, r, limit)
	if err != nil {
		s.refuse(ctx, s.problem(ctx.Context(), err))
		return
	}
	defer leave()
	text, err := s.receive(w, r, limit)
	if err == nil {
		err = checkContentType(r, text)
	}
	var value any
	if err == nil {
		value, err = s.decodeBody(op, text)
	}
	if err != nil {
		s.refuse(ctx, s.problem(ctx.Context(), err))
		return
	}
	next(&bodyContext{
		humaContext: ctx,
		reader:      bytes.NewReader(text),
		ctx:         context.WithValue(ctx.Context(), bodyKey{}, value),
	})
}

// acquireForBody waits until the memory limit of the tenant admits a large body, before
// the body is read.
func (s *Server) acquireForBody(ctx context.Context, w http.ResponseWriter, r *http.Request, limit int64) (release func(), err error) {
	bytes := r.ContentLength
	if bytes < 0 || bytes > limit {
		bytes = limit // or less: it does not say, or is refused
	}
	if bytes <= smallBytesMax {
		return func() {}, nil
	}
	release, err = s.acquire(ctx, s.bodies, bytes, "requests with large bodies")
	if err != nil && ctx.Err() == nil {
		dismiss(w, r)
	}
	return release, err
}

// receive reads a body of at most limit bytes within bodyTimeMax.
func (s *Server) receive(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	tooLarge := fault.New(fault.TooLarge, "the body is larger than %d bytes", limit)
	if r.ContentLength > limit {
		dismiss(w, r)
		return nil, tooLarge
	}
	// Not every ResponseWriter has deadlines (those of tests have none); the
	// limit in bytes holds regardless.
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
		w.Header().Set("Connection", "close") // or the server would wait for the rest
		return nil, fault.Wrap(err, fault.Timeout, "the body took longer than %d s to arrive", int(s.bodyTimeMax.Seconds()))
	case err != nil:
		return nil, fault.Wrap(err, fault.Invalid, "the body could not be read to its end")
	}
	// The handler may take longer than the body; register has Huma do the same.
	_ = control.SetReadDeadline(time.Time{})
	return text.Bytes(), nil
}

// dismiss takes in a body that is refused unseen, unless its caller waits to be told
// before sending it.
func dismiss(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Expect") == "" {
		drain(w, r)
	}
}

// drain takes in what is left of a body that is refused, within limits: a
// caller who sends it all before reading would find the connection cut, and not
// the answer that says why.
func drain(w http.ResponseWriter, r *http.Request) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(drainTimeMax))
	_, _ = io.CopyN(io.Discard, r.Body, drainBytesMax)
}

// checkContentType wants JSON in UTF-8. A missing type counts as JSON, and
// where there is no body its type does not matter (decisions 1.4).
func checkContentType(r *http.Request, text []byte) error {
	header := r.Header.Get("Content-Type")
	if len(text) == 0 || header == "" {
		return nil
	}
	kind, parameters, err := mime.ParseMediaType(header)
	charset, given := parameters["charset"]
	if err != nil || kind != jsonType || given && !strings.EqualFold(charset, "utf-8") {
		return fault.New(fault.UnsupportedMedia, "the body must be %s in UTF-8", jsonType)
	}
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return fault.New(fault.UnsupportedMedia, "the body must not have a Content-Encoding")
	}
	return nil
}

// decodeBody returns the value of a body, or all that is wrong with it.
func (s *Server) decodeBody(op *huma.Operation, text []byte) (any, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		if op.RequestBody != nil && op.RequestBody.Required {
			return nil, fault.InvalidRequest(fault.Detail{Field: wholeBody, Message: "is required", SubCode: fault.MissingRequiredField})
		}
		return nil, nil
	}
	value, err := exactjson.Decode(text)
	if err != nil {
		detail := fault.Detail{Field: wholeBody, Message: "must be JSON"}
		if malformed, ok := errors.AsType[*exactjson.Error](err); ok {
			detail.Message = malformed.Message
			if malformed.Path != "" {
				detail.Field = malformed.Path
			}
		}
		return nil, fault.New(fault.Invalid, "the body is not acceptable JSON").WithDetails(detail)
	}
	schema := emptyObject()
	if op.RequestBody != nil {
		schema = op.RequestBody.Content[jsonType].Schema
	}
	details := s.validate(schema, value)
	inspect := declared(op).inspect
	if members, isObject := value.(map[string]any); isObject && inspect != nil {
		details = merge(details, inspect(members))
	}
	if len(details) > 0 {
		return nil, fault.InvalidRequest(details...)
	}
	return value, nil
}

// merge adds the details whose fields have not been named yet.
func merge(details, more []fault.Detail) []fault.Detail {
	named := map[string]bool{}
	for _, d := range details {
		named[d.Field] = true
	}
	for _, d := range more {
		if !named[d.Field] {
			details = append(details, d)
		}
	}
	return details
}

// emptyObject is the schema of the body of operations that take none: an
// empty object is let pass.
func emptyObject() *huma.Schema {
	return &huma.Schema{Type: huma.TypeObject, AdditionalProperties: false}
}

// humaContext is embedded under another name than Context, which is one of
// its methods.
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

// Header says that the body is JSON, which it has been checked to be.
func (c *bodyContext) Header(name string) string {
	if strings.EqualFold(name, "Content-Type") {
		return jsonType
	}
	return c.humaContext.Header(name)
}
