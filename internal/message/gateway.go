package message

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Format of a Standard Webhooks secret.
const (
	secretPrefix                   = "whsec_"
	secretBytesMin, secretBytesMax = 24, 64
)

const (
	responseBytesMax = 64 << 10
	messageIDMax     = 255 // characters of a provider's id that are stored
)

// GatewayConfig describes the HTTP API of a provider of SMS or WhatsApp.
type GatewayConfig struct {
	// URL receives a POST for each message.
	URL string
	// Header has further headers, one "Name: value" a line. It may have credentials.
	Header string
	// Body is the template of the body. Send replaces {{to}}, {{text}} and {{id}} and
	// escapes the values for ContentType.
	Body string
	// ContentType is application/json or application/x-www-form-urlencoded.
	ContentType string
	// Secret signs each request with Standard Webhooks: whsec_ and 24 to 64 bytes in
	// base64. Without it, requests are not signed.
	Secret string
	// MessageID is the path of the provider's id in a JSON response, for example sid or
	// messages.0.id. It may be empty.
	MessageID string
	// Success is a condition that a JSON response must meet, as path=value, for example
	// messages.0.status=0. Without it, the status code alone decides.
	Success string
}

// Gateway sends messages over the HTTP API of a provider.
type Gateway struct {
	config GatewayConfig
	header http.Header
	secret []byte // nil if requests are not signed
	escape func(string) string
	client *http.Client
	clock  func() time.Time
}

// NewGateway checks the configuration; it does not connect.
func NewGateway(config GatewayConfig, clock func() time.Time) (*Gateway, error) {
	address, err := url.Parse(config.URL)
	if err != nil || address.Scheme != "http" && address.Scheme != "https" || address.Host == "" {
		return nil, errors.New("the URL of the gateway must be http:// or https:// with a host")
	}
	g := &Gateway{config: config, header: http.Header{}, clock: clock}
	for line := range strings.Lines(config.Header) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		name, value, found := strings.Cut(line, ":")
		if !found || strings.ContainsAny(name, " \t") {
			return nil, errors.New("the headers of the gateway must be lines such as Name: value")
		}
		g.header.Add(textproto.CanonicalMIMEHeaderKey(name), strings.TrimSpace(value))
	}
	if g.secret, err = signingKey(config.Secret); err != nil {
		return nil, err
	}
	kind, _, err := mime.ParseMediaType(config.ContentType)
	switch {
	case err == nil && kind == "application/json":
		g.escape = jsonText
		if !json.Valid([]byte(g.fill(Message{}))) {
			return nil, errors.New("the body of the gateway must be JSON")
		}
	case err == nil && kind == "application/x-www-form-urlencoded":
		g.escape = url.QueryEscape
	default:
		return nil, errors.New("the content type of the gateway must be application/json or application/x-www-form-urlencoded")
	}
	for _, needed := range []string{"{{to}}", "{{text}}"} {
		if !strings.Contains(config.Body, needed) {
			return nil, fmt.Errorf("the body of the gateway must contain %s", needed)
		}
	}
	g.client = &http.Client{
		// The operator configures the address, so the operator's proxy may be used.
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, MaxResponseHeaderBytes: responseBytesMax, ForceAttemptHTTP2: true},
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse // one-time passwords go to the configured address only
		},
		Timeout: sendTimeMax,
	}
	return g, nil
}

// signingKey parses a Standard Webhooks secret. It returns nil for an empty secret.
func signingKey(secret string) ([]byte, error) {
	if secret == "" {
		return nil, nil
	}
	text, found := strings.CutPrefix(secret, secretPrefix)
	key, err := base64.StdEncoding.DecodeString(text)
	if !found || err != nil || len(key) < secretBytesMin || len(key) > secretBytesMax {
		return nil, fmt.Errorf("the secret of the gateway must be %s and %d to %d bytes in base64", secretPrefix, secretBytesMin, secretBytesMax)
	}
	return key, nil
}

// jsonText escapes s for use between the quotes of a JSON string.
func jsonText(s string) string {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(s) // never fails for a string
	return strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(b.String()), `"`), `"`)
}

func (g *Gateway) fill(m Message) string {
	return strings.NewReplacer(
		"{{to}}", g.escape(m.To), "{{text}}", g.escape(m.Text), "{{id}}", g.escape(m.ID),
	).Replace(g.config.Body)
}

// Send posts one message. Its Idempotency-Key is the message's id.
func (g *Gateway) Send(ctx context.Context, m Message) (Receipt, error) {
	content := g.fill(m)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, g.config.URL, strings.NewReader(content))
	if err != nil {
		return Receipt{}, rejected("cannot build the request to the gateway")
	}
	request.Header.Set("Content-Type", g.config.ContentType)
	request.Header.Set("Idempotency-Key", m.ID)
	g.sign(request.Header, m.ID, content)
	maps.Copy(request.Header, g.header)
	response, err := g.client.Do(request)
	if err != nil {
		return Receipt{}, gatewayError(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, responseBytesMax))
	if err != nil {
		return Receipt{}, gatewayError(err)
	}
	return g.receipt(response.StatusCode, body)
}

// sign adds the headers of Standard Webhooks.
func (g *Gateway) sign(header http.Header, id, body string) {
	if g.secret == nil {
		return
	}
	at := strconv.FormatInt(g.clock().Unix(), 10)
	mac := hmac.New(sha256.New, g.secret)
	mac.Write([]byte(id + "." + at + "." + body))
	header.Set("Webhook-Id", id)
	header.Set("Webhook-Timestamp", at)
	header.Set("Webhook-Signature", "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
}

func gatewayError(err error) *Error {
	var timeout interface{ Timeout() bool }
	if errors.As(err, &timeout) && timeout.Timeout() || errors.Is(err, context.DeadlineExceeded) {
		return failed("the gateway did not respond in time")
	}
	return failed("the gateway could not be reached, or the connection broke")
}

// receipt returns the receipt or the error that a response means.
func (g *Gateway) receipt(status int, body []byte) (Receipt, error) {
	switch {
	case status == http.StatusRequestTimeout, status == http.StatusTooEarly, status == http.StatusTooManyRequests,
		status == http.StatusConflict, // the first request with this Idempotency-Key is in progress
		status >= http.StatusInternalServerError:
		return Receipt{}, failed("the gateway responded with status %d", status)
	case status < http.StatusOK || status >= http.StatusMultipleChoices:
		return Receipt{}, rejected("the gateway responded with status %d", status)
	}
	value := decode(body)
	if path, want, found := strings.Cut(g.config.Success, "="); found && at(value, path) != want {
		return Receipt{}, rejected("the gateway accepted the request and rejected the message")
	}
	return Receipt{Provider: "gateway", MessageID: cleanID(at(value, g.config.MessageID))}, nil
}

// decode decodes a JSON body. It keeps numbers as text, because an id may have more digits
// than a float64. It returns nil if the body is not JSON.
func decode(body []byte) (value any) {
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	if decoder.Decode(&value) != nil {
		return nil
	}
	return value
}

// cleanID removes control characters from a provider's id and limits its length. An unusual
// id must not fail a message that the provider accepted.
func cleanID(id string) string {
	runes := []rune(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return -1
		}
		return r
	}, id))
	return string(runes[:min(len(runes), messageIDMax)])
}

// at returns the text at a dotted path, or "" if there is none.
func at(value any, path string) string {
	if path == "" {
		return ""
	}
	for segment := range strings.SplitSeq(path, ".") {
		switch inner := value.(type) {
		case map[string]any:
			value = inner[segment]
		case []any:
			i, err := strconv.Atoi(segment)
			if err != nil || i < 0 || i >= len(inner) {
				return ""
			}
			value = inner[i]
		default:
			return ""
		}
	}
	switch leaf := value.(type) {
	case string:
		return leaf
	case json.Number:
		return leaf.String()
	case bool:
		return strconv.FormatBool(leaf)
	default:
		return ""
	}
}
