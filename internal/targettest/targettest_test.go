package targettest_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tranche/internal/targettest"
)

// do sends a request with an idempotency key and returns the status, 0 if there is no
// answer, and the body with its error.
func do(ctx context.Context, method, url, key, body string) (int, string, error) {
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	request.Header.Set("Idempotency-Key", key)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	got, err := io.ReadAll(response.Body)
	return response.StatusCode, string(got), err
}

func TestCallsAreRecorded(t *testing.T) {
	t.Parallel()
	target := targettest.New(t)
	status, body, err := do(t.Context(), http.MethodPost, target.URL+"/a?b=1", "k", "sent")
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, "{}", body)
	call := target.Last()
	require.Equal(t, []string{"POST", "/a?b=1", "/a", "1", "sent", "k"},
		[]string{call.Method, call.URI, call.Path, call.Query.Get("b"), call.Body, call.Key})
	require.Equal(t, []int{1, 1}, []int{call.N, call.Attempt})
	require.Equal(t, []string{"k"}, target.Keys())
	require.Equal(t, map[string]int{"k": 1}, target.CallsByKey())
	require.Len(t, target.Take(), 1)
	require.Zero(t, target.Count())
	target.Wait(1) // counts the calls that were taken
}

func TestAnswersByScript(t *testing.T) {
	t.Parallel()
	target := targettest.New(t, targettest.WithAnswer(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
	}))
	target.Queue(targettest.Status(http.StatusServiceUnavailable))
	target.On("GET /a", targettest.Text(http.StatusOK, "first"), targettest.StatusJSON(http.StatusCreated, "second"))
	for _, want := range []struct {
		path, body string
		status     int
	}{
		{"/a", "", 503},
		{"/a", "first", 200},
		{"/a", "second", 201},
		{"/a", "second", 201},
		{"/b", "echo", 200},
	} {
		status, body, err := do(t.Context(), http.MethodGet, target.URL+want.path, "", "echo")
		require.NoError(t, err)
		require.Equal(t, want.status, status)
		require.Equal(t, want.body, body)
	}
	target.SetAnswer(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, strconv.Itoa(targettest.CallOf(r).Attempt))
	})
	_, body, err := do(t.Context(), http.MethodGet, target.URL, "", "")
	require.NoError(t, err)
	require.Equal(t, "6", body)
	target.SetAnswer(targettest.Drip(time.Millisecond, "drop"))
	_, body, err = do(t.Context(), http.MethodGet, target.URL, "", "")
	require.NoError(t, err)
	require.Equal(t, "drop", body)
}

func TestBrokenAnswers(t *testing.T) {
	t.Parallel()
	target := targettest.New(t)
	target.SetAnswer(targettest.CloseAfter("half"))
	_, body, err := do(t.Context(), http.MethodPost, target.URL, "", "")
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.Equal(t, "half", body)
	target.SetAnswer(targettest.Close())
	_, _, err = do(t.Context(), http.MethodPost, target.URL, "", "")
	require.ErrorIs(t, err, io.EOF)
	target.SetAnswer(targettest.Reset())
	_, _, err = do(t.Context(), http.MethodPost, target.URL, "", "")
	require.ErrorIs(t, err, syscall.ECONNRESET)
	target.Stop()
	_, _, err = do(t.Context(), http.MethodPost, target.URL, "", "")
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	target.Start()
	target.SetAnswer(targettest.JSON("{}"))
	_, _, err = do(t.Context(), http.MethodPost, target.URL, "", "")
	require.NoError(t, err)
}

func TestHeldCallsWaitForRelease(t *testing.T) {
	t.Parallel()
	target := targettest.New(t)
	release := target.Hold(func(c targettest.Call) bool { return c.Key == "held" })
	answered := make(chan error, 1)
	go func() {
		_, _, err := do(t.Context(), http.MethodGet, target.URL, "held", "")
		answered <- err
	}()
	target.Wait(1)
	_, _, err := do(t.Context(), http.MethodGet, target.URL, "other", "")
	require.NoError(t, err)
	target.WaitKeys(2)
	target.WaitInFlight(1)
	require.Len(t, target.WaitMatch(1, func(c targettest.Call) bool { return c.Key == "held" }), 1)
	now, most := target.InFlight()
	require.Equal(t, 1, now)
	require.Equal(t, 2, most)
	require.Empty(t, answered)
	release()
	release()
	require.NoError(t, <-answered)
	target.WaitIdle()
}

func TestAbandonedCallsAreCounted(t *testing.T) {
	t.Parallel()
	target := targettest.New(t)
	target.Hold() // until the end of the test
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, _, err := do(ctx, http.MethodPost, target.URL, "", "body")
		ended <- err
	}()
	target.Wait(1)
	cancel(errors.New("abandoned"))
	require.Error(t, <-ended)
	target.WaitAbandoned(1)
}

func TestTLS(t *testing.T) {
	t.Parallel()
	target := targettest.New(t, targettest.WithTLS(true), targettest.WithStopped())
	target.Start()
	response, err := target.Server().Client().Get(target.URL)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, "HTTP/2.0", response.Proto)
	require.Equal(t, 1, target.Connections())
}
