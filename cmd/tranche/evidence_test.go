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

// consents is a client of a running service that signs.
type consents struct {
	url, token, mailbox string
}

// send makes a request and returns the body of the answer, which has the status.
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

// create makes an authorization and returns its path.
func (c *consents) create(t *testing.T) string {
	t.Helper()
	var made struct{ ID string }
	body := `{"tenant":"acme","key":"credit-report","identityKey":"borrowerId","identityValue":"B-1001"}`
	require.NoError(t, json.Unmarshal([]byte(c.send(t, http.MethodPost, "/v1/authorizations", body, http.StatusCreated)), &made))
	return "/v1/authorizations/" + made.ID
}

// sign signs an authorization with the code from the mailbox, at the second
// attempt.
func (c *consents) sign(t *testing.T, path string) {
	t.Helper()
	var otp struct{ OTPID string }
	body := `{"value":"ana@example.com","contactMethod":"email","templateId":"default"}`
	require.NoError(t, json.Unmarshal([]byte(c.send(t, http.MethodPost, path+"/signatures", body, http.StatusCreated)), &otp))
	require.Eventually(t, func() bool {
		return strings.Contains(c.send(t, http.MethodGet, path+"/evidence", "", http.StatusOK), `"code_sent"`)
	}, 30*time.Second, 50*time.Millisecond)
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

// tamper does what the triggers forbid, as somebody with all rights could.
func tamper(t *testing.T, pool *pgxpool.Pool, statements string) {
	t.Helper()
	require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), `SET LOCAL session_replication_role = replica; `+statements)
		return err
	}))
}

// TestEvidenceVerify runs the command on the evidence that a service has
// written, whole and tampered with.
func TestEvidenceVerify(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	mailbox := filepath.Join(t.TempDir(), "mail")
	e := onDatabase(url)
	server := e.with("TRANCHE_MAIL_DIR=" + mailbox).serve(t)
	require.Empty(t, e.ok(t, "evidence", "verify"), "there is no tenant")
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
	// With a new key in front the old one still opens the end of the chain.
	require.Regexp(t, whole, environment{e[0], "TRANCHE_MASTER_KEY=" + secret.GenerateKey() + "," + strings.TrimPrefix(e[1], "TRANCHE_MASTER_KEY=")}.ok(t, "evidence", "verify"))

	pool := pgtest.OpenPool(t, url)
	remove := func(table, condition string) (gone, back string) {
		return fmt.Sprintf(`CREATE TABLE kept_%[1]s AS SELECT * FROM %[1]s WHERE %[2]s; DELETE FROM %[1]s WHERE %[2]s;`, table, condition),
			fmt.Sprintf(`INSERT INTO %[1]s SELECT * FROM kept_%[1]s; DROP TABLE kept_%[1]s;`, table)
	}
	flip := func(column string, position int) (there, back string) {
		sql := fmt.Sprintf(`UPDATE evidence_records SET %[1]s = set_byte(%[1]s, 7, get_byte(%[1]s, 7) # 1) WHERE position = %[2]d`, column, position)
		return sql, sql
	}
	type change struct{ there, back string }
	of := func(there, back string) change { return change{there, back} }
	records, heads := of(remove("evidence_records", "true")), of(remove("evidence_heads", "true"))
	edit := `UPDATE evidence_contents SET content = overlay(content PLACING chr(ascii(substr(content, 20, 1)) # 1) FROM 20 FOR 1) WHERE position = 2`
	for _, tc := range []struct {
		name string
		change
		want string
	}{
		{"flipped byte of a hash", of(flip("hash", 5)), `record 5 \(code_rejected, authorization .*\) is not what its hash says`},
		{"flipped byte of a commitment", of(flip("commitment", 8)), `record 8 \(authorization_created, .*\) is not what its hash says`},
		{"flipped byte of a content", change{edit, edit}, `record 2 \(code_requested, .*\) has a content that is not what it is committed to`},
		{"missing middle row", of(remove("evidence_records", "position = 4")), `record 4 is missing`},
		{"missing last row", of(remove("evidence_records", "position = 9")), `record 9 is missing`},
		{"missing content", of(remove("evidence_contents", "position = 7")), `record 7 \(signed, .*\) has lost its content, though its authorization was not deleted`},
		{
			"content of another authorization",
			change{
				`UPDATE evidence_contents SET authorization_id = '0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11' WHERE position = 7`,
				`UPDATE evidence_contents c SET authorization_id = r.authorization_id FROM evidence_records r WHERE r.tenant_id = c.tenant_id AND r.position = c.position`,
			},
			`record 7 \(signed, .*\) has a content that is kept as another authorization's`,
		},
		{"missing end", heads, `record 9 is after the end of the chain, which is not known any more`},
		{"missing records", records, `record 1 is missing`},
		{"missing everything", change{records.there + heads.there, records.back + heads.back}, `the record authorization_created of authorization .* is missing`},
		{
			"signed by hand",
			change{`UPDATE authorizations SET authorized_at = now() WHERE deleted_at IS NOT NULL`, `UPDATE authorizations SET authorized_at = NULL WHERE deleted_at IS NOT NULL`},
			`the record signed of authorization .* is missing`,
		},
	} {
		tamper(t, pool, tc.there)
		got := e.run(t, "evidence", "verify")
		require.Equal(t, 1, got.status, tc.name)
		require.Regexp(t, `(?m)^acme: BROKEN: `+tc.want+`$`, got.stdout, tc.name)
		require.Regexp(t, `(?m)^idle: no evidence$`, got.stdout, "the others are verified all the same")
		require.Equal(t, "tranche: at least one evidence chain is broken\n", got.stderr, tc.name)
		tamper(t, pool, tc.back)
	}
	require.Regexp(t, whole, e.ok(t, "evidence", "verify"))

	tamper(t, pool, `DELETE FROM evidence_records WHERE position = 9`)
	got := e.run(t, "evidence", "verify", "--tenant", "acme", "-o", "json")
	require.Equal(t, 1, got.status)
	require.NoError(t, json.Unmarshal([]byte(got.stdout), &found))
	require.Equal(t, []any{false, 9.0, "record 9 is missing"}, []any{found["isWhole"], found["brokenPosition"], found["broken"]})

	require.Equal(t, result{stderr: "tranche: there is no tenant of this slug\n", status: 1}, e.run(t, "evidence", "verify", "--tenant", "nobody"))
	got = environment{e[0], "TRANCHE_MASTER_KEY=" + secret.GenerateKey()}.run(t, "evidence", "verify")
	require.Equal(t, 1, got.status)
	require.Contains(t, got.stderr, "sealed under a master key that is not configured")
}
