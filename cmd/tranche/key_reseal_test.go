package main_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tranche/internal/pgtest"
	"tranche/internal/secret"
)

// The master key of a service with signing keys, secrets and evidence is replaced. The
// old key is not needed afterwards.
func TestKeyReseal(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	old := onDatabase(url)
	server := old.serve(t)
	c := &consents{url: server.url, token: old.accessToken(t, server.url, "acme")}
	c.create(t)
	c.send(t, http.MethodPut, "/v1/secrets/bureau", `{"value":"a key of a bureau","hosts":["bureau.example"]}`, http.StatusOK)
	server.stop(t)

	next := environment{old[0], "TRANCHE_MASTER_KEY=" + secret.GenerateKey()}
	got := next.run(t, "key", "reseal")
	require.Equal(t, 1, got.status)
	require.Contains(t, got.stderr, "TRANCHE_MASTER_KEY lacks a key that is still in use: signing key ")

	both := environment{old[0], next[1] + "," + strings.TrimPrefix(old[1], "TRANCHE_MASTER_KEY=")}
	require.JSONEq(t, `{"signingKeys":1,"secrets":1,"chains":1}`, both.ok(t, "key", "reseal", "-o", "json"))
	require.Equal(t, "resealed with the first master key: 0 signing keys, 0 secrets, 0 ends of evidence chains\n", both.ok(t, "key", "reseal"))
	require.Contains(t, both.ok(t, "audit"), "operator  key.reseal")

	require.Contains(t, next.ok(t, "evidence", "verify"), "acme: whole: 1 records")
	server = next.serve(t) // it opens the signing key
	c.url = server.url
	c.create(t)
	server.stop(t)
	var keys int
	require.NoError(t, pgtest.OpenPool(t, url).QueryRow(t.Context(), `SELECT count(DISTINCT substr(sealed, 1, 8)) FROM (
		SELECT private_key FROM signing_keys UNION ALL SELECT value FROM secrets UNION ALL SELECT seal FROM evidence_heads) AS kept (sealed)`).Scan(&keys))
	require.Equal(t, 1, keys, "all values are sealed with the same key")
}
