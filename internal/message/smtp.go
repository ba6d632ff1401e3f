package message

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"mime"
	"net"
	"net/mail"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	gomail "github.com/wneessen/go-mail"
)

// sendTimeMax bounds one attempt of any sender.
const sendTimeMax = 15 * time.Second

// SMTP sends e-mail through a server.
type SMTP struct {
	host    string
	options []gomail.Option
	from    mail.Address
	domain  string // of Message-IDs
}

// SMTPConfig configures the server and the sender of e-mail.
type SMTPConfig struct {
	// URL is smtp://[user:password@]host[:port]. The scheme smtp requires STARTTLS, smtps
	// uses TLS from the first byte, and smtp+insecure uses no TLS.
	URL string
	// From is the sender's address, with or without a name.
	From string
	// RootCAs verify the server. If it is nil, those of the system do.
	RootCAs *x509.CertPool
}

// NewSMTP checks the configuration; it does not connect.
func NewSMTP(config SMTPConfig) (*SMTP, error) {
	from, err := mail.ParseAddress(config.From)
	if err != nil {
		return nil, errors.New("the sender of e-mail must be an address")
	}
	address, err := url.Parse(config.URL)
	if err != nil || address.Hostname() == "" || strings.Trim(address.Path, "/") != "" {
		return nil, errors.New("the URL of the SMTP server must be smtp://user:password@host:port or smtps://")
	}
	s := &SMTP{host: address.Hostname(), from: *from, domain: from.Address[strings.LastIndexByte(from.Address, '@')+1:]}
	s.options = []gomail.Option{
		gomail.WithTLSConfig(&tls.Config{ServerName: s.host, RootCAs: config.RootCAs, MinVersion: tls.VersionTLS12}),
	}
	port, auth := 587, gomail.SMTPAuthAutoDiscover
	switch address.Scheme {
	case "smtp":
		s.options = append(s.options, gomail.WithTLSPolicy(gomail.TLSMandatory))
	case "smtps":
		port = 465
		s.options = append(s.options, gomail.WithSSL())
	case "smtp+insecure":
		port, auth = 25, gomail.SMTPAuthPlainNoEnc
		s.options = append(s.options, gomail.WithTLSPolicy(gomail.NoTLS))
	default:
		return nil, errors.New("the URL of the SMTP server must begin with smtp://, smtps:// or smtp+insecure://")
	}
	if address.Port() != "" {
		if port, err = strconv.Atoi(address.Port()); err != nil || port < 1 || port > math.MaxUint16 {
			return nil, fmt.Errorf("the port of the SMTP server must be a number from 1 to %d", math.MaxUint16)
		}
	}
	s.options = append(s.options, gomail.WithPort(port))
	if address.User != nil {
		password, _ := address.User.Password()
		s.options = append(s.options, gomail.WithSMTPAuth(auth), gomail.WithUsername(address.User.Username()), gomail.WithPassword(password))
	}
	return s, nil
}

// Send sends one e-mail over a connection of its own.
func (s *SMTP) Send(ctx context.Context, m Message) (Receipt, error) {
	ctx, cancel := context.WithTimeout(ctx, sendTimeMax)
	defer cancel()
	letter, id, err := compose(m, s.from, s.domain)
	if err != nil {
		return Receipt{}, err
	}
	// go-mail observes the context only while it connects. Its timeout bounds each later
	// step.
	deadline, _ := ctx.Deadline()
	timeout := max(time.Until(deadline), time.Millisecond)
	client, err := gomail.NewClient(s.host, append(slices.Clone(s.options), gomail.WithTimeout(timeout))...)
	if err != nil {
		return Receipt{}, failed("cannot create the SMTP client")
	}
	if err := client.DialAndSendWithContext(ctx, letter); err != nil && !letter.IsDelivered() { // after delivery only QUIT can fail
		return Receipt{}, smtpError(err)
	}
	return Receipt{Provider: "smtp", MessageID: id}, nil
}

// smtpError returns an error without the text of err, which contains addresses.
func smtpError(err error) *Error {
	var network net.Error
	if sending, ok := errors.AsType[*gomail.SendError](err); ok {
		code := sending.ErrorCode()
		if code >= 500 && !sending.IsTemp() {
			return rejected("the SMTP server rejected the message with code %d", code)
		}
		if code > 0 {
			return failed("the SMTP server postponed the message with code %d", code)
		}
		return failed("the connection to the SMTP server broke")
	}
	if errors.As(err, &network) && network.Timeout() || errors.Is(err, context.DeadlineExceeded) {
		return failed("the SMTP server did not respond in time")
	}
	return failed("the SMTP server could not be reached or rejected the login")
}

// compose builds the e-mail of a message.
func compose(m Message, from mail.Address, domain string) (letter *gomail.Msg, id string, err error) {
	letter = gomail.NewMsg()
	letter.FromMailAddress(&from)
	to, err := mail.ParseAddress(m.To)
	if err != nil {
		return nil, "", rejected("the recipient is not an e-mail address")
	}
	letter.ToMailAddress(&mail.Address{Address: to.Address})
	letter.Subject(encodeSubject(m.Subject))
	letter.SetDate()
	id = fmt.Sprintf("%s@%s", m.ID, domain)
	letter.SetMessageIDWithValue(id)
	letter.SetGenHeader(gomail.Header("Auto-Submitted"), "auto-generated") // asks for no automatic replies (RFC 3834)
	letter.SetBodyString(gomail.TypeTextPlain, m.Text)
	return letter, "<" + id + ">", nil
}

// subjectWordBytes keeps an encoded word within its limit of 75 characters.
const subjectWordBytes = 45

// encodeSubject encodes a subject that contains encoded words (RFC 2047), so that mail
// programs show it literally. go-mail encodes other subjects if necessary.
func encodeSubject(text string) string {
	const charset = "utf-8"
	if !strings.Contains(text, "=?") || mime.QEncoding.Encode(charset, text) != text {
		return text
	}
	var words []string
	for part := range slices.Chunk([]byte(text), subjectWordBytes) {
		words = append(words, "=?"+charset+"?b?"+base64.StdEncoding.EncodeToString(part)+"?=")
	}
	return strings.Join(words, " ")
}
