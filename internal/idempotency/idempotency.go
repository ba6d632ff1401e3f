// Package idempotency remembers for a day which requests clients made under an
// Idempotency-Key and what they were answered, so that the same request made
// again has no further effect (decisions 1.11). A key is taken in the
// transaction of the effect: either both are there or neither. It must not know
// HTTP, nor what the requests do.
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

// ttl is how long a key is remembered.
const ttl = 24 * time.Hour

// ErrTaken says that another request has taken the key: its answer is to be
// given instead (Find).
var ErrTaken = fault.New(fault.Conflict, "the Idempotency-Key is taken")

// Key names a request of a client.
type Key struct {
	TenantID uuid.UUID
	ClientID uuid.UUID
	Text     string
	// Fingerprints are of the whole request.
	Fingerprints Fingerprints
}

// Fingerprints are what may be kept of one request: the first is kept of a new
// one, all of them are recognised.
type Fingerprints [][]byte

// NewFingerprints returns those of a request by its hash: codes under keys, as
// the hash of a short body can be guessed.
func NewFingerprints(hash []byte, keys [][]byte) Fingerprints {
	all := make(Fingerprints, len(keys))
	for i, key := range keys {
		mac := hmac.New(sha256.New, key)
		mac.Write(hash)
		all[i] = mac.Sum(nil)
	}
	return all
}

// Has reports whether a fingerprint that was kept is of the same request.
func (f Fingerprints) Has(kept []byte) bool {
	return slices.ContainsFunc(f, func(own []byte) bool { return hmac.Equal(own, kept) })
}

// Answer is what a request was answered: a status and JSON.
type Answer struct {
	Status int
	Body   json.RawMessage
}

// Kept is what is remembered of a request.
type Kept struct {
	Fingerprint []byte
	// Answer is nil where it is made of the result of an execution.
	Answer *Answer
	// ExecutionID is that of the execution, Result its stored result; nil while
	// it has not ended.
	ExecutionID uuid.UUID
	Result      json.RawMessage
}

// TakeTx takes a key with the answer of its request, in the transaction of the
// effect. ErrTaken if it is taken; another transaction that is about to take it
// is waited for.
func TakeTx(ctx context.Context, tx pgx.Tx, key *Key, answer Answer) error {
	return take(ctx, tx, key, queries.IdempotencyKeyInsertParams{Status: new(int16(answer.Status)), Answer: answer.Body})
}

// TakeForExecutionTx is TakeTx for a request whose answer is the result of an
// execution.
func TakeForExecutionTx(ctx context.Context, tx pgx.Tx, key *Key, executionID uuid.UUID) error {
	return take(ctx, tx, key, queries.IdempotencyKeyInsertParams{ExecutionID: &executionID})
}

func take(ctx context.Context, tx pgx.Tx, key *Key, p queries.IdempotencyKeyInsertParams) error {
	p.TenantID, p.ClientID, p.Key, p.Fingerprint = key.TenantID, key.ClientID, key.Text, key.Fingerprints[0]
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

// Settle keeps an answer that is given while the execution of
// TakeForExecutionTx goes on. False says that it has ended meanwhile: its result
// is the answer.
func Settle(ctx context.Context, db queries.DBTX, key *Key, executionID uuid.UUID, answer Answer) (bool, error) {
	rows, err := queries.New().IdempotencyKeyAnswer(ctx, db, queries.IdempotencyKeyAnswerParams{
		TenantID: key.TenantID, ClientID: key.ClientID, Key: key.Text, ExecutionID: executionID,
		Status: int16(answer.Status), Answer: answer.Body,
	})
	if err != nil {
		return false, postgres.Translate(fmt.Errorf("keep an answer: %w", err))
	}
	return rows > 0, nil
}

// FreezeTx keeps the result of an execution that is about to lose it, for the
// requests whose answer it is.
func FreezeTx(ctx context.Context, tx pgx.Tx, tenantID, executionID uuid.UUID) error {
	err := queries.New().IdempotencyKeyFreeze(ctx, tx, queries.IdempotencyKeyFreezeParams{TenantID: tenantID, ExecutionID: executionID})
	if err != nil {
		return fmt.Errorf("keep the result of execution %s: %w", executionID, err)
	}
	return nil
}

// sweepPart is how many keys a statement forgets.
const sweepPart = 10_000

// Sweep forgets the keys that have expired.
func Sweep(ctx context.Context, db queries.DBTX) error {
	err := postgres.ByParts(sweepPart, func(keysMax int32) (int64, error) {
		return queries.New().SysIdempotencyKeyDeleteOld(ctx, db, queries.SysIdempotencyKeyDeleteOldParams{
			OlderThanSeconds: ttl.Seconds(), KeysMax: keysMax,
		})
	})
	if err != nil {
		return fmt.Errorf("forget idempotency keys: %w", err)
	}
	return nil
}

// Find returns what is remembered of the request that took a key; nil if none
// did.
func Find(ctx context.Context, db queries.DBTX, key *Key) (*Kept, error) {
	row, err := queries.New().IdempotencyKeyGet(ctx, db, queries.IdempotencyKeyGetParams{
		TenantID: key.TenantID, ClientID: key.ClientID, Key: key.Text, YoungerThanSeconds: ttl.Seconds(),
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, postgres.Translate(fmt.Errorf("find an idempotency key: %w", err))
	}
	kept := &Kept{Fingerprint: row.Fingerprint, Result: row.Result, ExecutionID: queries.Value(row.ExecutionID)}
	if row.Status != nil {
		kept.Answer = &Answer{Status: int(*row.Status), Body: row.Answer}
	}
	return kept, nil
}
