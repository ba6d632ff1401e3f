package api_test

import (
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/mail"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-smtp"
	"github.com/stretchr/testify/require"

	"tranche/cmd/tranche/service"
	"tranche/internal/apitest"
	"tranche/internal/identity"
	"tranche/internal/message"
)

// lineOfDigits finds the code, which the default template has alone on a line.
var lineOfDigits = regexp.MustCompile(`(?m)^([0-9]{6,10})\r?$`)

// postOffice is an SMTP server in this process that keeps what it takes.
type postOffice struct {
	mu      sync.Mutex
	letters map[string][]string // by recipient
}

type postSession struct {
	office *postOffice
	to     string
}

func (p *postOffice) NewSession(*smtp.Conn) (smtp.Session, error) {
	return &postSession{office: p}, nil
}

func (*postSession) Mail(string, *smtp.MailOptions) error { return nil }
func (*postSession) Reset()                               {}
func (*postSession) Logout() error                        { return nil }

func (s *postSession) Rcpt(to string, _ *smtp.RcptOptions) error {
	if strings.HasPrefix(to, "refused") {
		return &smtp.SMTPError{Code: 550, Message: "no such user " + to}
	}
	s.to = to
	return nil
}

func (s *postSession) Data(r io.Reader) error {
	letter, err := mail.ReadMessage(r)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(letter.Body)
	s.office.mu.Lock()
	defer s.office.mu.Unlock()
	s.office.letters[s.to] = append(s.office.letters[s.to], string(text))
	return err
}

// code waits for the nth letter to a recipient and returns the code in it.
func (p *postOffice) code(t *testing.T, to string, nth int) string {
	t.Helper()
	var text string
	require.Eventually(t, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		if len(p.letters[to]) < nth {
			return false
		}
		text = p.letters[to][nth-1]
		return true
	}, 20*time.Second, 10*time.Millisecond)
	found := lineOfDigits.FindStringSubmatch(text)
	require.NotNil(t, found, text)
	return found[1]
}

func (p *postOffice) count(to string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.letters[to])
}

// openPostOffice serves SMTP until the test ends.
func openPostOffice(t *testing.T) (*postOffice, message.Sender) {
	t.Helper()
	office := &postOffice{letters: map[string][]string{}}
	server := smtp.NewServer(office)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	sender, err := message.NewSMTP(message.SMTPConfig{URL: "smtp+insecure://" + listener.Addr().String(), From: "no-reply@acme.example"})
	require.NoError(t, err)
	return office, sender
}

// gateway is a provider of SMS that answers as it is told.
type gateway struct {
	mu       sync.Mutex
	handle   map[string]func(w http.ResponseWriter, r *http.Request, try int) // by number
	messages map[string][]gatewayMessage
}

type gatewayMessage struct{ key, body string }

func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	to := regexp.MustCompile(`\+[0-9]+`).FindString(string(body))
	g.mu.Lock()
	g.messages[to] = append(g.messages[to], gatewayMessage{r.Header.Get("Idempotency-Key"), string(body)})
	try, handle := len(g.messages[to]), g.handle[to]
	g.mu.Unlock()
	if handle != nil {
		handle(w, r, try)
		return
	}
	fmt.Fprintf(w, `{"sid":"SM-%d"}`, try)
}

func (g *gateway) on(to string, handle func(w http.ResponseWriter, r *http.Request, try int)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.handle[to] = handle
}

func (g *gateway) received(to string) []gatewayMessage {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]gatewayMessage(nil), g.messages[to]...)
}

func openGateway(t *testing.T) (*gateway, message.Sender) {
	t.Helper()
	g := &gateway{handle: map[string]func(http.ResponseWriter, *http.Request, int){}, messages: map[string][]gatewayMessage{}}
	server := httptest.NewServer(g)
	t.Cleanup(server.Close)
	sender, err := message.NewGateway(message.GatewayConfig{
		URL: server.URL, ContentType: "application/json", Body: `{"to":"{{to}}","text":"{{text}}"}`, MessageID: "sid",
	}, time.Now)
	require.NoError(t, err)
	return g, sender
}

// desk is a service that signs, and where its codes go.
type desk struct {
	*apitest.Service
	office  *postOffice
	gateway *gateway
}

// openDesk starts a service that sends e-mail and SMS, but no WhatsApp.
func openDesk(t *testing.T, options ...func(*service.Config)) *desk {
	t.Helper()
	d := &desk{}
	var email, sms message.Sender
	d.office, email = openPostOffice(t)
	d.gateway, sms = openGateway(t)
	d.Service = apitest.Start(t, append(options, func(c *service.Config) {
		c.Senders = message.Senders{message.Email: email, message.SMS: sms}
	})...)
	return d
}

// signer is a tenant's admin with an authorization to sign.
type signer struct {
	*desk
	*apitest.Caller
	tenant *apitest.Tenant
	id     string // of the authorization
}

func (s *signer) path(rest string) string { return "/v1/authorizations/" + s.id + rest }

func (d *desk) signer(t *testing.T) *signer {
	t.Helper()
	tenant := d.Tenant(t)
	s := &signer{desk: d, Caller: tenant.As(t, identity.RoleAdmin), tenant: tenant}
	s.id = s.create(t)
	return s
}

// create makes one more authorization.
func (s *signer) create(t *testing.T) string {
	t.Helper()
	return s.Post(t, "/v1/authorizations", map[string]any{
		"tenant": s.tenant.Slug, "key": "credit-report", "identityKey": "borrowerId", "identityValue": "B-1001",
	}).Expect(http.StatusCreated).Text("id")
}

func byEmail(to string) map[string]any {
	return map[string]any{"value": to, "contactMethod": "email", "templateId": "default"}
}

// start asks for a code and returns it with its otpId.
func (s *signer) start(t *testing.T, to string) (otpID, code string) {
	t.Helper()
	before := s.office.count(to)
	otpID = s.Post(t, s.path("/signatures"), byEmail(to)).Expect(http.StatusCreated).Text("otpId")
	return otpID, s.office.code(t, to, before+1)
}

func (s *signer) attempt(t *testing.T, otpID, code string) *apitest.Answer {
	t.Helper()
	return s.Post(t, s.path("/signatures/attempt"), map[string]any{"otpId": otpID, "code": code})
}

// otherThan is another code of the same length.
func otherThan(code string) string {
	return strings.Map(func(r rune) rune { return '0' + (r-'0'+1)%10 }, code)
}

// exec changes what no caller can: the past.
func (d *desk) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	_, err := d.Pool.Exec(t.Context(), sql, args...)
	require.NoError(t, err)
}

// rest lets the pause between two codes pass.
func (s *signer) rest(t *testing.T) {
	t.Helper()
	s.exec(t, `UPDATE one_time_passwords SET created_at = created_at - interval '61 seconds' WHERE tenant_id = $1`, s.tenant.ID)
}

func TestAuthorizations(t *testing.T) {
	t.Parallel()
	d := openDesk(t)
	for name, test := range map[string]func(*testing.T, *desk){
		"signing":                 testSigning,
		"record":                  testAuthorizationRecord,
		"create refuses":          testAuthorizationCreateRefuses,
		"change":                  testAuthorizationChange,
		"list":                    testAuthorizationList,
		"deletion":                testAuthorizationDeletion,
		"attachments":             testAuthorizationAttachments,
		"signing refuses":         testSigningRefuses,
		"attempt refuses":         testAttemptRefuses,
		"limits":                  testSendLimits,
		"limits in parallel":      testSendLimitsInParallel,
		"wrong ones in parallel":  testWrongAttemptsInParallel,
		"right ones in parallel":  testRightAttemptsInParallel,
		"templates":               testMessageTemplates,
		"gateway":                 testGatewayDelivery,
		"refused by the provider": testRefusedDelivery,
		"never sent late":         testNeverSentLate,
		"evidence":                testEvidence,
		"idempotency keys":        testConsentIdempotency,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, d)
		})
	}
}

func testSigning(t *testing.T, d *desk) {
	t.Helper()
	s := d.signer(t)
	otpID, code := s.start(t, "ana@example.com")
	require.Len(t, code, 6)

	before := s.Get(t, s.path("")).Expect(http.StatusOK)
	require.Nil(t, before.Value("authorizedAt"))
	require.Equal(t, false, before.Value("hasSignatures"))
	require.Empty(t, s.Get(t, s.path("/signatures")).Expect(http.StatusOK).Value("data"))

	problem := s.attempt(t, otpID, otherThan(code)).ExpectProblem(http.StatusBadRequest, "VALIDATION_ERROR", "")
	require.Contains(t, problem.Message, "4 attempts are left")
	signed := s.attempt(t, otpID, code).Expect(http.StatusAccepted)
	require.Empty(t, signed.Body)

	after := s.Get(t, s.path("")).Expect(http.StatusOK)
	require.Regexp(t, timePattern, after.Text("authorizedAt"))
	require.Equal(t, true, after.Value("hasSignatures"))
	signatures := s.Get(t, s.path("/signatures")).Expect(http.StatusOK)
	require.Equal(t, []string{otpID, "email", "a***@example.com", "default", "smtp", "2", after.Text("authorizedAt")}, []string{
		signatures.Text("data[0].otpId"), signatures.Text("data[0].contactMethod"), signatures.Text("data[0].contact"),
		signatures.Text("data[0].templateId"), signatures.Text("data[0].provider"), signatures.Text("data[0].attempts"), signatures.Text("data[0].signedAt"),
	})
	require.Equal(t, "<"+otpID+"@acme.example>", signatures.Text("data[0].providerMessageId"))

	// Once signed it stays as it is.
	s.attempt(t, otpID, code).ExpectProblem(http.StatusConflict, "CONFLICT", "")
	s.Post(t, s.path("/signatures"), byEmail("ana@example.com")).ExpectProblem(http.StatusConflict, "CONFLICT", "")
	s.Do(t, http.MethodPatch, s.path(""), map[string]any{"label": "x"}).ExpectProblem(http.StatusConflict, "CONFLICT", "")
}

// testConsentIdempotency repeats the calls that create something under their
// Idempotency-Key, the second of them within the pause between two codes.
func testConsentIdempotency(t *testing.T, d *desk) {
	t.Helper()
	s := d.signer(t)
	count := func(table string) (n int) {
		require.NoError(t, d.Pool.QueryRow(t.Context(), `SELECT count(*) FROM `+table+` WHERE tenant_id = $1`, s.tenant.ID).Scan(&n))
		return n
	}
	consent := func(key string) map[string]any {
		return map[string]any{"tenant": s.tenant.Slug, "key": key, "identityKey": "borrowerId", "identityValue": "B-1001"}
	}
	for _, tc := range []struct {
		path, table string
		body, other map[string]any
	}{
		{"/v1/authorizations", "authorizations", consent("credit-report"), consent("another")},
		{s.path("/signatures"), "one_time_passwords", byEmail("ana@example.com"), byEmail("bob@example.com")},
	} {
		key := apitest.Header{Name: "Idempotency-Key", Value: "once " + tc.table}
		first := s.Post(t, tc.path, tc.body, key).Expect(http.StatusCreated)
		before := count(tc.table)
		again := s.Post(t, tc.path, tc.body, key).Expect(http.StatusCreated)
		require.JSONEq(t, string(first.Body), string(again.Body))
		require.Equal(t, "true", again.Header.Get("Idempotency-Replayed"))
		s.Post(t, tc.path, tc.other, key).ExpectProblem(http.StatusBadRequest, "VALIDATION_ERROR", "")
		require.Equal(t, before, count(tc.table))
	}
}

// testAttemptRefuses has every state in which a code does not sign.
func testAttemptRefuses(t *testing.T, d *desk) {
	t.Helper()
	t.Run("expired", func(t *testing.T) {
		s := d.signer(t)
		otpID, code := s.start(t, "expired@example.com")
		s.exec(t, `UPDATE one_time_passwords SET expires_at = now() WHERE id = $1`, otpID)
		require.Contains(t, s.attempt(t, otpID, code).ExpectProblem(http.StatusBadRequest, "VALIDATION_ERROR", "").Message, "expired")
	})
	t.Run("exhausted", func(t *testing.T) {
		s := d.signer(t)
		otpID := s.Post(t, s.path("/signatures"), map[string]any{
			"value": "exhausted@example.com", "contactMethod": "email", "templateId": "default", "maxAttempts": 2, "codeSize": 10, "expiresIn": 60,
		}).Expect(http.StatusCreated).Text("otpId")
		code := s.office.code(t, "exhausted@example.com", 1)
		require.Len(t, code, 10)
		require.Contains(t, s.attempt(t, otpID, otherThan(code)).ExpectProblem(http.StatusBadRequest, "VALIDATION_ERROR", "").Message, "1 attempt is left")
		require.Contains(t, s.attempt(t, otpID, otherThan(code)).ExpectProblem(http.StatusBadRequest, "VALIDATION_ERROR", "").Message, "no attempts are left")
		require.Contains(t, s.attempt(t, otpID, code).ExpectProblem(http.StatusConflict, "CONFLICT", "").Message, "used up")
	})
	t.Run("superseded", func(t *testing.T) {
		s := d.signer(t)
		first, old := s.start(t, "superseded@example.com")
		s.rest(t)
		second, code := s.start(t, "superseded@example.com")
		require.Contains(t, s.attempt(t, first, old).ExpectProblem(http.StatusConflict, "CONFLICT", "").Message, "superseded")
		s.attempt(t, second, code).Expect(http.StatusAccepted)
	})
	t.Run("authorization expired", func(t *testing.T) {
		s := d.signer(t)
		otpID, code := s.start(t, "late@example.com")
		s.exec(t, `UPDATE authorizations SET expires_at = now() WHERE id = $1`, s.id)
		s.attempt(t, otpID, code).ExpectProblem(http.StatusConflict, "CONFLICT", "")
		s.Post(t, s.path("/signatures"), byEmail("late@example.com")).ExpectProblem(http.StatusConflict, "CONFLICT", "")
	})
	t.Run("unknown", func(t *testing.T) {
		s := d.signer(t)
		otpID, code := s.start(t, "unknown@example.com")
		unknown := s.attempt(t, unknownID, code).ExpectProblem(http.StatusNotFound, "NOT_FOUND", "")
		require.Equal(t, unknown.Message, s.attempt(t, "x", code).ExpectProblem(http.StatusNotFound, "NOT_FOUND", "").Message)
		// Another authorization's, and another tenant's, are as unknown.
		other := &signer{desk: d, Caller: s.Caller, tenant: s.tenant, id: s.create(t)}
		require.Equal(t, unknown.Message, other.attempt(t, otpID, code).ExpectProblem(http.StatusNotFound, "NOT_FOUND", "").Message)
		require.Equal(t, unknown.Message, d.signer(t).attempt(t, otpID, code).ExpectProblem(http.StatusNotFound, "NOT_FOUND", "").Message)
		s.attempt(t, otpID, code).Expect(http.StatusAccepted)
	})
	t.Run("malformed", func(t *testing.T) {
		s := d.signer(t)
		otpID, code := s.start(t, "malformed@example.com")
		for _, malformed := range []string{"", "12345", code + " ", "abcdef", strings.Repeat("1", 11), "１２３４５６"} {
			s.attempt(t, otpID, malformed).ExpectProblem(http.StatusBadRequest, "VALIDATION_ERROR", "", "code")
		}
		s.Post(t, s.path("/signatures/attempt"), map[string]any{}).ExpectProblem(http.StatusBadRequest, "VALIDATION_ERROR", "MISSING_REQUIRED_FIELD", "otpId", "code")
		s.attempt(t, otpID, code).Expect(http.StatusAccepted) // none of them counted
	})
}

func testWrongAttemptsInParallel(t *testing.T, d *desk) {
	t.Helper()
	s := d.signer(t)
	otpID, code := s.start(t, "wrong@example.com")
	statuses := s.race(t, otpID, otherThan(code), 200)
	require.Equal(t, map[int]int{http.StatusBadRequest: 5, http.StatusConflict: 195}, statuses)
	var attempts, rejected int
	require.NoError(t, s.Pool.QueryRow(t.Context(), `SELECT attempts FROM one_time_passwords WHERE id = $1`, otpID).Scan(&attempts))
	require.NoError(t, s.Pool.QueryRow(t.Context(), `SELECT count(*) FROM evidence_records WHERE authorization_id = $1 AND kind = 'code_rejected'`, s.id).Scan(&rejected))
	require.Equal(t, []int{5, 5}, []int{attempts, rejected})
	s.attempt(t, otpID, code).ExpectProblem(http.StatusConflict, "CONFLICT", "")
	require.Nil(t, s.Get(t, s.path("")).Value("authorizedAt"))
}

func testRightAttemptsInParallel(t *testing.T, d *desk) {
	t.Helper()
	s := d.signer(t)
	otpID, code := s.start(t, "right@example.com")
	require.Equal(t, map[int]int{http.StatusAccepted: 1, http.StatusConflict: 49}, s.race(t, otpID, code, 50))
	var signed int
	require.NoError(t, s.Pool.QueryRow(t.Context(), `SELECT count(*) FROM evidence_records WHERE authorization_id = $1 AND kind = 'signed'`, s.id).Scan(&signed))
	require.Equal(t, 1, signed)
}

// race makes n attempts at once and counts the answers by status.
func (s *signer) race(t *testing.T, otpID, code string, n int) map[int]int {
	t.Helper()
	statuses := make(chan int, n)
	var group sync.WaitGroup
	for range n {
		group.Go(func() { statuses <- s.attempt(t, otpID, code).Status })
	}
	group.Wait()
	close(statuses)
	counts := map[int]int{}
	for status := range statuses {
		counts[status]++
	}
	return counts
}

func testSendLimits(t *testing.T, d *desk) {
	t.Helper()
	t.Run("contact", func(t *testing.T) {
		s := d.signer(t)
		again := func() *apitest.Answer {
			other := &signer{desk: d, Caller: s.Caller, tenant: s.tenant, id: s.create(t)}
			return other.Post(t, other.path("/signatures"), byEmail("Often@Example.com"))
		}
		for i := range 5 {
			again().Expect(http.StatusCreated)
			limited := again()
			limited.ExpectProblem(http.StatusTooManyRequests, "RATE_LIMITED", "")
			if i < 4 {
				require.Regexp(t, `^(60|59|58)$`, limited.Header.Get("Retry-After"))
			}
			s.rest(t)
		}
		limited := again()
		limited.ExpectProblem(http.StatusTooManyRequests, "RATE_LIMITED", "")
		require.Regexp(t, `^2[89][0-9]$`, limited.Header.Get("Retry-After"), "the first of the five is 305 s ago")
		s.exec(t, `UPDATE one_time_passwords SET created_at = created_at - interval '10 minutes' WHERE tenant_id = $1`, s.tenant.ID)
		for range 5 {
			again().Expect(http.StatusCreated)
			s.rest(t)
		}
		s.exec(t, `UPDATE one_time_passwords SET created_at = created_at - interval '10 minutes' WHERE tenant_id = $1`, s.tenant.ID)
		limited = again()
		limited.ExpectProblem(http.StatusTooManyRequests, "RATE_LIMITED", "")
		require.Len(t, limited.Header.Get("Retry-After"), 5, "most of a day")

		// Another tenant's limit is its own: no answer tells what others know.
		d.signer(t).Post(t, "/v1/authorizations", nil)
		stranger := d.signer(t)
		stranger.Post(t, stranger.path("/signatures"), byEmail("often@example.com")).Expect(http.StatusCreated)
	})
	t.Run("telephone number by two ways", func(t *testing.T) {
		s := d.signer(t)
		body := map[string]any{"value": "+525515550199", "contactMethod": "sms", "templateId": "default"}
		s.Post(t, s.path("/signatures"), body).Expect(http.StatusCreated)
		s.Post(t, s.path("/signatures"), body).ExpectProblem(http.StatusTooManyRequests, "RATE_LIMITED", "")
		s.Post(t, s.path("/signatures"), byEmail("other@example.com")).ExpectProblem(http.StatusTooManyRequests, "RATE_LIMITED", "")
	})
	t.Run("authorization", func(t *testing.T) {
		s := d.signer(t)
		for i := range 20 {
			s.Post(t, s.path("/signatures"), byEmail(fmt.Sprintf("many%d@example.com", i))).Expect(http.StatusCreated)
			s.rest(t)
		}
		problem := s.Post(t, s.path("/signatures"), byEmail("one-more@example.com")).ExpectProblem(http.StatusConflict, "CONFLICT", "")
		require.Contains(t, problem.Message, "20 codes")
	})
}

func testSendLimitsInParallel(t *testing.T, d *desk) {
	t.Helper()
	s := d.signer(t)
	ids := make([]string, 10)
	for i := range ids {
		ids[i] = s.create(t)
	}
	var group sync.WaitGroup
	statuses := make(chan int, len(ids))
	for _, id := range ids {
		group.Go(func() {
			statuses <- s.Post(t, "/v1/authorizations/"+id+"/signatures", byEmail("all-at-once@example.com")).Status
		})
	}
	group.Wait()
	close(statuses)
	counts := map[int]int{}
	for status := range statuses {
		counts[status]++
	}
	require.Equal(t, map[int]int{http.StatusCreated: 1, http.StatusTooManyRequests: 9}, counts)
}

func testSigningRefuses(t *testing.T, d *desk) {
	t.Helper()
	s := d.signer(t)
	body := func(change map[string]any) map[string]any {
		b := byEmail("refuse@example.com")
		maps.Copy(b, change)
		return b
	}
	for name, c := range map[string]struct {
		change map[string]any
		field  string
	}{
		"method":            {map[string]any{"contactMethod": "pigeon"}, "contactMethod"},
		"not configured":    {map[string]any{"contactMethod": "whatsapp", "value": "+525515550123"}, "contactMethod"},
		"template":          {map[string]any{"templateId": "unknown"}, "templateId"},
		"code too short":    {map[string]any{"codeSize": 5}, "codeSize"},
		"code too long":     {map[string]any{"codeSize": 11}, "codeSize"},
		"too short a time":  {map[string]any{"expiresIn": 59}, "expiresIn"},
		"too long a time":   {map[string]any{"expiresIn": 601}, "expiresIn"},
		"no attempts":       {map[string]any{"maxAttempts": 0}, "maxAttempts"},
		"too many attempts": {map[string]any{"maxAttempts": 6}, "maxAttempts"},
		"no address":        {map[string]any{"value": "ana"}, "value"},
		"two addresses":     {map[string]any{"value": "a@example.com,b@example.com"}, "value"},
		"with a name":       {map[string]any{"value": "Ana <ana@example.com>"}, "value"},
		"line break":        {map[string]any{"value": "ana@example.com\r\nBcc: b@example.com"}, "value"},
		"no domain":         {map[string]any{"value": "ana@localhost"}, "value"},
		"too long":          {map[string]any{"value": strings.Repeat("a", 250) + "@example.com"}, "value"},
		"number for e-mail": {map[string]any{"value": "+525515550123"}, "value"},
		"address for sms":   {map[string]any{"contactMethod": "sms"}, "value"},
		"national number":   {map[string]any{"contactMethod": "sms", "value": "5515550123"}, "value"},
		"number with words": {map[string]any{"contactMethod": "sms", "value": "+52 55 1555 0123"}, "value"},
		"impossible number": {map[string]any{"contactMethod": "sms", "value": "+1234567890123"}, "value"},
	} {
		t.Run(name, func(t *testing.T) {
			problem := s.Post(t, s.path("/signatures"), body(c.change)).ExpectProblem(http.StatusBadRequest, "VALIDATION_ERROR", "", c.field)
			for _, value := range c.change {
				if text, ok := value.(string); ok && len(text) > 8 {
					require.NotContains(t, fmt.Sprint(problem), text, "an error echoes no value")
				}
			}
		})
	}
	s.Post(t, s.path("/signatures"), map[string]any{}).
		ExpectProblem(http.StatusBadRequest, "VALIDATION_ERROR", "MISSING_REQUIRED_FIELD", "value", "contactMethod", "templateId")
	s.Post(t, "/v1/authorizations/"+unknownID+"/signatures", byEmail("refuse@example.com")).ExpectProblem(http.StatusNotFound, "NOT_FOUND", "")
}

func testGatewayDelivery(t *testing.T, d *desk) {
	t.Helper()
	bySMS := func(to string) map[string]any {
		return map[string]any{"value": to, "contactMethod": "sms", "templateId": "default"}
	}
	code := func(t *testing.T, m gatewayMessage) string {
		t.Helper()
		found := regexp.MustCompile(`\\n([0-9]{6})\\n`).FindStringSubmatch(m.body)
		require.NotNil(t, found, m.body)
		return found[1]
	}
	sign := func(t *testing.T, to string, tries int) {
		t.Helper()
		s := d.signer(t)
		otpID := s.Post(t, s.path("/signatures"), bySMS(to)).Expect(http.StatusCreated).Text("otpId")
		require.Eventually(t, func() bool { return len(d.gateway.received(to)) >= tries }, 30*time.Second, 10*time.Millisecond)
		received := d.gateway.received(to)
		for _, m := range received {
			require.Equal(t, gatewayMessage{otpID, received[0].body}, m, "a repetition is the same message under the same key")
		}
		s.attempt(t, otpID, code(t, received[0])).Expect(http.StatusAccepted)
		require.Eventually(t, func() bool {
			return s.Get(t, s.path("/signatures")).Text("data[0].providerMessageId") == fmt.Sprintf("SM-%d", tries)
		}, 20*time.Second, 20*time.Millisecond)
	}
	t.Run("taken", func(t *testing.T) {
		t.Parallel()
		sign(t, "+525515550101", 1)
	})
	t.Run("fails twice", func(t *testing.T) {
		t.Parallel()
		to := "+525515550102"
		s := d.signer(t)
		d.gateway.on(to, func(w http.ResponseWriter, _ *http.Request, try int) {
			if try < 3 {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			fmt.Fprintf(w, `{"sid":"SM-%d"}`, try)
		})
		otpID := s.Post(t, s.path("/signatures"), bySMS(to)).Expect(http.StatusCreated).Text("otpId")
		require.Eventually(t, func() bool {
			return strings.Contains(string(s.Get(t, s.path("/evidence")).Body), `"SM-3"`)
		}, 30*time.Second, 50*time.Millisecond)
		received := d.gateway.received(to)
		require.Len(t, received, 3)
		require.Equal(t, received[0], received[2])
		s.attempt(t, otpID, code(t, received[2])).Expect(http.StatusAccepted)
	})
	t.Run("answers late", func(t *testing.T) {
		t.Parallel()
		to := "+525515550103"
		s := d.signer(t)
		answer := make(chan struct{})
		d.gateway.on(to, func(w http.ResponseWriter, _ *http.Request, try int) {
			<-answer
			fmt.Fprintf(w, `{"sid":"SM-%d"}`, try)
		})
		otpID := s.Post(t, s.path("/signatures"), bySMS(to)).Expect(http.StatusCreated).Text("otpId")
		require.Eventually(t, func() bool { return len(d.gateway.received(to)) == 1 }, 20*time.Second, 10*time.Millisecond)
		// The signer is faster than the provider's answer: it comes to a code
		// that has been used, and is kept all the same.
		s.attempt(t, otpID, code(t, d.gateway.received(to)[0])).Expect(http.StatusAccepted)
		require.Empty(t, s.Get(t, s.path("/signatures")).Text("data[0].providerMessageId"))
		close(answer)
		require.Eventually(t, func() bool {
			return s.Get(t, s.path("/signatures")).Text("data[0].providerMessageId") == "SM-1"
		}, 20*time.Second, 20*time.Millisecond)
	})
	t.Run("cut off", func(t *testing.T) {
		t.Parallel()
		to := "+525515550104"
		d.gateway.on(to, func(w http.ResponseWriter, _ *http.Request, try int) {
			if try == 1 {
				panic(http.ErrAbortHandler)
			}
			fmt.Fprintf(w, `{"sid":"SM-%d"}`, try)
		})
		sign(t, to, 2)
	})
}

func testRefusedDelivery(t *testing.T, d *desk) {
	t.Helper()
	s := d.signer(t)
	otpID := s.Post(t, s.path("/signatures"), byEmail("refused@example.com")).Expect(http.StatusCreated).Text("otpId")
	require.Eventually(t, func() bool {
		return strings.Contains(string(s.Get(t, s.path("/evidence")).Body), "delivery_failed")
	}, 20*time.Second, 20*time.Millisecond)
	var isWiped bool
	require.NoError(t, s.Pool.QueryRow(t.Context(), `SELECT message IS NULL FROM one_time_passwords WHERE id = $1`, otpID).Scan(&isWiped))
	require.True(t, isWiped)
}

// testNeverSentLate holds a code back until it has expired.
func testNeverSentLate(t *testing.T, d *desk) {
	t.Helper()
	s := d.signer(t)
	to := "+525515550105"
	d.gateway.on(to, func(w http.ResponseWriter, _ *http.Request, _ int) { w.WriteHeader(http.StatusBadGateway) })
	otpID := s.Post(t, s.path("/signatures"), map[string]any{"value": to, "contactMethod": "sms", "templateId": "default"}).
		Expect(http.StatusCreated).Text("otpId")
	require.Eventually(t, func() bool { return len(d.gateway.received(to)) >= 1 }, 20*time.Second, 10*time.Millisecond)
	s.exec(t, `UPDATE one_time_passwords SET expires_at = now() WHERE id = $1`, otpID)
	tried := len(d.gateway.received(to))
	require.Eventually(t, func() bool {
		return strings.Contains(string(s.Get(t, s.path("/evidence")).Body), "expired before it could be sent")
	}, 30*time.Second, 50*time.Millisecond)
	require.LessOrEqual(t, len(d.gateway.received(to)), tried+1, "at most a try that was under way")
	var isWiped bool
	require.NoError(t, s.Pool.QueryRow(t.Context(), `SELECT message IS NULL FROM one_time_passwords WHERE id = $1`, otpID).Scan(&isWiped))
	require.True(t, isWiped)
}

func TestMailbox(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "mail")
	d := &desk{Service: apitest.Start(t, func(c *service.Config) {
		c.Senders = message.Senders{message.WhatsApp: message.Folder{Dir: folder}}
	})}
	s := d.signer(t)
	otpID := s.Post(t, s.path("/signatures"), map[string]any{"value": "+525515550123", "contactMethod": "whatsapp", "templateId": "default"}).
		Expect(http.StatusCreated).Text("otpId")
	var text []byte
	require.Eventually(t, func() bool {
		var err error
		text, err = os.ReadFile(filepath.Join(folder, otpID+".whatsapp.txt"))
		return err == nil
	}, 20*time.Second, 10*time.Millisecond)
	s.attempt(t, otpID, lineOfDigits.FindStringSubmatch(string(text))[1]).Expect(http.StatusAccepted)
}
