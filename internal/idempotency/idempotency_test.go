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

// insertExecution inserts an execution and its payload; an empty result leaves
// it running.
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

func TestKeyIsTakenOnce(t *testing.T) {
	t.Parallel()
	tx, key := pgtest.Tx(t), newKey(t)
	kept, err := idempotency.Find(t.Context(), tx, key)
	require.NoError(t, err)
	require.Nil(t, kept)

	answer := idempotency.Answer{Status: 202, Body: []byte(`{"n":1.10}`)}
	require.NoError(t, idempotency.TakeTx(t.Context(), tx, key, answer))
	require.ErrorIs(t, idempotency.TakeTx(t.Context(), tx, key, answer), idempotency.ErrTaken)
	kept, err = idempotency.Find(t.Context(), tx, key)
	require.NoError(t, err)
	require.Equal(t, &idempotency.Kept{Fingerprint: key.Fingerprints[0], Answer: &answer}, kept)

	other := *key
	other.ClientID = pgtest.NewID(t)
	kept, err = idempotency.Find(t.Context(), tx, &other)
	require.NoError(t, err)
	require.Nil(t, kept, "a key is the client's own")
	require.NoError(t, idempotency.TakeTx(t.Context(), tx, &other, answer))
}

func TestKeyExpires(t *testing.T) {
	t.Parallel()
	tx, key := pgtest.Tx(t), newKey(t)
	answer := idempotency.Answer{Status: 200, Body: []byte(`{}`)}
	age := func(interval string) {
		_, err := tx.Exec(t.Context(), `UPDATE idempotency_keys SET created_at = now() - $2::text::interval WHERE tenant_id = $1`, key.TenantID, interval)
		require.NoError(t, err)
	}
	require.NoError(t, idempotency.TakeTx(t.Context(), tx, key, answer))
	age("23 hours 59 minutes")
	require.NoError(t, idempotency.Sweep(t.Context(), tx))
	require.ErrorIs(t, idempotency.TakeTx(t.Context(), tx, key, answer), idempotency.ErrTaken)
	age("24 hours 1 second")
	kept, err := idempotency.Find(t.Context(), tx, key)
	require.NoError(t, err)
	require.Nil(t, kept)
	require.NoError(t, idempotency.TakeTx(t.Context(), tx, key, answer), "it can be taken anew")
	age("24 hours 1 second")
	require.NoError(t, idempotency.Sweep(t.Context(), tx))
	var n int
	require.NoError(t, tx.QueryRow(t.Context(), `SELECT count(*) FROM idempotency_keys WHERE tenant_id = $1`, key.TenantID).Scan(&n))
	require.Zero(t, n)
}

// sweeps notes how many keys each statement forgets.
type sweeps struct {
	queries.DBTX
	forgotten []int64
}

func (s *sweeps) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	tag, err := s.DBTX.Exec(ctx, sql, args...)
	s.forgotten = append(s.forgotten, tag.RowsAffected())
	return tag, err
}

// However many keys have expired, no statement forgets more than some of them.
func TestKeysAreForgottenByParts(t *testing.T) {
	t.Parallel()
	pool, key := pgtest.Pool(t), newKey(t)
	_, err := pool.Exec(t.Context(), `INSERT INTO idempotency_keys (tenant_id, client_id, key, fingerprint, status, answer, created_at)
		SELECT $1, $2, i::text, '', 200, '{}', now() - interval '23 hours 59 minutes' - i % 2 * interval '2 minutes' FROM generate_series(1, 25000) i`, key.TenantID, key.ClientID)
	require.NoError(t, err)
	s := &sweeps{DBTX: pool}
	require.NoError(t, idempotency.Sweep(t.Context(), s))
	require.Equal(t, []int64{10_000, 2_500}, s.forgotten)
}

// The answer of an execution is its result, as it was first; what was answered
// before it ended stays the answer.
func TestAnswerOfAnExecution(t *testing.T) {
	t.Parallel()
	tx, key := pgtest.Tx(t), newKey(t)
	find := func(key *idempotency.Key) *idempotency.Kept {
		kept, err := idempotency.Find(context.Background(), tx, key)
		require.NoError(t, err)
		return kept
	}
	ended := insertExecution(t, tx, key.TenantID, `{"statusCode":422}`)
	require.NoError(t, idempotency.TakeForExecutionTx(t.Context(), tx, key, ended))
	require.JSONEq(t, `{"statusCode":422}`, string(find(key).Result))
	settled, err := idempotency.Settle(t.Context(), tx, key, ended, idempotency.Answer{Status: 202, Body: []byte(`{}`)})
	require.NoError(t, err)
	require.False(t, settled, "it has ended: its result is the answer")
	for _, result := range []string{`{"statusCode":200}`, `{"statusCode":502}`} { // of two retries
		require.NoError(t, idempotency.FreezeTx(t.Context(), tx, key.TenantID, ended))
		_, err = tx.Exec(t.Context(), `UPDATE execution_payloads SET result = $2::text::json WHERE execution_id = $1`, ended, result)
		require.NoError(t, err)
		require.JSONEq(t, `{"statusCode":422}`, string(find(key).Result))
	}

	early := *key
	early.Text = "early"
	running := insertExecution(t, tx, key.TenantID, "")
	require.NoError(t, idempotency.TakeForExecutionTx(t.Context(), tx, &early, running))
	require.Nil(t, find(&early).Result, "in progress")
	accepted := idempotency.Answer{Status: 202, Body: []byte(`{"status":"running"}`)}
	settled, err = idempotency.Settle(t.Context(), tx, &early, running, accepted)
	require.NoError(t, err)
	require.True(t, settled)
	settled, err = idempotency.Settle(t.Context(), tx, &early, running, idempotency.Answer{Status: 202, Body: []byte(`{}`)})
	require.NoError(t, err)
	require.False(t, settled, "it has its answer")
	_, err = tx.Exec(t.Context(), `UPDATE execution_payloads SET result = '{}' WHERE execution_id = $1`, running)
	require.NoError(t, err)
	require.Equal(t, &accepted, find(&early).Answer)

	// A key that is taken anew has nothing left of the first request.
	_, err = tx.Exec(t.Context(), `UPDATE idempotency_keys SET created_at = now() - interval '24 hours 1 second' WHERE tenant_id = $1`, key.TenantID)
	require.NoError(t, err)
	another := insertExecution(t, tx, key.TenantID, "")
	require.NoError(t, idempotency.TakeForExecutionTx(t.Context(), tx, key, another))
	settled, err = idempotency.Settle(t.Context(), tx, key, running, accepted)
	require.NoError(t, err)
	require.False(t, settled, "it is another execution's")
	require.Equal(t, &idempotency.Kept{Fingerprint: key.Fingerprints[0], ExecutionID: another}, find(key))
}
