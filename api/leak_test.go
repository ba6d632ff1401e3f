package api_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"tranche/internal/apitest"
	"tranche/internal/logging"
	"tranche/internal/server"
	"tranche/internal/targettest"
)

// safeBuffer is a buffer for concurrent log writers.
type safeBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// No secret is in the debug log or in any row of any table, including River's.
func TestNoSecretLeaks(t *testing.T) {
	t.Parallel()
	log := &safeBuffer{}
	d := openDesk(t, func(c *server.Config) {
		c.Log = slog.New(logging.NewHandler(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	})
	s := d.signer(t)
	var secrets []string
	for i, to := range []string{"first@example.com", "second@example.com"} {
		otpID := s.Post(t, s.path("/signatures"), map[string]any{
			"value": to, "contactMethod": "email", "templateId": "default", "codeSize": 10,
		}).Expect(http.StatusCreated).Text("otpId")
		code := s.office.code(t, to, 1)
		secrets = append(secrets, code, otherThan(code))
		s.attempt(t, otpID, otherThan(code)).Expect(http.StatusBadRequest)
		if i == 1 {
			s.attempt(t, otpID, code).Expect(http.StatusAccepted)
		}
		s.rest(t)
	}
	// The provider rejects this message and repeats it in its answer.
	s.id = s.create(t)
	s.Post(t, s.path("/signatures"), byEmail("refused@example.com")).Expect(http.StatusCreated)
	require.Eventually(t, func() bool {
		return bytes.Contains(s.Get(t, s.path("/evidence")).Body, []byte("delivery_failed"))
	}, 20*time.Second, 20*time.Millisecond)

	secrets = append(secrets, "first@example.com", "second@example.com", "refused@example.com", s.Secret, s.Token)
	secrets = append(append(secrets, s.refreshTokens(t)...), s.sendSecrets(t)...)
	for _, secret := range secrets {
		require.NotContains(t, log.String(), secret)
		require.Empty(t, d.rowsWith(t, secret, ""), "%q is in the database", secret)
	}
	require.Contains(t, log.String(), "a code was not sent", "the log was read")
	require.NotEmpty(t, d.rowsWith(t, s.id, ""), "the rows were read")
}

// refreshTokens returns two refresh tokens of one login. The first one is used.
func (s *signer) refreshTokens(t *testing.T) []string {
	t.Helper()
	const path = "/identity/resources/auth/v1/api-token"
	first := s.Anonymous().Post(t, path, map[string]any{"clientId": s.ClientID, "secret": s.Secret}).Expect(http.StatusOK).Text("refreshToken")
	second := s.Anonymous().Post(t, path+"/refresh", map[string]any{"refreshToken": first}).Expect(http.StatusOK).Text("refreshToken")
	return []string{first, second}
}

// sendSecrets runs workflows that send a secret and an access token to services that repeat
// them in successes and errors. It returns the secret and the token.
func (s *signer) sendSecrets(t *testing.T) []string {
	t.Helper()
	const key, token = "open sesame 4711", "granted-0815"
	bureau := targettest.New(t, targettest.WithAnswer(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/token":
			fmt.Fprintf(w, `{"access_token":%q}`, token)
			return
		case "/refuses":
			w.WriteHeader(http.StatusForbidden)
		}
		fmt.Fprintf(w, "%s %s %s", r.Header.Get("Authorization"), r.Header.Get("X-Key"), r.URL)
	}))
	s.Put(t, "/v1/secrets/bureau", map[string]any{"value": key, "hosts": []string{bureau.Address()}}).Expect(http.StatusOK)
	for _, path := range []string{"/answers", "/refuses"} {
		for i, auth := range []string{
			`{"type":"apiKey","secret":"bureau","query":"key"}`, `{"type":"basic","secret":"bureau","username":"u"}`,
			`{"type":"oauth2ClientCredentials","secret":"bureau","clientId":"c","tokenUrl":"` + bureau.URL + `/token"}`,
		} {
			alias := fmt.Sprint("sends-", path[1:], i)
			publishGraph(t, s.Caller, alias, `[{"id":"ask","type":"http-request","config":{"url":"`+bureau.URL+path+`",
				"auth":`+auth+`,"headers":{"X-Key":{"secret":"bureau"}}}}]`, `[]`)
			answer := s.Post(t, "/v1/workflows/"+alias+"/v1/execute", apitest.Raw(`{}`), apitest.Header{Name: "Idempotency-Key", Value: alias}).Expect(http.StatusOK)
			require.Equal(t, path == "/answers", strings.Contains(string(answer.Body), "[redacted]"), string(answer.Body))
		}
	}
	return []string{key, token, url.QueryEscape(key), base64.StdEncoding.EncodeToString([]byte("u:" + key))}
}

// rowsWith returns the tables that have a row with the text. If a tenant is given, only its
// rows count.
func (d *desk) rowsWith(t *testing.T, text, tenantID string) []string {
	t.Helper()
	rows, err := d.Pool.Query(t.Context(), `SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname IN ('public', 'river')`)
	require.NoError(t, err)
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Greater(t, len(tables), 20)
	var found []string
	for _, table := range tables {
		var n int
		query := fmt.Sprintf(`SELECT count(*) FROM %s AS r WHERE strpos(r::text, $1) > 0 AND strpos(r::text, $2) > 0`, table)
		require.NoError(t, d.Pool.QueryRow(t.Context(), query, text, tenantID).Scan(&n))
		if n > 0 {
			found = append(found, table)
		}
	}
	return found
}
