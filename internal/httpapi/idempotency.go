package httpapi

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"tranche/internal/exactjson"
	"tranche/internal/fault"
	"tranche/internal/idempotency"
)

const (
	idempotencyKeyHeader      = "Idempotency-Key"
	idempotencyReplayedHeader = "Idempotency-Replayed"
	idempotencyKeyMax         = 255 // characters
)

// KeyConflicts are the kinds of error that an idempotent operation returns for a
// key that it cannot replay.
type KeyConflicts struct {
	OtherRequest fault.Kind // another request has the key
	InProgress   fault.Kind // the first request with the key is not answered yet
}

// RegisterIdempotent is like Register for an operation that takes an
// Idempotency-Key (contract 1.11).
//
// The handler stores the key together with its answer in the transaction of its
// effect (KeepTx). If an earlier request has the key, that fails with
// idempotency.ErrTaken, which rolls the effect back. After any error of the handler
// the key is looked up: a repeated request is answered by replay, also if the
// handler failed before it reached the key, for instance because the workflow has
// been archived since.
func RegisterIdempotent[I, O any](
	s *Server, op Operation, conflicts KeyConflicts,
	handler func(context.Context, *I) (*O, error),
	replay func(context.Context, *I, idempotency.Stored) (*O, error),
) {
	op.conflicts = conflicts
	register(s, &op, func(ctx context.Context, in *I) (*O, error) {
		out, err := handler(ctx, in)
		if err == nil {
			return out, nil
		}
		stored, findErr := s.findStored(ctx, conflicts)
		switch {
		case errors.Is(findErr, idempotency.ErrUnknown):
			return nil, s.Problem(ctx, err)
		case findErr == nil:
			if stored.ExecutionID != uuid.Nil {
				NoteExecution(ctx, stored.ExecutionID)
			}
			out, findErr = replay(ctx, in, stored)
		}
		if findErr != nil {
			return nil, s.Problem(ctx, findErr)
		}
		return out, nil
	})
}

// findStored returns the outcome of the earlier request with the key of this one.
// The error is idempotency.ErrUnknown if there is no key or no earlier request.
func (s *Server) findStored(ctx context.Context, conflicts KeyConflicts) (idempotency.Stored, error) {
	key, ok := IdempotencyKey(ctx)
	if !ok {
		return idempotency.Stored{}, idempotency.ErrUnknown
	}
	stored, err := key.Find(ctx, s.config.Pool)
	switch {
	case errors.Is(err, idempotency.ErrOtherRequest):
		return stored, fault.New(conflicts.OtherRequest, "the Idempotency-Key was used for a different request; send a new key")
	case errors.Is(err, idempotency.ErrInProgress):
		return stored, fault.New(conflicts.InProgress, "the first request with this Idempotency-Key is still in progress").
			WithRetryAfter(retryAfterDefault)
	default:
		return stored, err
	}
}

// Answer is the output of an idempotent operation: a new answer or a replayed one.
type Answer[T any] struct {
	Replayed string `header:"Idempotency-Replayed"`
	Body     AnswerBody[T]
}

// NewAnswer returns the answer of a first request.
func NewAnswer[T any](body T) *Answer[T] { return &Answer[T]{Body: AnswerBody[T]{Value: body}} }

// Replay answers a repeated request with the stored body. It is the replay function
// of operations whose answer has a body only.
func Replay[I, T any](_ context.Context, _ *I, stored idempotency.Stored) (*Answer[T], error) {
	return &Answer[T]{Replayed: Replayed, Body: AnswerBody[T]{JSON: stored.Answer.Body}}, nil
}

// Replayed is the value of the header Idempotency-Replayed in a replayed answer.
const Replayed = "true"

// AnswerBody is the body of an answer: JSON if that is set, otherwise Value. A
// replayed body is JSON, so that it is the same text as the first time.
type AnswerBody[T any] struct {
	Value T
	JSON  json.RawMessage
}

// MarshalJSON returns JSON or encodes Value.
func (b AnswerBody[T]) MarshalJSON() ([]byte, error) {
	if b.JSON != nil {
		return b.JSON, nil
	}
	return EncodeJSON(b.Value)
}

// Schema returns the schema of T. It implements huma.SchemaProvider.
func (AnswerBody[T]) Schema(registry huma.Registry) *huma.Schema {
	return registry.Schema(reflect.TypeFor[T](), true, "")
}

// EncodeJSON encodes a value as the body of an answer is encoded.
func EncodeJSON(value any) (json.RawMessage, error) {
	var text bytes.Buffer
	if err := huma.DefaultJSONFormat.Marshal(&text, value); err != nil {
		return nil, fmt.Errorf("encode an answer: %w", err)
	}
	return bytes.TrimSpace(text.Bytes()), nil
}

type idempotencyKeyKey struct{}

// IdempotencyKey returns the key of the request. It reports false for a request
// without a key.
func IdempotencyKey(ctx context.Context) (*idempotency.Key, bool) {
	key, ok := ctx.Value(idempotencyKeyKey{}).(*idempotency.Key)
	return key, ok
}

// KeepTx stores the answer of a request that has an Idempotency-Key, in the
// transaction of its effect. It does nothing for other requests. The handler must
// roll back and return its error.
func KeepTx(ctx context.Context, tx pgx.Tx, status int, body any) error {
	key, ok := IdempotencyKey(ctx)
	if !ok {
		return nil
	}
	text, err := EncodeJSON(body)
	if err != nil {
		return err
	}
	return key.TakeTx(ctx, tx, idempotency.Answer{Status: status, Body: text})
}

// readIdempotencyKey reads the header if the operation is idempotent.
func (s *Server) readIdempotencyKey(ctx huma.Context, next func(huma.Context)) {
	r, _ := humachi.Unwrap(ctx)
	texts := r.Header.Values(idempotencyKeyHeader)
	if !declared(ctx.Operation()).isIdempotent() || strings.Join(texts, "") == "" {
		next(ctx)
		return
	}
	text, wrong := texts[0], ""
	switch {
	case len(texts) > 1:
		wrong = "must be sent only once"
	case !isText(text) || utf8.RuneCountInString(text) > idempotencyKeyMax:
		wrong = fmt.Sprintf("must be valid UTF-8 text of at most %d characters", idempotencyKeyMax)
	}
	if wrong != "" {
		s.reject(ctx, fault.InvalidRequest(fault.Detail{Field: idempotencyKeyHeader, Message: wrong}))
		return
	}
	hash, err := requestHash(r, RequestBody(ctx.Context()))
	if err != nil {
		s.reject(ctx, err)
		return
	}
	p := Principal(ctx.Context())
	next(huma.WithValue(ctx, idempotencyKeyKey{}, &idempotency.Key{
		TenantID: p.TenantID, ClientID: p.ClientID, Text: text,
		Fingerprints: idempotency.NewFingerprints(hash, s.config.FingerprintKeys),
	}))
}

// requestHash returns a hash of the method, the address and the value of the body.
// White space and the order of members do not change it.
func requestHash(r *http.Request, body any) ([]byte, error) {
	text, err := exactjson.Encode(body)
	if err != nil {
		return nil, fmt.Errorf("encode the body: %w", err)
	}
	h := sha256.New()
	for _, part := range []string{r.Method, r.URL.Path, r.URL.RawQuery, string(text)} {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return h.Sum(nil), nil
}

// documentIdempotency adds the header to an idempotent operation.
func documentIdempotency(h *huma.Operation) {
	h.Parameters = append(h.Parameters, &huma.Param{
		Name: idempotencyKeyHeader, In: "header",
		Description: "**[ext]** A text of your choice that makes it safe to send the request again. For 24 hours, the same request with the same key has no further effect " +
			"and returns the first answer with `Idempotency-Replayed: true`. A different request with the same key is rejected, and so is a request that arrives while the first one is in progress.",
		Schema:  &huma.Schema{Type: huma.TypeString, MaxLength: new(idempotencyKeyMax)},
		Example: "1f0c9f2e-application-1001",
	})
}
