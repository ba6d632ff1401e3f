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
	"time"
)

// retriesMax bounds how often demoClient waits for a service that says it is
// busy (429, 503).
const retriesMax = 20

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
	text := fmt.Sprintf("%d %s: %s", r.Status, r.Code, r.Message)
	for _, d := range r.Details {
		text += fmt.Sprintf("\n  %s: %s", d.Field, d.Message)
	}
	return text
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
		response, err := c.send(ctx, method, c.base+path, text)
		if err != nil {
			return fmt.Errorf("%s %s: %w", method, path, err)
		}
		wait, again := patience(response)
		if again && try < retriesMax {
			drop(response.Body)
			if err := sleep(ctx, wait); err != nil {
				return err
			}
			continue
		}
		return decode(response, answer)
	}
}

func (c *demoClient) send(ctx context.Context, method, url string, body []byte) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	return c.http.Do(request)
}

// patience says whether an answer asks to come again, and after what time.
func patience(response *http.Response) (time.Duration, bool) {
	if response.StatusCode != http.StatusTooManyRequests && response.StatusCode != http.StatusServiceUnavailable {
		return 0, false
	}
	seconds, err := strconv.Atoi(response.Header.Get("Retry-After"))
	if err != nil {
		seconds = 1
	}
	return time.Duration(seconds) * time.Second, true
}

func decode(response *http.Response, answer any) error {
	defer drop(response.Body)
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode >= http.StatusBadRequest {
		r := &refusal{Status: response.StatusCode}
		if err := json.Unmarshal(text, r); err != nil {
			r.Message = string(text)
		}
		return r
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(text, answer)
}

// upload puts bytes at a signed address, which carries its own permission.
func (c *demoClient) upload(ctx context.Context, url, contentType string, file []byte) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPut, url, bytes.NewReader(file))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", contentType)
	response, err := c.http.Do(request)
	if err != nil {
		return err
	}
	return decode(response, nil)
}

// download writes what a signed address holds into a file.
func (c *demoClient) download(ctx context.Context, url, path string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := c.http.Do(request)
	if err != nil {
		return err
	}
	defer drop(response.Body)
	if response.StatusCode != http.StatusOK {
		return decode(response, nil)
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	if _, err := io.Copy(file, response.Body); err != nil {
		_ = file.Close() // the first error says more
		return err
	}
	return file.Close()
}

// drop reads a body to its end, so that its connection can be used again.
func drop(body io.ReadCloser) {
	_, _ = io.Copy(io.Discard, io.LimitReader(body, 1<<16)) // only a courtesy to the connection
	body.Close()
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
