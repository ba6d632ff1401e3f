package api_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"

	"tranche/internal/apitest"
	"tranche/internal/identity"
	"tranche/internal/server"
)

// The metrics have the work of the process and the queues of the database. No label has a
// value that a tenant or a caller chooses.
func TestMetrics(t *testing.T) {
	t.Parallel()
	s, address := startWithMetrics(t)
	tenant := s.Tenant(t)
	c := tenant.As(t, identity.RoleAdmin)
	publishBatchWorkflow(t, c)

	const times = 3
	for range times {
		c.Post(t, "/v1/workflows/echo/v1/execute", apitest.Raw(`{"isSync": true, "input": {"borrowerId": "b-1"}}`)).Expect(http.StatusOK)
	}
	c.Post(t, "/v1/workflows/nobody/v1/execute", apitest.Raw(`{"input": {}}`)).Expect(http.StatusNotFound)
	c.Do(t, "BREW", "/v1/coffee", nil).Expect(http.StatusNotFound)
	c.Do(t, "BREW", "/v1/executions", nil).Expect(http.StatusMethodNotAllowed)
	awaitBatch(t, c, c.Post(t, "/v1/workflows/echo/v1/execute-batch", apitest.Raw(`{"workflowInput": {"items": [{"borrowerId": "b-2"}, {"borrowerId": "b-3"}]}}`)).
		Expect(http.StatusAccepted).Text("executionBatchId"))

	got := readMetrics(t, address)
	const execute = "/v1/workflows/{alias}/{version}/execute"
	require.InDelta(t, times, got.value(t, "tranche_http_requests_total", "POST", execute, "200"), 0)
	require.InDelta(t, 1, got.value(t, "tranche_http_requests_total", "POST", execute, "404"), 0)
	require.InDelta(t, times+1, got.value(t, "tranche_http_request_duration_seconds", "POST", execute), 0)
	require.InDelta(t, 1, got.value(t, "tranche_http_requests_total", "none", "none", "404"), 0)
	require.InDelta(t, 1, got.value(t, "tranche_http_requests_total", "none", "none", "405"), 0)
	require.InDelta(t, times+2, got.value(t, "tranche_executions_total", "completed"), 0)
	require.InDelta(t, 1, got.value(t, "tranche_jobs_total", "batch_pre_processing", "done"), 0)
	require.InDelta(t, 1, got.value(t, "tranche_job_duration_seconds", "batch_pre_processing"), 0)
	require.InDelta(t, 1, got.value(t, "tranche_database_up"), 0)
	require.InDelta(t, 1, got.value(t, "tranche_processes_alive", "all"), 0)
	require.InDelta(t, 0, got.value(t, "tranche_executions_open"), 0)
	require.InDelta(t, 0, got.value(t, "tranche_schedules_late"), 0)
	require.InDelta(t, 8, got.value(t, "tranche_pool_connections_max", "api"), 0)
	require.Positive(t, got.value(t, "go_goroutines"))
	for _, chosen := range []string{tenant.Slug, tenant.ID.String(), "echo", "nobody", "coffee", "BREW", "b-1"} {
		require.NotContains(t, got.text, chosen)
	}
}

// Calls are counted by outcome, and waiting executions are counted.
func TestMetricsOfCallsAndWaits(t *testing.T) {
	t.Parallel()
	s, address := startWithMetrics(t)
	c := s.Tenant(t).As(t, identity.RoleAdmin)
	id := c.Post(t, "/v2/workflows", apitest.Raw(`{"name": "Call and wait", "alias": "wait", "tasks": [
		{"id": "ok", "type": "http-request", "config": {"method": "GET", "url": "`+s.URL+`/healthz"}},
		{"id": "inside", "type": "http-request", "config": {"method": "GET", "url": "http://169.254.169.254/", "onError": "continue"}},
		{"id": "wait", "type": "wait-for-signal", "config": {"timeoutMs": 600000}}],
		"edges": [{"source": "start", "target": "ok"}, {"source": "ok", "target": "inside"}, {"source": "inside", "target": "wait"}]}`)).Expect(http.StatusCreated).Text("id")
	c.Post(t, "/v2/workflows/"+id+"/publish", nil).Expect(http.StatusOK)
	execution := c.Post(t, "/v1/workflows/wait/v1/execute", apitest.Raw(`{"isSync": false, "input": {}}`)).Expect(http.StatusAccepted).Text("executionId")

	var got metricsRead
	require.Eventually(t, func() bool {
		got = readMetrics(t, address)
		return strings.Contains(got.text, `tranche_queue_jobs{queue="execution",state="scheduled"} 1`)
	}, 30*time.Second, 50*time.Millisecond)
	got = readMetrics(t, address) // the first reading counts the request before it queries the database
	require.InDelta(t, 1, got.value(t, "tranche_calls_total", "2xx"), 0)
	require.InDelta(t, 1, got.value(t, "tranche_calls_total", "refused"), 0)
	require.InDelta(t, 2, got.value(t, "tranche_call_duration_seconds"), 0)
	require.InDelta(t, 1, got.value(t, "tranche_executions_open"), 0)

	c.Post(t, "/v1/executions/"+execution+"/cancel", nil).Expect(http.StatusOK)
	got = readMetrics(t, address)
	require.InDelta(t, 1, got.value(t, "tranche_executions_total", "cancelled"), 0)
	require.InDelta(t, 0, got.value(t, "tranche_executions_open"), 0)
}

// startWithMetrics starts a service and returns the address of its metrics.
func startWithMetrics(t *testing.T) (s *apitest.Service, address string) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return apitest.Start(t, func(c *server.Config) { c.Metrics = listener }), listener.Addr().String()
}

// metricsRead has metrics as parsed by Prometheus.
type metricsRead struct {
	text     string
	families map[string]*dto.MetricFamily
}

func readMetrics(t *testing.T, address string) metricsRead {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/metrics", nil)
	require.NoError(t, err)
	answer, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer answer.Body.Close()
	require.Equal(t, http.StatusOK, answer.StatusCode)
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(string(text)))
	require.NoError(t, err)
	return metricsRead{text: string(text), families: families}
}

// value returns the value of the only series with a name and label values, in any order. For
// a histogram it returns the number of observations.
func (m metricsRead) value(t *testing.T, name string, labels ...string) float64 {
	t.Helper()
	for _, metric := range m.families[name].GetMetric() {
		values := make([]string, 0, len(labels))
		for _, label := range metric.GetLabel() {
			values = append(values, label.GetValue())
		}
		slices.Sort(values)
		if !slices.Equal(values, slices.Sorted(slices.Values(labels))) {
			continue
		}
		return metric.GetCounter().GetValue() + metric.GetGauge().GetValue() + float64(metric.GetHistogram().GetSampleCount())
	}
	require.Fail(t, "no such series", "%s %q in\n%s", name, labels, m.text)
	return 0
}

// Items that end without a run are counted: rejected by the input schema, or cancelled before
// they began or began again.
func TestMetricsOfItemsWithoutRun(t *testing.T) {
	t.Parallel()
	const items = 300
	answers := [2]chan struct{}{make(chan struct{}), make(chan struct{})} // by attempt; closed to answer its calls
	var attempt atomic.Int32
	begun := make(chan struct{}, 2*items)
	target := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		begun <- struct{}{}
		select {
		case <-answers[attempt.Load()]:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(target.Close)
	s, address := startWithMetrics(t)
	c := s.Tenant(t).As(t, identity.RoleAdmin)
	id := c.Post(t, "/v2/workflows", apitest.Raw(`{"name": "Call", "alias": "call", "inputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}},
		"tasks": [{"id": "call", "type": "http-request", "config": {"method": "GET", "url": "`+target.URL+`"}}], "edges": []}`)).Expect(http.StatusCreated).Text("id")
	c.Post(t, "/v2/workflows/"+id+"/publish", nil).Expect(http.StatusOK)

	at := "/v1/execution-batches/" + c.Post(t, "/v1/workflows/call/v1/execute-batch",
		apitest.Raw(`{"workflowInput": {"items": [{"n": "x"}`+strings.Repeat(`,{"n": 1}`, items-1)+`]}}`)).Expect(http.StatusAccepted).Text("executionBatchId")
	count := func(status string) (n float64) {
		_, err := fmt.Sscan(c.Get(t, at+"/items?per-page=1&status="+status).Expect(http.StatusOK).Text("pagination.total"), &n)
		require.NoError(t, err)
		return n
	}
	check := func(before map[string]float64) map[string]float64 {
		<-begun // some items have begun; the others wait for their answers
		c.Post(t, at+"/cancel", nil).Expect(http.StatusOK)
		close(answers[attempt.Load()])
		require.Eventually(t, func() bool { return c.Get(t, at).Expect(http.StatusOK).Text("status") == "cancelled" }, 30*time.Second, 50*time.Millisecond)
		ended := map[string]float64{"completed": count("completed")} // items of the previous attempt stay completed
		for _, status := range []string{"failed", "cancelled"} {
			ended[status] = before[status] + count(status)
		}
		require.Greater(t, ended["cancelled"], before["cancelled"])
		for status, n := range ended {
			require.Positive(t, n, status)
			require.Eventually(t, func() bool { // an item is counted after its end is committed
				return readMetrics(t, address).value(t, "tranche_executions_total", status) == n
			}, 10*time.Second, 50*time.Millisecond, "%s: %v", status, n)
		}
		return ended
	}
	ended := check(nil)
	for len(begun) > 0 {
		<-begun
	}
	attempt.Store(1)
	c.Post(t, at+"/retry", map[string]any{"retryMode": "failed_items"}).Expect(http.StatusAccepted)
	check(ended)
}
