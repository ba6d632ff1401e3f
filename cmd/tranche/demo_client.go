package main

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

// triesMax bounds how often demoClient asks a service that says it is busy
// (429, 503).
const triesMax = 20

// demoClient speaks to the service as any customer would: over HTTP, with a
// bearer token.
type demoClient struct {
	base  string
	token string
	http  *http.Client
}

// refusal is an error answer of the service.
type refusal struct {
	Status  int
	Code    string
	Message string
	Details []struct{ Field, Message string }
}

func (r *refusal) Error() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%d %s: %s", r.Status, r.Code, r.Message)
	for _, d := range r.Details {
		fmt.Fprintf(&text, "\n  %s: %s", d.Field, d.Message)
	}
	return text.String()
}

// signIn obtains an access token for a client id and secret.
func (c *demoClient) signIn(ctx context.Context, clientID, secret string) error {
	var answer struct{ AccessToken string }
	err := c.call(ctx, http.MethodPost, "/identity/resources/auth/v1/api-token",
		map[string]string{"clientId": clientID, "secret": secret}, &answer)
	if err != nil {
		return fmt.Errorf("obtain a token: %w", err)
	}
	c.token = answer.AccessToken
	return nil
}

// call sends a body as JSON, waits while the service asks for patience, and
// decodes the answer into a pointer; a nil body or answer means none. A
// json.RawMessage goes and comes digit for digit. Error answers are *refusal.
func (c *demoClient) call(ctx context.Context, method, path string, body, answer any) error {
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return err
		}
	}
	for try := 1; ; try++ {
		got, err := c.send(ctx, method, c.base+path, "application/json", text)
		if err != nil {
			return fmt.Errorf("%s %s: %w", method, path, err)
		}
		wait, again := got.patience()
		if !again || try == triesMax {
			return got.decode(answer)
		}
		if err := sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// reply is an answer that was read to its end.
type reply struct {
	status int
	header http.Header
	body   []byte
}

func (c *demoClient) send(ctx context.Context, method, url, contentType string, body []byte) (*reply, error) {
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

// patience says whether an answer asks to come again, and after what time.
func (r *reply) patience() (time.Duration, bool) {
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
		refused := &refusal{Status: r.status}
		if err := json.Unmarshal(r.body, refused); err != nil {
			refused.Message = string(r.body)
		}
		return refused
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(r.body, answer)
}

// stranger is the client without its token: signed addresses carry their own
// permission.
func (c *demoClient) stranger() *demoClient { return &demoClient{http: c.http} }

// upload puts bytes at a signed address.
func (c *demoClient) upload(ctx context.Context, url, contentType string, file []byte) error {
	got, err := c.stranger().send(ctx, http.MethodPut, url, contentType, file)
	if err != nil {
		return err
	}
	return got.decode(nil)
}

// download writes what an address holds into a file.
func (c *demoClient) download(ctx context.Context, url, path string) error {
	got, err := c.send(ctx, http.MethodGet, url, "", nil)
	if err != nil {
		return err
	}
	if err := got.decode(nil); err != nil {
		return err
	}
	return os.WriteFile(path, got.body, 0o644) // #nosec G306 -- made-up data that anybody may read
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
