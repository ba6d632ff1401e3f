package idempotency_test

import (
	"context"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"tranche/internal/idempotency"
	"tranche/internal/pgtest"
)

func newKey(t *testing.T) *idempotency.Key {
	t.Helper()
	return &idempotency.Key{TenantID: pgtest.NewID(t), ClientID: pgtest.NewID(t), Text: "k", Fingerprints: idempotency.NewFingerprints([]byte("request"), nil)}
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
	require.Equal(t, &idempotency.Kept{Fingerprint: []byte("request"), Answer: &answer}, kept)

	other := *key
	other.ClientID = pgtest.NewID(t)
	require.NoError(t, idempotency.TakeTx(t.Context(), tx, &other, answer), "a key is the client's own")
}

func TestKeyExpires(t *testing.T) {
	t.Parallel()
	tx, key := pgtest.Tx(t), newKey(t)
	answer := idempotency.Answer{Status: 200, Body: []byte(`{}`)}
	age := func() {
		_, err := tx.Exec(t.Context(), `UPDATE idempotency_keys SET created_at = created_at - interval '24 hours 1 second' WHERE tenant_id = $1`, key.TenantID)
		require.NoError(t, err)
	}
	require.NoError(t, idempotency.TakeTx(t.Context(), tx, key, answer))
	age()
	kept, err := idempotency.Find(t.Context(), tx, key)
	require.NoError(t, err)
	require.Nil(t, kept)
	require.NoError(t, idempotency.TakeTx(t.Context(), tx, key, answer), "it can be taken anew")
	age()
	require.NoError(t, idempotency.Sweep(t.Context(), tx))
	var n int
	require.NoError(t, tx.QueryRow(t.Context(), `SELECT count(*) FROM idempotency_keys WHERE tenant_id = $1`, key.TenantID).Scan(&n))
	require.Zero(t, n)
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
	require.NoError(t, idempotency.FreezeTx(t.Context(), tx, key.TenantID, ended))
	_, err = tx.Exec(t.Context(), `UPDATE execution_payloads SET result = '{"statusCode":200}' WHERE execution_id = $1`, ended)
	require.NoError(t, err)
	require.JSONEq(t, `{"statusCode":422}`, string(find(key).Result))

	early := *key
	early.Text = "early"
	running := insertExecution(t, tx, key.TenantID, "")
	require.NoError(t, idempotency.TakeForExecutionTx(t.Context(), tx, &early, running))
	require.Nil(t, find(&early).Result, "in progress")
	accepted := idempotency.Answer{Status: 202, Body: []byte(`{"status":"running"}`)}
	settled, err = idempotency.Settle(t.Context(), tx, &early, running, accepted)
	require.NoError(t, err)
	require.True(t, settled)
	_, err = tx.Exec(t.Context(), `UPDATE execution_payloads SET result = '{}' WHERE execution_id = $1`, running)
	require.NoError(t, err)
	require.Equal(t, &accepted, find(&early).Answer)
}
