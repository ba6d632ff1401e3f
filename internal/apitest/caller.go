package apitest

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tranche/internal/exactjson"
)

// Caller sends requests with one token.
type Caller struct {
	ClientID, Secret string
	Token            string // empty means no Authorization header
	service          *Service
}

// Raw is a body that is sent as it is.
type Raw string

// Header is a header of a single request. An empty value removes the header. A name that is
// given twice is sent twice.
type Header struct{ Name, Value string }

// Get sends a GET.
func (c *Caller) Get(tb testing.TB, path string, headers ...Header) *Answer {
	tb.Helper()
	return c.Do(tb, http.MethodGet, path, nil, headers...)
}

// Post sends a POST. Do describes the body.
func (c *Caller) Post(tb testing.TB, path string, body any, headers ...Header) *Answer {
	tb.Helper()
	return c.Do(tb, http.MethodPost, path, body, headers...)
}

// Put sends a PUT. Do describes the body.
func (c *Caller) Put(tb testing.TB, path string, body any, headers ...Header) *Answer {
	tb.Helper()
	return c.Do(tb, http.MethodPut, path, body, headers...)
}

// Delete sends a DELETE.
func (c *Caller) Delete(tb testing.TB, path string, headers ...Header) *Answer {
	tb.Helper()
	return c.Do(tb, http.MethodDelete, path, nil, headers...)
}

// Do sends a request and checks the answer against the OpenAPI document. The body is absent
// (nil), text (Raw, []byte), a stream (io.Reader), or any other value as JSON. path may be a
// whole URL of the service.
func (c *Caller) Do(tb testing.TB, method, path string, body any, headers ...Header) *Answer {
	tb.Helper()
	var reader io.Reader
	switch body := body.(type) {
	case nil:
	case Raw:
		reader = strings.NewReader(string(body))
	case []byte:
		reader = bytes.NewReader(body)
	case io.Reader:
		reader = body
	default:
		text, err := json.Marshal(body)
		require.NoError(tb, err)
		reader = bytes.NewReader(text)
	}
	address := path
	if !strings.Contains(path, "://") {
		address = c.service.URL + path
	}
	request, err := http.NewRequestWithContext(tb.Context(), method, address, reader)
	require.NoError(tb, err)
	if reader != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if c.Token != "" {
		request.Header.Set("Authorization", "Bearer "+c.Token)
	}
	for _, header := range headers {
		request.Header.Del(header.Name) // removes the header set above
	}
	for _, header := range headers {
		if header.Value != "" {
			request.Header.Add(header.Name, header.Value)
		}
	}
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := client.Do(request)
	require.NoError(tb, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(tb, err)
	answer := &Answer{Status: response.StatusCode, Header: response.Header, Body: text, tb: tb, request: method + " " + path}
	c.service.document.check(tb, request, answer)
	return answer
}

// Answer is the answer to a request.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte

	tb      testing.TB
	request string
}

// Expect fails the test unless the answer has the status.
func (a *Answer) Expect(status int) *Answer {
	a.tb.Helper()
	require.Equal(a.tb, status, a.Status, "%s: %s", a.request, a.Body)
	return a
}

// Problem is the body of an error.
type Problem struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Details []struct {
		Field   string `json:"field"`
		Message string `json:"message"`
	} `json:"details"`
	ErrorSubCode string `json:"errorSubCode"`
	RequestID    string `json:"requestId"`
}

// Fields returns the fields of the details.
func (p Problem) Fields() []string {
	fields := make([]string, len(p.Details))
	for i, detail := range p.Details {
		fields[i] = detail.Field
	}
	return fields
}

// ExpectProblem fails the test unless the answer is an error with the status, the code and
// the sub-code (empty for none). If fields are given, the details must have exactly these
// fields in any order.
func (a *Answer) ExpectProblem(status int, code, subCode string, fields ...string) Problem {
	a.tb.Helper()
	a.Expect(status)
	var problem Problem
	a.Decode(&problem)
	require.Equal(a.tb, code, problem.Code, "%s: %s", a.request, a.Body)
	require.Equal(a.tb, subCode, problem.ErrorSubCode, "%s: %s", a.request, a.Body)
	require.Equal(a.tb, a.Header.Get("X-Request-Id"), problem.RequestID)
	if len(fields) > 0 {
		require.ElementsMatch(a.tb, fields, problem.Fields(), "%s: %s", a.request, a.Body)
	}
	return problem
}

// Decode decodes the body into v.
func (a *Answer) Decode(v any) {
	a.tb.Helper()
	require.NoError(a.tb, json.Unmarshal(a.Body, v), "%s: %s", a.request, a.Body)
}

// Value returns the exactjson value at a path such as data[0].name, or nil if there is none.
// The empty path is the whole body.
func (a *Answer) Value(path string) any {
	a.tb.Helper()
	value, err := exactjson.Decode(a.Body)
	require.NoError(a.tb, err, "%s: %s", a.request, a.Body)
	for segment := range strings.FieldsFuncSeq(path, func(r rune) bool { return strings.ContainsRune(".[]", r) }) {
		switch at := value.(type) {
		case map[string]any:
			value = at[segment]
		case []any:
			i, err := strconv.Atoi(segment)
			require.NoError(a.tb, err, path)
			if i >= len(at) {
				return nil
			}
			value = at[i]
		default:
			return nil
		}
	}
	return value
}

// Text returns the text of the value at a path. It is empty if the value is absent or null.
func (a *Answer) Text(path string) string {
	a.tb.Helper()
	switch value := a.Value(path).(type) {
	case string:
		return value
	case nil:
		return ""
	default:
		text, err := exactjson.Encode(value)
		require.NoError(a.tb, err)
		return string(text)
	}
}
