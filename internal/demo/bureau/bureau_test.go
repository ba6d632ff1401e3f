package bureau_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tranche/internal/demo/bureau"
)

func start(t *testing.T, config bureau.Config) *bureau.Server {
	t.Helper()
	server, err := bureau.Start(t.Context(), "127.0.0.1:0", config)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	return server
}

func ask(t *testing.T, method, url, key, body string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	if key != "" {
		request.Header.Set("Idempotency-Key", key)
	}
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(text)
}

func report(t *testing.T, s *bureau.Server, borrower, key string) (int, string) {
	t.Helper()
	return ask(t, http.MethodPost, s.URL()+"/v1/credit-reports", key, fmt.Sprintf(`{"borrowerId":%q}`, borrower))
}

func TestAnswersDependOnSeed(t *testing.T) {
	t.Parallel()
	one, two, other := start(t, bureau.Config{Seed: 1}), start(t, bureau.Config{Seed: 1}), start(t, bureau.Config{Seed: 2})
	status, first := report(t, one, "B-1", "k")
	require.Equal(t, http.StatusOK, status)
	_, second := report(t, two, "B-1", "another")
	require.Equal(t, first, second)
	_, different := report(t, other, "B-1", "k")
	require.NotEqual(t, first, different)
	require.Regexp(t, `"monthlyObligations":\d+\.\d\d}`, first)

	_, fraud := ask(t, http.MethodGet, one.URL()+"/v1/fraud-scores/B-1?application=a", "", "")
	require.Regexp(t, `^{"level":"(low|elevated|high)","risk":\d\.\d{4}}$`, fraud)
}

func TestRepeatedIdempotencyKey(t *testing.T) {
	t.Parallel()
	s := start(t, bureau.Config{Seed: 1})
	_, first := report(t, s, "B-1", "k")
	_, again := report(t, s, "B-1", "k")
	require.Equal(t, first, again)
	require.Equal(t, bureau.Counts{Calls: 2, Repeated: 1}, s.Counts())

	status, _ := report(t, s, "B-2", "k")
	require.Equal(t, http.StatusUnprocessableEntity, status)
	status, _ = report(t, s, "B-2", "")
	require.Equal(t, http.StatusBadRequest, status)
	status, _ = ask(t, http.MethodPost, s.URL()+"/v1/credit-reports", "x", `{}`)
	require.Equal(t, http.StatusBadRequest, status)
}

func TestFailures(t *testing.T) {
	t.Parallel()
	flaky := start(t, bureau.Config{FlakyShare: 1})
	status, _ := report(t, flaky, "B-1", "k")
	require.Equal(t, http.StatusServiceUnavailable, status)
	status, _ = report(t, flaky, "B-1", "k")
	require.Equal(t, http.StatusOK, status)

	down := start(t, bureau.Config{DownShare: 1})
	for range 3 {
		status, _ = report(t, down, "B-1", "k")
		require.Equal(t, http.StatusInternalServerError, status)
	}
	require.Equal(t, 3, down.Counts().Failed)

	slow := start(t, bureau.Config{SlowShare: 1, SlowFor: 50 * time.Millisecond})
	begun := time.Now()
	report(t, slow, "B-1", "k")
	require.GreaterOrEqual(t, time.Since(begun), 50*time.Millisecond)
}

func TestRealisticShares(t *testing.T) {
	t.Parallel()
	config := bureau.Realistic(7)
	config.SlowShare = 0
	s := start(t, config)
	down, flaky := 0, 0
	for i := range 2000 {
		borrower, key := fmt.Sprintf("B-%d", i), fmt.Sprintf("k-%d", i)
		switch status, _ := report(t, s, borrower, key); status {
		case http.StatusInternalServerError:
			down++
		case http.StatusServiceUnavailable:
			flaky++
		}
	}
	require.InDelta(t, 10, down, 9)
	require.InDelta(t, 80, flaky, 30)
}
