package api_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/mail"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-smtp"
	"github.com/stretchr/testify/require"

	"tranche/internal/apitest"
	"tranche/internal/identity"
	"tranche/internal/message"
	"tranche/internal/pgtest"
	"tranche/internal/server"
)

// lineOfDigits finds the code, which the default template has alone on a line.
var lineOfDigits = regexp.MustCompile(`(?m)^([0-9]{6,10})\r?$`)

// postOffice is an SMTP server that keeps the letters it accepts.
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

// letterTimeMax is long because a failed delivery is retried after five seconds, by
// either process.
const letterTimeMax = 90 * time.Second

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
	}, letterTimeMax, 10*time.Millisecond)
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

// gateway is an SMS provider whose answers a test sets.
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

// desk is a service with receivers for its codes.
type desk struct {
	*apitest.Service
	office  *postOffice
	gateway *gateway
	senders message.Senders
}

// openDesk starts a service that sends email and SMS, but no WhatsApp messages.
func openDesk(t *testing.T, options ...func(*server.Config)) *desk {
	t.Helper()
	d := &desk{}
	var email, sms message.Sender
	d.office, email = openPostOffice(t)
	d.gateway, sms = openGateway(t)
	d.senders = message.Senders{message.Email: email, message.SMS: sms}
	d.Service = apitest.Start(t, append(options, func(c *server.Config) {
		c.Senders = d.senders
	})...)
	return d
}

// signer is an admin of a tenant with an authorization to sign.
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

// create creates another authorization.
func (s *signer) create(t *testing.T) string {
	t.Helper()
	return s.Post(t, "/v1/authorizations", map[string]any{
		"tenant": s.tenant.Slug, "key": "credit-report", "identityKey": "borrowerId", "identityValue": "B-1001",
	}).Expect(http.StatusCreated).Text("id")
}

func byEmail(to string) map[string]any {
	return map[string]any{"value": to, "contactMethod": "email", "templateId": "default"}
}

// start requests a code and returns it with its otpId.
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

// otherThan returns a different code of the same length.
func otherThan(code string) string {
	return strings.Map(func(r rune) rune { return '0' + (r-'0'+1)%10 }, code)
}

// exec changes stored times and other state that the API cannot change.
func (d *desk) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	pgtest.Exec(t, d.Pool, sql, args...)
}

// retryDelivery makes the failed delivery of a code due now, so that a test need not
// wait for the backoff.
func (d *desk) retryDelivery(t *testing.T, otpID string) {
	t.Helper()
	d.exec(t, `UPDATE river.river_job SET state = 'available', scheduled_at = now()
		WHERE kind = 'otp_delivery' AND args ->> 'otp_id' = $1 AND state IN ('available', 'retryable') AND scheduled_at > now()`, otpID)
}

// rest ends the minimum time between two codes.
func (s *signer) rest(t *testing.T) {
	t.Helper()
	pgtest.AgeOneTimePasswords(t, s.Pool, s.tenant.ID, 61*time.Second)
}
