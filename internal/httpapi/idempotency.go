package api

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"tranche/internal/engine"
	"tranche/internal/exactjson"
	"tranche/internal/execution"
	"tranche/internal/fault"
	"tranche/internal/idempotency"
)

const (
	idempotencyKeyHeader      = "Idempotency-Key"
	idempotencyReplayedHeader = "Idempotency-Replayed"
	idempotencyKeyMax         = 255 // characters
)

// The way of a request under an Idempotency-Key (decisions 1.11):
//
//  1. readIdempotencyKey puts the key into the context.
//  2. The handler takes the key in the transaction of its effect, together with the answer
//     that it is about to give (keepAnswer, keepExecution). If an earlier request has the
//     key, that fails with idempotency.ErrTaken, which undoes the effect and comes back
//     from the handler.
//  3. errorAnswer gets every error of a handler. Where the key is taken it gives what was
//     kept (replay) in place of the error: of ErrTaken, and also of what a repeated request
//     fails with before it takes the key, because its workflow was archived meanwhile for
//     instance.
//
// A synchronous execute takes the key for its execution, whose result is then the answer.
// If it answers 202, because the caller would not wait for longer, that is kept instead
// (settleExecution).

// idempotence is how an operation that takes the header Idempotency-Key refuses a key
// that another request has.
type idempotence struct {
	mismatch fault.Kind // the requests differ
	inFlight fault.Kind // the first is not answered yet
	// location, unless empty, is what comes before the id of the answer in the
	// Location of what was made.
	location string
	// prefers says that the operation takes Prefer.
	prefers bool
}

type (
	idempotencyKeyKey struct{}
	preferKey         struct{}
)

// idempotencyKey returns the key of the request, nil without one.
func idempotencyKey(ctx context.Context) *idempotency.Key {
	key, _ := ctx.Value(idempotencyKeyKey{}).(*idempotency.Key)
	return key
}

// readIdempotencyKey reads the header where the operation takes it.
func (s *Server) readIdempotencyKey(ctx huma.Context, next func(huma.Context)) {
	r, _ := humachi.Unwrap(ctx)
	texts := r.Header.Values(idempotencyKeyHeader)
	if declared(ctx.Operation()).idempotent == (idempotence{}) || strings.Join(texts, "") == "" {
		next(ctx)
		return
	}
	text, wrong := texts[0], ""
	switch {
	case len(texts) > 1:
		wrong = "occurs more than once"
	case !isText(text) || utf8.RuneCountInString(text) > idempotencyKeyMax:
		wrong = "must be text of at most 255 characters"
	}
	if wrong != "" {
		err := fault.InvalidRequest(fault.Detail{Field: idempotencyKeyHeader, Message: wrong})
		s.refuse(ctx, s.problem(ctx.Context(), err))
		return
	}
	hash, err := requestHash(ctx)
	if err != nil {
		s.refuse(ctx, s.problem(ctx.Context(), err))
		return
	}
	p := principal(ctx.Context())
	key := &idempotency.Key{
		TenantID: p.TenantID, ClientID: p.ClientID, Text: text,
		Fingerprints: idempotency.NewFingerprints(hash, s.config.FingerprintKeys),
	}
	ctx = huma.WithValue(ctx, preferKey{}, preferOf(r))
	next(huma.WithValue(ctx, idempotencyKeyKey{}, key))
}

// requestHash is a hash of what makes a request the same: method, address and
// the body's value, however that is laid out.
func requestHash(ctx huma.Context) ([]byte, error) {
	r, _ := humachi.Unwrap(ctx)
	text, err := exactjson.Encode(body(ctx.Context()))
	if err != nil {
		return nil, fmt.Errorf("write the body: %w", err)
	}
	h := sha256.New()
	for _, part := range []string{r.Method, r.URL.Path, r.URL.RawQuery, string(text)} {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return h.Sum(nil), nil
}

// keepAnswer keeps the answer of a request that has an Idempotency-Key, in the
// transaction of its effect; without a key it does nothing. Its error must undo
// the effect and come back from the handler.
func keepAnswer(ctx context.Context, tx pgx.Tx, status int, answer any) error {
	key := idempotencyKey(ctx)
	if key == nil {
		return nil
	}
	text, err := encodeAnswer(answer)
	if err != nil {
		return err
	}
	return idempotency.TakeTx(ctx, tx, key, idempotency.Answer{Status: status, Body: text})
}

// keepExecution takes the request's key as the execution is recorded: with the
// answer if that is its record, else for its result. Nil without a key.
func keepExecution(ctx context.Context, isAsync bool) func(context.Context, pgx.Tx, execution.Execution) error {
	key := idempotencyKey(ctx)
	if key == nil {
		return nil
	}
	return func(ctx context.Context, tx pgx.Tx, e execution.Execution) error {
		if isAsync {
			text, err := encodeAnswer(executionAccepted(&e))
			if err != nil {
				return err
			}
			return idempotency.TakeTx(ctx, tx, key, idempotency.Answer{Status: http.StatusAccepted, Body: text})
		}
		return idempotency.TakeForExecutionTx(ctx, tx, key, e.ID)
	}
}

// settleExecution keeps the record of an execution that goes on as the answer of its
// request. If the execution has ended meanwhile, its result is the answer already: then
// the error is ErrTaken, for which errorAnswer gives that result.
func (s *Server) settleExecution(ctx context.Context, e *execution.Execution) error {
	key := idempotencyKey(ctx)
	if key == nil || e.Status == engine.StatusPending {
		return nil // a pending one was kept with its record
	}
	text, err := encodeAnswer(executionAccepted(e))
	if err != nil {
		return err
	}
	settled, err := idempotency.Settle(ctx, s.config.Pool, key, e.ID, idempotency.Answer{Status: http.StatusAccepted, Body: text})
	if err == nil && !settled {
		return idempotency.ErrTaken
	}
	return err
}

func encodeAnswer(answer any) (json.RawMessage, error) {
	var text bytes.Buffer
	if err := huma.DefaultJSONFormat.Marshal(&text, answer); err != nil {
		return nil, fmt.Errorf("write an answer: %w", err)
	}
	return bytes.TrimSpace(text.Bytes()), nil
}

// errorAnswer is the answer for a handler's error: the kept one where the request's key is
// taken, else the problem of the error.
func (s *Server) errorAnswer(ctx context.Context, op *operation, err error) error {
	answer, replayErr := s.replay(ctx, op)
	switch {
	case replayErr != nil:
		return s.problem(ctx, replayErr)
	case answer != nil:
		return answer
	default:
		return s.problem(ctx, err)
	}
}

// replay is the answer of the request that has taken this one's key; nil if there is no
// key or nobody has taken it. Errors: the kinds of op.idempotent.
func (s *Server) replay(ctx context.Context, op *operation) (*replayed, error) {
	key := idempotencyKey(ctx)
	if key == nil {
		return nil, nil
	}
	kept, err := idempotency.Find(ctx, s.config.Pool, key)
	if err != nil || kept == nil {
		return nil, err
	}
	if !key.Fingerprints.Has(kept.Fingerprint) {
		return nil, fault.New(op.idempotent.mismatch, "the Idempotency-Key belongs to another request")
	}
	answer := kept.Answer
	if answer == nil {
		if kept.Result == nil {
			return nil, fault.New(op.idempotent.inFlight, "the first request under the Idempotency-Key is still in progress").
				WithRetryAfter(retryAfterDefault)
		}
		if answer, err = s.resultAnswer(ctx, kept.ExecutionID, kept.Result); err != nil {
			return nil, err
		}
	}
	if kept.ExecutionID != uuid.Nil {
		noteExecution(ctx, kept.ExecutionID)
	}
	header := http.Header{idempotencyReplayedHeader: {"true"}}
	if op.idempotent.location != "" {
		var made struct {
			ID string `json:"id"`
		}
		if err := json.Unmarshal(answer.Body, &made); err != nil {
			return nil, fmt.Errorf("read a kept answer: %w", err)
		}
		header.Set("Location", op.idempotent.location+made.ID)
	}
	if text, _ := ctx.Value(preferKey{}).(string); op.idempotent.prefers {
		header[preferenceAppliedHeader] = preferenceReplayed(text, answer.Status)
	}
	return &replayed{answer, header}, nil
}

// resultAnswer is the answer of a synchronous execute whose execution has ended.
func (s *Server) resultAnswer(ctx context.Context, id uuid.UUID, stored []byte) (*idempotency.Answer, error) {
	if err := s.acquireForAnswer(ctx, len(stored)); err != nil {
		return nil, err
	}
	result, err := execution.ReadResult(stored)
	if err != nil {
		return nil, err
	}
	answer, err := s.executionResult(ctx, id, result)
	if err != nil {
		return nil, err
	}
	text, err := encodeAnswer(answer)
	return &idempotency.Answer{Status: http.StatusOK, Body: text}, err
}

// replayed is a kept answer. It is an error to Huma, because a handler's answer has the
// type and the statuses of its operation, where this is a status and a text that were
// stored; Huma writes errors that are a huma.StatusError as they say.
type replayed struct {
	*idempotency.Answer
	header http.Header
}

// Error implements error.
func (r *replayed) Error() string { return "the answer is a kept one" }

// GetStatus returns the HTTP status; huma.StatusError.
func (r *replayed) GetStatus() int { return r.Status }

// GetHeaders returns the headers of the answer, which say that it is a kept one;
// huma.HeadersError.
func (r *replayed) GetHeaders() http.Header { return r.header }

// MarshalJSON writes the answer as it was.
func (r *replayed) MarshalJSON() ([]byte, error) { return r.Body, nil }

// documentIdempotency adds the headers to an operation that takes a key.
func documentIdempotency(h *huma.Operation) {
	h.Parameters = append(h.Parameters, &huma.Param{
		Name: idempotencyKeyHeader, In: "header",
		Description: "**[ext]** A text of the caller's own that makes it safe to send the request again: for 24 hours the same request under the same key has no further effect " +
			"and is answered as the first was, with Idempotency-Replayed: true. Another request under it is refused, and one that arrives while the first is in progress.",
		Schema:  &huma.Schema{Type: huma.TypeString, MaxLength: new(idempotencyKeyMax)},
		Example: "1f0c9f2e-application-1001",
	})
}
