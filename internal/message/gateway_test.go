package message_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tranche/internal/message"
)

// unescaped is a text that changes the meaning of a body if it is not escaped.
const unescaped = "Your \"code\" is\n402971 & \\ {{id}} <b>ñ</b>"

func sms() message.Message {
	return message.Message{ID: "0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a12", Channel: message.SMS, To: "+525515550100", Text: unescaped}
}

func newGateway(t *testing.T, config message.GatewayConfig) *message.Gateway {
	t.Helper()
	g, err := message.NewGateway(config, func() time.Time { return time.Unix(1795226965, 0) })
	require.NoError(t, err)
	return g
}

// TestGatewayProviders sends messages in the formats that three providers document.
func TestGatewayProviders(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		config message.GatewayConfig
		check  func(*testing.T, *http.Request, string)
		answer string
		status int
		id     string
	}{
		"Twilio": {
			message.GatewayConfig{
				ContentType: "application/x-www-form-urlencoded", Body: "To={{to}}&From=%2B15005550006&Body={{text}}",
				Header: "Authorization: Basic QUM6czNjcmV0\n", MessageID: "sid",
			},
			func(t *testing.T, r *http.Request, body string) {
				t.Helper()
				form, err := url.ParseQuery(body)
				require.NoError(t, err)
				require.Equal(t, url.Values{"To": {"+525515550100"}, "From": {"+15005550006"}, "Body": {unescaped}}, form)
				require.Equal(t, "Basic QUM6czNjcmV0", r.Header.Get("Authorization"))
			},
			`{"sid":"SM123","status":"queued"}`, http.StatusCreated, "SM123",
		},
		"Vonage": {
			message.GatewayConfig{
				ContentType: "application/json", Body: `{"from":"Acme","to":"{{to}}","text":"{{text}}","client-ref":"{{id}}"}`,
				MessageID: "messages.0.message-id", Success: "messages.0.status=0",
			},
			func(t *testing.T, _ *http.Request, body string) {
				t.Helper()
				var got map[string]string
				require.NoError(t, json.Unmarshal([]byte(body), &got))
				require.Equal(t, map[string]string{
					"from": "Acme", "to": "+525515550100", "text": unescaped, "client-ref": "0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a12",
				}, got)
			},
			`{"message-count":"1","messages":[{"message-id":"0A0000000123ABCD1","status":"0"}]}`, http.StatusOK, "0A0000000123ABCD1",
		},
		"WhatsApp Cloud API": {
			message.GatewayConfig{
				ContentType: "application/json; charset=utf-8", Header: "Authorization: Bearer s3cret",
				Body:      `{"messaging_product":"whatsapp","to":"{{to}}","type":"text","text":{"body":"{{text}}"}}`,
				MessageID: "messages.0.id",
			},
			func(t *testing.T, _ *http.Request, body string) {
				t.Helper()
				var got struct{ Text struct{ Body string } }
				require.NoError(t, json.Unmarshal([]byte(body), &got))
				require.Equal(t, unescaped, got.Text.Body)
			},
			`{"messages":[{"id":"wamid.HBg"}]}`, http.StatusOK, "wamid.HBg",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				require.NoError(t, err)
				require.Equal(t, http.MethodPost, r.Method)
				require.Equal(t, c.config.ContentType, r.Header.Get("Content-Type"))
				require.Equal(t, sms().ID, r.Header.Get("Idempotency-Key"))
				require.Empty(t, r.Header.Get("Webhook-Signature"), "without a secret, requests are not signed")
				c.check(t, r, string(body))
				w.WriteHeader(c.status)
				fmt.Fprint(w, c.answer)
			}))
			t.Cleanup(server.Close)
			c.config.URL = server.URL
			receipt, err := newGateway(t, c.config).Send(t.Context(), sms())
			require.NoError(t, err)
			require.Equal(t, message.Receipt{Provider: "gateway", MessageID: c.id}, receipt)
		})
	}
}

func plainConfig(url string) message.GatewayConfig {
	return message.GatewayConfig{URL: url, ContentType: "application/json", Body: `{"to":"{{to}}","text":"{{text}}"}`}
}

// TestGatewaySignature verifies the signature as Standard Webhooks specifies it. The key is
// the base64 text after whsec_.
func TestGatewaySignature(t *testing.T) {
	t.Parallel()
	key := []byte("twenty-four bytes, least")
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		mac := hmac.New(sha256.New, key)
		fmt.Fprintf(mac, "%s.%s.%s", r.Header.Get("Webhook-Id"), r.Header.Get("Webhook-Timestamp"), body)
		require.Equal(t, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)), r.Header.Get("Webhook-Signature"))
		require.Equal(t, "1795226965", r.Header.Get("Webhook-Timestamp"))
	}))
	t.Cleanup(server.Close)
	config := plainConfig(server.URL)
	config.Secret = "whsec_" + base64.StdEncoding.EncodeToString(key)
	_, err := newGateway(t, config).Send(t.Context(), sms())
	require.NoError(t, err)
}

func TestGatewayReadsAnswers(t *testing.T) {
	t.Parallel()
	for answer, id := range map[string]string{
		`{"ok":true,"id":12345678901234567890}`:               "12345678901234567890",
		`{"ok":true,"id":false}`:                              "false",
		`{"ok":true,"id":"a\u0000\u001b\nb"}`:                 "ab",
		`{"ok":true,"id":{"a":1}}`:                            "",
		`{"ok":true,"id":"` + strings.Repeat("é", 300) + `"}`: strings.Repeat("é", 255),
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, answer) }))
		t.Cleanup(server.Close)
		config := plainConfig(server.URL)
		config.Success, config.MessageID = "ok=true", "id"
		receipt, err := newGateway(t, config).Send(t.Context(), sms())
		require.NoError(t, err, answer)
		require.Equal(t, id, receipt.MessageID, answer)
	}
}

func TestGatewayErrors(t *testing.T) {
	t.Parallel()
	answer := func(status int, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			fmt.Fprint(w, text)
		}
	}
	for name, c := range map[string]struct {
		handler   http.HandlerFunc
		permanent bool
		reason    string
	}{
		"bad request":  {answer(400, "+525515550100 402971"), true, "400"},
		"unauthorized": {answer(401, "s3cret"), true, "401"},
		"too many":     {answer(429, ""), false, "429"},
		"down":         {answer(503, ""), false, "503"},
		"redirected": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusTemporaryRedirect)
		}, true, "307"},
		"message rejected": {answer(200, `{"messages":[{"status":"29","error-text":"+525515550100"}]}`), true, "rejected the message"},
		"cut off":          {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, false, "connection broke"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(c.handler)
			t.Cleanup(server.Close)
			config := plainConfig(server.URL)
			config.Success = "messages.0.status=0"
			_, err := newGateway(t, config).Send(t.Context(), sms())
			requireError(t, err, c.permanent, c.reason)
		})
	}
	t.Run("slow", func(t *testing.T) {
		t.Parallel()
		server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // the server detects the end of the client only after that
			<-r.Context().Done()
		}))
		t.Cleanup(server.Close)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err := newGateway(t, plainConfig(server.URL)).Send(ctx, sms())
		requireError(t, err, false, "in time")
	})
	t.Run("unreachable", func(t *testing.T) {
		t.Parallel()
		_, err := newGateway(t, plainConfig("http://127.0.0.1:1")).Send(t.Context(), sms())
		requireError(t, err, false, "could not be reached")
	})
}

func TestGatewayConfiguration(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*message.GatewayConfig){
		"scheme":       func(c *message.GatewayConfig) { c.URL = "ftp://x" },
		"no host":      func(c *message.GatewayConfig) { c.URL = "https://" },
		"header":       func(c *message.GatewayConfig) { c.Header = "no colon" },
		"type":         func(c *message.GatewayConfig) { c.ContentType = "text/xml" },
		"not JSON":     func(c *message.GatewayConfig) { c.Body = `{{to}} {{text}}` },
		"without text": func(c *message.GatewayConfig) { c.Body = `{"to":"{{to}}"}` },
		"without to":   func(c *message.GatewayConfig) { c.Body = `{"text":"{{text}}"}` },
		"plain secret": func(c *message.GatewayConfig) { c.Secret = strings.Repeat("s", 32) },
		"no base64":    func(c *message.GatewayConfig) { c.Secret = "whsec_" + strings.Repeat("!", 32) },
		"short secret": func(c *message.GatewayConfig) {
			c.Secret = "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 23))
		},
		"long secret": func(c *message.GatewayConfig) {
			c.Secret = "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 65))
		},
	} {
		config := plainConfig("https://gateway.example")
		change(&config)
		_, err := message.NewGateway(config, time.Now)
		require.Error(t, err, name)
		require.NotContains(t, err.Error(), "ssss", "an error repeats no secret")
	}
}

func TestFolder(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "mail")
	folder, err := message.NewFolder(dir)
	require.NoError(t, err)
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, files, "the folder is made, and nothing is left in it")
	senders := message.Senders{message.Email: folder, message.SMS: folder}
	require.True(t, senders.Has(message.SMS))
	require.False(t, senders.Has(message.WhatsApp))
	for m, ending := range map[message.Message]string{letter(): ".email.eml", sms(): ".sms.txt"} {
		receipt, err := senders.Send(t.Context(), m)
		require.NoError(t, err)
		require.Equal(t, m.ID+ending, receipt.MessageID)
		text, err := os.ReadFile(filepath.Join(dir, receipt.MessageID))
		require.NoError(t, err)
		require.Contains(t, string(text), "402971")
		require.Contains(t, string(text), m.To)
	}
	_, err = senders.Send(t.Context(), message.Message{Channel: message.WhatsApp})
	requireError(t, err, true, "no provider is configured for whatsapp")
}
