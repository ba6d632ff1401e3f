package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// attemptsMax limits the attempts of one call if the service answers 429 or 503.
const attemptsMax = 20

// client calls the service as a customer does: over HTTP, with a bearer token.
type client struct {
	base  string
	token string
	http  *http.Client
}

// apiError is an error response of the service.
type apiError struct {
	Status  int
	Code    string
	Message string
	Details []struct{ Field, Message string }
}

func (r *apiError) Error() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%d %s: %s", r.Status, r.Code, r.Message)
	for _, d := range r.Details {
		fmt.Fprintf(&text, "\n  %s: %s", d.Field, d.Message)
	}
	return text.String()
}

// signIn obtains an access token for a client id and secret.
func (c *client) signIn(ctx context.Context, clientID, secret string) error {
	var answer struct{ AccessToken string }
	err := c.call(ctx, http.MethodPost, "/identity/resources/auth/v1/api-token",
		map[string]string{"clientId": clientID, "secret": secret}, &answer)
	if err != nil {
		return fmt.Errorf("obtain a token: %w", err)
	}
	c.token = answer.AccessToken
	return nil
}

// call sends body as JSON and decodes the response into answer, a pointer; either may
// be nil. It repeats the call after 429 and 503. It sends and returns a
// json.RawMessage unchanged. It returns error responses as *apiError.
func (c *client) call(ctx context.Context, method, path string, body, answer any) error {
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return err
		}
	}
	for attempt := 1; ; attempt++ {
		got, err := c.send(ctx, method, c.base+path, "application/json", text)
		if err != nil {
			return fmt.Errorf("%s %s: %w", method, path, err)
		}
		wait, isBusy := got.retryAfter()
		if !isBusy || attempt == attemptsMax {
			return got.decode(answer)
		}
		if err := sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// reply is a response with its whole body.
type reply struct {
	status int
	header http.Header
	body   []byte
}

func (c *client) send(ctx context.Context, method, url, contentType string, body []byte) (*reply, error) {
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if contentType != "" {
		request.Header.Set("Content-Type", contentType)
	}
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return &reply{response.StatusCode, response.Header, text}, err
}

// retryAfter reports whether the service is busy, and when to repeat the call.
func (r *reply) retryAfter() (time.Duration, bool) {
	if r.status != http.StatusTooManyRequests && r.status != http.StatusServiceUnavailable {
		return 0, false
	}
	seconds, err := strconv.Atoi(r.header.Get("Retry-After"))
	if err != nil {
		seconds = 1
	}
	return time.Duration(seconds) * time.Second, true
}

func (r *reply) decode(answer any) error {
	if r.status >= http.StatusBadRequest {
		failed := &apiError{Status: r.status}
		if err := json.Unmarshal(r.body, failed); err != nil {
			failed.Message = string(r.body)
		}
		return failed
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(r.body, answer)
}

// withoutToken returns a client for signed addresses, which need no token.
func (c *client) withoutToken() *client { return &client{http: c.http} }

// upload sends a file to a signed address.
func (c *client) upload(ctx context.Context, url, contentType string, file []byte) error {
	got, err := c.withoutToken().send(ctx, http.MethodPut, url, contentType, file)
	if err != nil {
		return err
	}
	return got.decode(nil)
}

// download writes the response of a GET to a file.
func (c *client) download(ctx context.Context, url, path string) error {
	got, err := c.send(ctx, http.MethodGet, url, "", nil)
	if err != nil {
		return err
	}
	if err := got.decode(nil); err != nil {
		return err
	}
	return os.WriteFile(path, got.body, 0o644) // #nosec G306 -- fictitious data
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
