// Package idempotency stores which requests clients sent with an Idempotency-Key
// and how they were answered, so that a repeated request has no further effect
// (contract 1.11). A key is stored in the transaction of the request's effect:
// either both are committed or neither. Package idempotency must not know HTTP or
// the effects of the requests.
package idempotency

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"tranche/internal/fault"
	"tranche/internal/postgres"
	"tranche/queries"
)

// ttl is how long a key is stored.
const ttl = 24 * time.Hour

// ErrTaken is returned if an earlier request has the key. Find returns its outcome.
var ErrTaken = fault.New(fault.Conflict, "the Idempotency-Key is taken")

// The errors of Find.
var (
	ErrUnknown      = errors.New("no request has the Idempotency-Key")
	ErrOtherRequest = errors.New("the Idempotency-Key belongs to another request")
	ErrInProgress   = errors.New("the first request with the Idempotency-Key is in progress")
)

// Key identifies a request of a client.
type Key struct {
	TenantID     uuid.UUID
	ClientID     uuid.UUID
	Text         string
	Fingerprints Fingerprints
}

// Fingerprints identify the content of one request, one for each fingerprint key.
// The first is stored; all of them are compared.
type Fingerprints [][]byte

// NewFingerprints returns the fingerprints of a request with the given hash. They
// are HMACs, because the hash of a short body could be guessed.
func NewFingerprints(hash []byte, keys [][]byte) Fingerprints {
	all := make(Fingerprints, len(keys))
	for i, key := range keys {
		mac := hmac.New(sha256.New, key)
		mac.Write(hash)
		all[i] = mac.Sum(nil)
	}
	return all
}

func (f Fingerprints) match(stored []byte) bool {
	return slices.ContainsFunc(f, func(own []byte) bool { return hmac.Equal(own, stored) })
}

// Answer is an HTTP status and a JSON body.
type Answer struct {
	Status int
	Body   json.RawMessage
}

// Stored is the outcome of an earlier request: either Answer or Result is set.
type Stored struct {
	Answer Answer
	// Result is the stored result of the execution ExecutionID, from which the caller
	// makes the answer.
	Result      json.RawMessage
	ExecutionID uuid.UUID // zero if the key does not belong to an execution
}

// TakeTx stores the key and the answer of its request in the transaction of the
// effect. It waits for another transaction that takes the same key. If an earlier
// request has the key, it returns ErrTaken.
func (k *Key) TakeTx(ctx context.Context, tx pgx.Tx, answer Answer) error {
	return k.take(ctx, tx, queries.IdempotencyKeyInsertParams{Status: new(int16(answer.Status)), Answer: answer.Body})
}

// TakeForExecutionTx is like TakeTx for a request whose answer will be the result
// of an execution.
func (k *Key) TakeForExecutionTx(ctx context.Context, tx pgx.Tx, executionID uuid.UUID) error {
	return k.take(ctx, tx, queries.IdempotencyKeyInsertParams{ExecutionID: &executionID})
}

func (k *Key) take(ctx context.Context, tx pgx.Tx, p queries.IdempotencyKeyInsertParams) error {
	p.TenantID, p.ClientID, p.Key, p.Fingerprint = k.TenantID, k.ClientID, k.Text, k.Fingerprints[0]
	p.OlderThanSeconds = ttl.Seconds()
	rows, err := queries.New().IdempotencyKeyInsert(ctx, tx, p)
	if err != nil {
		return fmt.Errorf("take an idempotency key: %w", err)
	}
	if rows == 0 {
		return ErrTaken
	}
	return nil
}

// Settle stores an answer that is sent before the execution of TakeForExecutionTx
// has ended. If the execution has ended by then, its result stays the answer and
// Settle returns ErrTaken.
func (k *Key) Settle(ctx context.Context, db queries.DBTX, executionID uuid.UUID, answer Answer) error {
	rows, err := queries.New().IdempotencyKeySetResponse(ctx, db, queries.IdempotencyKeySetResponseParams{
		TenantID: k.TenantID, ClientID: k.ClientID, Key: k.Text, ExecutionID: executionID,
		Status: int16(answer.Status), Answer: answer.Body,
	})
	if err != nil {
		return postgres.Translate(fmt.Errorf("store the answer of an idempotency key: %w", err))
	}
	if rows == 0 {
		return ErrTaken
	}
	return nil
}

// Find returns the outcome of the request that has the key. It returns ErrUnknown
// if there is none, ErrOtherRequest if the requests differ, and ErrInProgress if
// the execution of the first request has not ended.
func (k *Key) Find(ctx context.Context, db queries.DBTX) (Stored, error) {
	row, err := queries.New().IdempotencyKeyGet(ctx, db, queries.IdempotencyKeyGetParams{
		TenantID: k.TenantID, ClientID: k.ClientID, Key: k.Text, YoungerThanSeconds: ttl.Seconds(),
	})
	stored := Stored{ExecutionID: queries.Value(row.ExecutionID)}
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return Stored{}, ErrUnknown
	case err != nil:
		return Stored{}, postgres.Translate(fmt.Errorf("find an idempotency key: %w", err))
	case !k.Fingerprints.match(row.Fingerprint):
		return Stored{}, ErrOtherRequest
	case row.Status != nil:
		stored.Answer = Answer{Status: int(*row.Status), Body: row.Answer}
	case row.Result == nil:
		return Stored{}, ErrInProgress
	default:
		stored.Result = row.Result
	}
	return stored, nil
}

// FreezeTx copies the result of an execution to the keys whose answer it is,
// before the execution is run again.
func FreezeTx(ctx context.Context, tx pgx.Tx, tenantID, executionID uuid.UUID) error {
	err := queries.New().IdempotencyKeySetResult(ctx, tx, queries.IdempotencyKeySetResultParams{TenantID: tenantID, ExecutionID: executionID})
	if err != nil {
		return fmt.Errorf("store the result of execution %s as an answer: %w", executionID, err)
	}
	return nil
}

// sweepKeysMax is how many keys one statement deletes.
const sweepKeysMax = 10_000

// Sweep deletes the keys that have expired.
func Sweep(ctx context.Context, db queries.DBTX) error {
	err := postgres.InPages(sweepKeysMax, func(keysMax int32) (int64, error) {
		return queries.New().SysIdempotencyKeyDeleteOld(ctx, db, queries.SysIdempotencyKeyDeleteOldParams{
			OlderThanSeconds: ttl.Seconds(), KeysMax: keysMax,
		})
	})
	if err != nil {
		return fmt.Errorf("delete expired idempotency keys: %w", err)
	}
	return nil
}
