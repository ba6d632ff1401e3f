package main_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"tranche/internal/pgtest"
	"tranche/internal/secret"
)

// consents is a client that creates and signs authorizations.
type consents struct {
	url, token, mailbox string
}

// send sends a request and returns the body of the response, which must have the status.
func (c *consents) send(t *testing.T, method, path, body string, status int) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, c.url+path, strings.NewReader(body))
	require.NoError(t, err)
	request.Header.Set("Authorization", "Bearer "+c.token)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Equal(t, status, response.StatusCode, "%s", text)
	return string(text)
}

// create creates an authorization and returns its path.
func (c *consents) create(t *testing.T) string {
	t.Helper()
	var made struct{ ID string }
	body := `{"tenant":"acme","key":"credit-report","identityKey":"borrowerId","identityValue":"B-1001"}`
	require.NoError(t, json.Unmarshal([]byte(c.send(t, http.MethodPost, "/v1/authorizations", body, http.StatusCreated)), &made))
	return "/v1/authorizations/" + made.ID
}

// sign signs an authorization at the second attempt, with the code from the mail
// directory.
func (c *consents) sign(t *testing.T, path string) {
	t.Helper()
	var otp struct{ OTPID string }
	body := `{"value":"ana@example.com","contactMethod":"email","templateId":"default"}`
	require.NoError(t, json.Unmarshal([]byte(c.send(t, http.MethodPost, path+"/signatures", body, http.StatusCreated)), &otp))
	require.Eventually(t, func() bool {
		return strings.Contains(c.send(t, http.MethodGet, path+"/evidence", "", http.StatusOK), `"code_sent"`)
	}, readyTimeMax, 50*time.Millisecond)
	letter, err := os.ReadFile(filepath.Join(c.mailbox, otp.OTPID+".email.eml"))
	require.NoError(t, err)
	code := regexp.MustCompile(`(?m)^([0-9]{6})\r?$`).FindSubmatch(letter)
	require.NotNil(t, code, "%s", letter)
	wrong := "000000"
	if string(code[1]) == wrong {
		wrong = "000001"
	}
	c.send(t, http.MethodPost, path+"/signatures/attempt", fmt.Sprintf(`{"otpId":%q,"code":%q}`, otp.OTPID, wrong), http.StatusBadRequest)
	c.send(t, http.MethodPost, path+"/signatures/attempt", fmt.Sprintf(`{"otpId":%q,"code":%q}`, otp.OTPID, code[1]), http.StatusAccepted)
}

// tamper executes statements without the triggers that forbid them, as a superuser can.
func tamper(t *testing.T, pool *pgxpool.Pool, statements string) {
	t.Helper()
	require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), `SET LOCAL session_replication_role = replica; `+statements)
		return err
	}))
}

// The command verifies the evidence of a service, before and after it was changed.
func TestEvidenceVerify(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	mailbox := filepath.Join(t.TempDir(), "mail")
	e := onDatabase(url)
	server := e.with("TRANCHE_MAIL_DIR=" + mailbox).serve(t)
	require.Empty(t, e.ok(t, "evidence", "verify"), "no tenant exists")
	c := &consents{url: server.url, token: e.accessToken(t, server.url, "acme"), mailbox: mailbox}
	e.ok(t, "tenant", "create", "idle")
	c.sign(t, c.create(t))
	c.send(t, http.MethodDelete, c.create(t), "", http.StatusNoContent)
	server.stop(t)

	const whole = `acme: whole: 9 records, 1 of them without content after a deletion, ending with [0-9a-f]{64}\n`
	require.Regexp(t, `^`+whole+`idle: no evidence\n$`, e.ok(t, "evidence", "verify"))
	require.Regexp(t, `^`+whole+`$`, e.ok(t, "evidence", "verify", "--tenant", "acme"))
	var found map[string]any
	require.NoError(t, json.Unmarshal([]byte(e.ok(t, "evidence", "verify", "--tenant", "acme", "-o", "json")), &found))
	require.Len(t, found["headHash"], 64)
	delete(found, "headHash")
	require.Equal(t, map[string]any{"tenant": "acme", "isWhole": true, "records": 9.0, "withdrawn": 1.0}, found)
	// With a new first key, the old key still opens the end of the chain.
	require.Regexp(t, whole, environment{e[0], "TRANCHE_MASTER_KEY=" + secret.GenerateKey() + "," + strings.TrimPrefix(e[1], "TRANCHE_MASTER_KEY=")}.ok(t, "evidence", "verify"))

	pool := pgtest.OpenPool(t, url)
	// Package consent tests all kinds of damage.
	const flip = `UPDATE evidence_records SET hash = set_byte(hash, 7, get_byte(hash, 7) # 1) WHERE position = 5`
	tamper(t, pool, flip)
	got := e.run(t, "evidence", "verify")
	require.Equal(t, 1, got.status)
	require.Regexp(t, `(?m)^acme: BROKEN: record 5 \(code_rejected, authorization .*\) is not what its hash says$`, got.stdout)
	require.Regexp(t, `(?m)^idle: no evidence$`, got.stdout, "the command verifies the other tenants too")
	require.Equal(t, "tranche: at least one evidence chain is broken\n", got.stderr)
	tamper(t, pool, flip)
	require.Regexp(t, whole, e.ok(t, "evidence", "verify"))

	tamper(t, pool, `DELETE FROM evidence_records WHERE position = 9`)
	got = e.run(t, "evidence", "verify", "--tenant", "acme", "-o", "json")
	require.Equal(t, 1, got.status)
	require.NoError(t, json.Unmarshal([]byte(got.stdout), &found))
	require.Equal(t, []any{false, 9.0, "record 9 is missing"}, []any{found["isWhole"], found["brokenPosition"], found["broken"]})

	require.Equal(t, result{stderr: "tranche: there is no tenant with this slug\n", status: 1}, e.run(t, "evidence", "verify", "--tenant", "nobody"))
	got = environment{e[0], "TRANCHE_MASTER_KEY=" + secret.GenerateKey()}.run(t, "evidence", "verify")
	require.Equal(t, 1, got.status)
	require.Contains(t, got.stderr, "sealed under a master key that is not configured")
}
