package idempotency_test

import (
	"context"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"tranche/internal/idempotency"
	"tranche/internal/pgtest"
	"tranche/queries"
)

func newKey(t *testing.T) *idempotency.Key {
	t.Helper()
	return &idempotency.Key{TenantID: pgtest.NewID(t), ClientID: pgtest.NewID(t), Text: "k", Fingerprints: idempotency.NewFingerprints([]byte("request"), [][]byte{[]byte("key")})}
}

// insertExecution inserts an execution and its payload. It is running if the result is
// empty, otherwise completed.
func insertExecution(t *testing.T, tx pgx.Tx, tenantID uuid.UUID, result string) uuid.UUID {
	t.Helper()
	id := pgtest.NewID(t)
	_, err := tx.Exec(t.Context(), `INSERT INTO executions (id, tenant_id, workflow_id, workflow_alias, workflow_version, principal_id, status, created_at)
		VALUES ($1, $2, $2, 'x', 1, 'tester', CASE $3::text WHEN '' THEN 'running' ELSE 'completed' END, now())`, id, tenantID, result)
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `INSERT INTO execution_payloads (execution_id, tenant_id, input, result) VALUES ($1, $2, '{}', NULLIF($3::text, '')::json)`, id, tenantID, result)
	require.NoError(t, err)
	return id
}

// setAge sets the age of the keys of a tenant.
func setAge(t *testing.T, tx pgx.Tx, key *idempotency.Key, interval string) {
	t.Helper()
	_, err := tx.Exec(t.Context(), `UPDATE idempotency_keys SET created_at = now() - $2::text::interval WHERE tenant_id = $1`, key.TenantID, interval)
	require.NoError(t, err)
}

func setResult(t *testing.T, tx pgx.Tx, executionID uuid.UUID, result string) {
	t.Helper()
	_, err := tx.Exec(t.Context(), `UPDATE execution_payloads SET result = $2::text::json WHERE execution_id = $1`, executionID, result)
	require.NoError(t, err)
}

func TestTakeTxTwice(t *testing.T) {
	t.Parallel()
	tx, key := pgtest.Tx(t), newKey(t)
	_, err := key.Find(t.Context(), tx)
	require.ErrorIs(t, err, idempotency.ErrUnknown)

	answer := idempotency.Answer{Status: 202, Body: []byte(`{"n":1.10}`)}
	require.NoError(t, key.TakeTx(t.Context(), tx, answer))
	require.ErrorIs(t, key.TakeTx(t.Context(), tx, answer), idempotency.ErrTaken)
	stored, err := key.Find(t.Context(), tx)
	require.NoError(t, err)
	require.Equal(t, idempotency.Stored{Answer: answer}, stored)

	different := *key
	different.Fingerprints = idempotency.NewFingerprints([]byte("other"), [][]byte{[]byte("key")})
	_, err = different.Find(t.Context(), tx)
	require.ErrorIs(t, err, idempotency.ErrOtherRequest)

	other := *key
	other.ClientID = pgtest.NewID(t)
	_, err = other.Find(t.Context(), tx)
	require.ErrorIs(t, err, idempotency.ErrUnknown, "a key belongs to one client")
	require.NoError(t, other.TakeTx(t.Context(), tx, answer))
}

func TestKeyExpires(t *testing.T) {
	t.Parallel()
	tx, key := pgtest.Tx(t), newKey(t)
	answer := idempotency.Answer{Status: 200, Body: []byte(`{}`)}
	require.NoError(t, key.TakeTx(t.Context(), tx, answer))
	setAge(t, tx, key, "23 hours 59 minutes")
	require.NoError(t, idempotency.Sweep(t.Context(), tx))
	require.ErrorIs(t, key.TakeTx(t.Context(), tx, answer), idempotency.ErrTaken)
	setAge(t, tx, key, "24 hours 1 second")
	_, err := key.Find(t.Context(), tx)
	require.ErrorIs(t, err, idempotency.ErrUnknown)
	require.NoError(t, key.TakeTx(t.Context(), tx, answer), "an expired key can be used again")
	setAge(t, tx, key, "24 hours 1 second")
	require.NoError(t, idempotency.Sweep(t.Context(), tx))
	require.Zero(t, pgtest.Count(t, tx, "idempotency_keys", "tenant_id = $1", key.TenantID))
}

// sweeps records how many keys each statement deletes.
type sweeps struct {
	queries.DBTX
	deleted []int64
}

func (s *sweeps) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	tag, err := s.DBTX.Exec(ctx, sql, args...)
	s.deleted = append(s.deleted, tag.RowsAffected())
	return tag, err
}

func TestSweepLimitsEachStatement(t *testing.T) {
	t.Parallel()
	pool, key := pgtest.Pool(t), newKey(t)
	_, err := pool.Exec(t.Context(), `INSERT INTO idempotency_keys (tenant_id, client_id, key, fingerprint, status, answer, created_at)
		SELECT $1, $2, i::text, '', 200, '{}', now() - interval '23 hours 59 minutes' - i % 2 * interval '2 minutes' FROM generate_series(1, 25000) i`, key.TenantID, key.ClientID)
	require.NoError(t, err)
	s := &sweeps{DBTX: pool}
	require.NoError(t, idempotency.Sweep(t.Context(), s))
	require.Equal(t, []int64{10_000, 2_500}, s.deleted)
}

// After two retries of the execution the answer is still its first result.
func TestStoredResultIsFrozen(t *testing.T) {
	t.Parallel()
	tx, key := pgtest.Tx(t), newKey(t)
	ended := insertExecution(t, tx, key.TenantID, `{"statusCode":422}`)
	require.NoError(t, key.TakeForExecutionTx(t.Context(), tx, ended))
	err := key.Settle(t.Context(), tx, ended, idempotency.Answer{Status: 202, Body: []byte(`{}`)})
	require.ErrorIs(t, err, idempotency.ErrTaken, "the execution has ended: its result is the answer")
	for _, result := range []string{`{"statusCode":200}`, `{"statusCode":502}`} {
		require.NoError(t, idempotency.FreezeTx(t.Context(), tx, key.TenantID, ended))
		setResult(t, tx, ended, result)
		stored, err := key.Find(t.Context(), tx)
		require.NoError(t, err)
		require.JSONEq(t, `{"statusCode":422}`, string(stored.Result))
	}
}

func TestSettle(t *testing.T) {
	t.Parallel()
	tx, key := pgtest.Tx(t), newKey(t)
	running := insertExecution(t, tx, key.TenantID, "")
	require.NoError(t, key.TakeForExecutionTx(t.Context(), tx, running))
	_, err := key.Find(t.Context(), tx)
	require.ErrorIs(t, err, idempotency.ErrInProgress)
	accepted := idempotency.Answer{Status: 202, Body: []byte(`{"status":"running"}`)}
	require.NoError(t, key.Settle(t.Context(), tx, running, accepted))
	err = key.Settle(t.Context(), tx, running, idempotency.Answer{Status: 202, Body: []byte(`{}`)})
	require.ErrorIs(t, err, idempotency.ErrTaken, "the first answer stays")
	setResult(t, tx, running, `{}`)
	stored, err := key.Find(t.Context(), tx)
	require.NoError(t, err)
	require.Equal(t, idempotency.Stored{Answer: accepted, ExecutionID: running}, stored)
}

func TestExpiredKeyKeepsNothingOfTheFirstRequest(t *testing.T) {
	t.Parallel()
	tx, key := pgtest.Tx(t), newKey(t)
	first := insertExecution(t, tx, key.TenantID, `{"statusCode":422}`)
	require.NoError(t, key.TakeForExecutionTx(t.Context(), tx, first))
	setAge(t, tx, key, "24 hours 1 second")
	second := insertExecution(t, tx, key.TenantID, "")
	require.NoError(t, key.TakeForExecutionTx(t.Context(), tx, second))
	err := key.Settle(t.Context(), tx, first, idempotency.Answer{Status: 202, Body: []byte(`{}`)})
	require.ErrorIs(t, err, idempotency.ErrTaken, "the key belongs to the second execution")
	_, err = key.Find(t.Context(), tx)
	require.ErrorIs(t, err, idempotency.ErrInProgress)
}
