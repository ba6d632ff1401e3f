package message_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"math/big"
	"mime"
	"net"
	"net/mail"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
	"github.com/stretchr/testify/require"

	"tranche/internal/message"
)

// mailServer is an SMTP server in the test process.
type mailServer struct {
	mu       sync.Mutex
	letters  []string
	wasTLS   []bool
	refuse   *smtp.SMTPError // the response to RCPT
	password string          // demanded where not empty
	hang     chan struct{}   // where not nil, DATA waits for it
}

type mailSession struct {
	server *mailServer
	conn   *smtp.Conn
	in     bool
}

func (m *mailServer) NewSession(c *smtp.Conn) (smtp.Session, error) {
	return &mailSession{server: m, conn: c}, nil
}

func (s *mailSession) AuthMechanisms() []string { return []string{sasl.Plain} }

func (s *mailSession) Auth(string) (sasl.Server, error) {
	return sasl.NewPlainServer(func(_, username, password string) error {
		if username != "user" || password != s.server.password {
			return smtp.ErrAuthFailed
		}
		s.in = true
		return nil
	}), nil
}

func (s *mailSession) Mail(string, *smtp.MailOptions) error {
	if s.server.password != "" && !s.in {
		return smtp.ErrAuthRequired
	}
	return nil
}

func (s *mailSession) Rcpt(string, *smtp.RcptOptions) error {
	if s.server.refuse != nil {
		return s.server.refuse
	}
	return nil
}

func (s *mailSession) Data(r io.Reader) error {
	text, err := io.ReadAll(r)
	if s.server.hang != nil {
		<-s.server.hang
	}
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	_, isTLS := s.conn.TLSConnectionState()
	s.server.letters = append(s.server.letters, string(text))
	s.server.wasTLS = append(s.server.wasTLS, isTLS)
	return err
}

func (*mailSession) Reset()        {}
func (*mailSession) Logout() error { return nil }

// start starts the server and returns its address and its certificate.
func (m *mailServer) start(t *testing.T, implicitTLS bool) (string, *x509.CertPool) {
	t.Helper()
	certificate, pool := selfSigned(t)
	server := smtp.NewServer(m)
	server.Domain = "localhost"
	server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{certificate}}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	if implicitTLS {
		listener = tls.NewListener(listener, server.TLSConfig)
	}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return address, pool
}

func selfSigned(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	parsed, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

func letter() message.Message {
	return message.Message{
		ID: "0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a12", Channel: message.Email, To: "ana@example.com",
		Subject: "Código para crédito", Text: "Your code:\n\n402971\n",
	}
}

func newSMTP(t *testing.T, config message.SMTPConfig) *message.SMTP {
	t.Helper()
	if config.From == "" {
		config.From = "Acme Lending <no-reply@acme.example>"
	}
	s, err := message.NewSMTP(config)
	require.NoError(t, err)
	return s
}

func TestSMTPWithTLSAndPassword(t *testing.T) {
	t.Parallel()
	for scheme, implicit := range map[string]bool{"smtp": false, "smtps": true} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			server := &mailServer{password: "p@ss:w/rd"}
			address, pool := server.start(t, implicit)
			sender := newSMTP(t, message.SMTPConfig{URL: scheme + "://user:p%40ss%3Aw%2Frd@" + address, RootCAs: pool})
			receipt, err := sender.Send(t.Context(), letter())
			require.NoError(t, err)
			require.Equal(t, message.Receipt{Provider: "smtp", MessageID: "<0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a12@acme.example>"}, receipt)

			require.Equal(t, []bool{true}, server.wasTLS)
			got, err := mail.ReadMessage(strings.NewReader(server.letters[0]))
			require.NoError(t, err)
			require.Equal(t, receipt.MessageID, got.Header.Get("Message-Id"))
			require.Equal(t, "auto-generated", got.Header.Get("Auto-Submitted"))
			to, err := got.Header.AddressList("To")
			require.NoError(t, err)
			require.Equal(t, "ana@example.com", to[0].Address)
			body, err := io.ReadAll(got.Body)
			require.NoError(t, err)
			require.Contains(t, strings.Split(strings.ReplaceAll(string(body), "\r\n", "\n"), "\n"), "402971", "the code is alone on a line")
		})
	}
}

// Errors contain no part of the message.
func TestSMTPErrors(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		server    *mailServer
		url       string // with HOST for the address
		trust     bool
		permanent bool
		reason    string
	}{
		"unknown mailbox": {
			&mailServer{refuse: &smtp.SMTPError{Code: 550, Message: "no such user ana@example.com"}}, "smtp://HOST", true, true, "550",
		},
		"greylisted": {
			&mailServer{refuse: &smtp.SMTPError{Code: 451, Message: "come back, ana@example.com"}}, "smtp://HOST", true, false, "451",
		},
		"wrong password":    {&mailServer{password: "right"}, "smtp://user:wr0ng@HOST", true, false, "rejected the login"},
		"certificate":       {&mailServer{}, "smtp://HOST", false, false, "could not be reached"},
		"plain text server": {&mailServer{}, "smtps://HOST", true, false, "could not be reached"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address, pool := c.server.start(t, false)
			config := message.SMTPConfig{URL: strings.Replace(c.url, "HOST", address, 1)}
			if c.trust {
				config.RootCAs = pool
			}
			_, err := newSMTP(t, config).Send(t.Context(), letter())
			requireError(t, err, c.permanent, c.reason)
			require.Empty(t, c.server.letters)
		})
	}
}

// A subject is shown literally, even if it contains encoded words.
func TestSubjectIsLiteral(t *testing.T) {
	t.Parallel()
	server := &mailServer{}
	address, _ := server.start(t, false)
	sender := newSMTP(t, message.SMTPConfig{URL: "smtp+insecure://" + address})
	for i, subject := range []string{
		"Your code for a loan",
		"Código para crédito =?utf-8?Q?x?=",
		"Your code for =?utf-8?Q?Transfer_=E2=82=AC_1_000_000?=",
		strings.Repeat("=?utf-8?b?eA==?= and ", 20),
	} {
		m := letter()
		m.Subject = subject
		_, err := sender.Send(t.Context(), m)
		require.NoError(t, err)
		got, err := mail.ReadMessage(strings.NewReader(server.letters[i]))
		require.NoError(t, err)
		shown, err := new(mime.WordDecoder).DecodeHeader(got.Header.Get("Subject"))
		require.NoError(t, err)
		require.Equal(t, subject, shown)
	}
}

func requireError(t *testing.T, err error, permanent bool, reason string) {
	t.Helper()
	var refused *message.Error
	require.ErrorAs(t, err, &refused)
	require.Equal(t, permanent, refused.Permanent, err)
	require.Contains(t, err.Error(), reason)
	for _, secret := range []string{"402971", "ana@", "example.com", "5550100", "wr0ng", "s3cret"} {
		require.NotContains(t, err.Error(), secret)
	}
}

func TestSMTPHangs(t *testing.T) {
	t.Parallel()
	server := &mailServer{hang: make(chan struct{})}
	address, _ := server.start(t, false)
	t.Cleanup(func() { close(server.hang) })
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	begun := time.Now()
	_, err := newSMTP(t, message.SMTPConfig{URL: "smtp+insecure://" + address}).Send(ctx, letter())
	require.Error(t, err)
	require.Less(t, time.Since(begun), 16*time.Second)
	var refused *message.Error
	require.True(t, errors.As(err, &refused) && !refused.Permanent)
}

func TestSMTPConfiguration(t *testing.T) {
	t.Parallel()
	for url, from := range map[string]string{
		"smtp://mail.example":        "not an address",
		"http://mail.example":        "a@b.example",
		"smtp://":                    "a@b.example",
		"smtp://mail.example/path":   "a@b.example",
		"smtp://mail.example:noport": "a@b.example",
		"smtp://mail.example:0":      "a@b.example",
		"smtp://mail.example:65536":  "a@b.example",
	} {
		_, err := message.NewSMTP(message.SMTPConfig{URL: url, From: from})
		require.Error(t, err, url)
	}
}
