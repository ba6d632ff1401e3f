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

// The form of a secret of Standard Webhooks.
const (
	secretPrefix                   = "whsec_"
	secretBytesMin, secretBytesMax = 24, 64
)

// gatewayAnswerMax is how much of an answer is read: it only has to hold an id.
const gatewayAnswerMax = 64 << 10

// messageIDMax is how many characters of a provider's id are kept.
const messageIDMax = 255

// GatewayConfig describes the API of a provider of SMS or WhatsApp.
type GatewayConfig struct {
	// URL takes a POST for each message.
	URL string
	// Header are further headers, one "Name: value" a line; credentials among
	// them.
	Header string
	// Body is the body with {{to}}, {{text}} and {{id}} in it; each value is
	// written as ContentType asks.
	Body string
	// ContentType is application/json or application/x-www-form-urlencoded.
	ContentType string
	// Secret, where set, signs each request by Standard Webhooks: whsec_ and 24
	// to 64 bytes in base64.
	Secret string
	// MessageID is where an answer in JSON has the provider's id: sid,
	// messages.0.id. Empty: nowhere.
	MessageID string
	// Success is where an answer in JSON says that the message was taken, and
	// what it then says, as path=value: messages.0.status=0. Empty: the status
	// of the answer alone tells.
	Success string
}

// Gateway sends messages by a provider's API.
type Gateway struct {
	config GatewayConfig
	header http.Header
	secret []byte // nil: no signature
	escape func(string) string
	client *http.Client
	clock  func() time.Time
}

// NewGateway checks the configuration; it does not connect.
func NewGateway(config GatewayConfig, clock func() time.Time) (*Gateway, error) {
	address, err := url.Parse(config.URL)
	if err != nil || address.Scheme != "http" && address.Scheme != "https" || address.Host == "" {
		return nil, errors.New("the gateway's URL is http:// or https:// with a host")
	}
	g := &Gateway{config: config, header: http.Header{}, clock: clock}
	for line := range strings.Lines(config.Header) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		name, value, found := strings.Cut(line, ":")
		if !found || strings.ContainsAny(name, " \t") {
			return nil, errors.New("the gateway's headers are lines of the form Name: value")
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
			return nil, errors.New("the gateway's body is not JSON")
		}
	case err == nil && kind == "application/x-www-form-urlencoded":
		g.escape = url.QueryEscape
	default:
		return nil, errors.New("the gateway's content type is application/json or application/x-www-form-urlencoded")
	}
	for _, needed := range []string{"{{to}}", "{{text}}"} {
		if !strings.Contains(config.Body, needed) {
			return nil, fmt.Errorf("the gateway's body has no %s", needed)
		}
	}
	g.client = &http.Client{
		// The address is the operator's, who may reach it through a proxy.
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, MaxResponseHeaderBytes: gatewayAnswerMax, ForceAttemptHTTP2: true},
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse // a code goes nowhere but to the address that was configured
		},
		Timeout: sendTimeMax,
	}
	return g, nil
}

// signingKey reads a secret of Standard Webhooks; nil for none.
func signingKey(secret string) ([]byte, error) {
	if secret == "" {
		return nil, nil
	}
	text, found := strings.CutPrefix(secret, secretPrefix)
	key, err := base64.StdEncoding.DecodeString(text)
	if !found || err != nil || len(key) < secretBytesMin || len(key) > secretBytesMax {
		return nil, fmt.Errorf("the gateway's secret is %s and %d to %d bytes in base64", secretPrefix, secretBytesMin, secretBytesMax)
	}
	return key, nil
}

// jsonText is what stands between the quotes of a JSON text.
func jsonText(s string) string {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(s) // a text always can
	return strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(b.String()), `"`), `"`)
}

func (g *Gateway) fill(m Message) string {
	return strings.NewReplacer(
		"{{to}}", g.escape(m.To), "{{text}}", g.escape(m.Text), "{{id}}", g.escape(m.ID),
	).Replace(g.config.Body)
}

// Send posts one message. Its Idempotency-Key is the message's id.
func (g *Gateway) Send(ctx context.Context, m Message) (Receipt, error) {
	body := g.fill(m)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, g.config.URL, strings.NewReader(body))
	if err != nil {
		return Receipt{}, refused("the request to the gateway cannot be made")
	}
	request.Header.Set("Content-Type", g.config.ContentType)
	request.Header.Set("Idempotency-Key", m.ID)
	g.sign(request.Header, m.ID, body)
	maps.Copy(request.Header, g.header)
	response, err := g.client.Do(request)
	if err != nil {
		return Receipt{}, gatewayError(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, gatewayAnswerMax))
	if err != nil {
		return Receipt{}, gatewayError(err)
	}
	return g.receipt(response.StatusCode, answer)
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
		return failed("the gateway did not answer in time")
	}
	return failed("the gateway could not be reached or broke off")
}

// receipt reads an answer.
func (g *Gateway) receipt(status int, text []byte) (Receipt, error) {
	switch {
	case status == http.StatusRequestTimeout, status == http.StatusTooEarly, status == http.StatusTooManyRequests,
		status == http.StatusConflict, // an Idempotency-Key whose first request is under way
		status >= http.StatusInternalServerError:
		return Receipt{}, failed("the gateway answered with %d", status)
	case status < http.StatusOK || status >= http.StatusMultipleChoices:
		return Receipt{}, refused("the gateway answered with %d", status)
	}
	answer := readAnswer(text)
	if path, want, found := strings.Cut(g.config.Success, "="); found && at(answer, path) != want {
		return Receipt{}, refused("the gateway took the request and refused the message")
	}
	return Receipt{Provider: "gateway", MessageID: plainID(at(answer, g.config.MessageID))}, nil
}

// readAnswer reads an answer in JSON, its numbers as they are written: an id may
// have more digits than a float64. Nil for an answer that is not JSON.
func readAnswer(text []byte) (answer any) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if decoder.Decode(&answer) != nil {
		return nil
	}
	return answer
}

// plainID is a provider's id as it can be kept, without control characters and
// of bounded length. A message that was taken is not sent again because its id
// is odd.
func plainID(id string) string {
	runes := []rune(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return -1
		}
		return r
	}, id))
	return string(runes[:min(len(runes), messageIDMax)])
}

// at is the text at a dotted path in an answer; empty where there is none.
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
