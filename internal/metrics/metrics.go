// Package metrics exposes metrics of this process and of the database to Prometheus. No label
// has a value that a tenant or a caller chooses, so the number of series is bounded. The views
// of schema ops have figures of single tenants. The package must not know the domain.
package metrics

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/riverqueue/river"
)

// unrouted is the route and the method of requests without an endpoint, because the caller
// chooses both.
const unrouted = "none"

// Metrics is a registry of metrics. It is safe for concurrent use.
type Metrics struct {
	registry *prometheus.Registry

	requests     *prometheus.CounterVec
	requestTimes *prometheus.HistogramVec
	jobs         *prometheus.CounterVec
	jobTimes     *prometheus.HistogramVec
	calls        *prometheus.CounterVec
	callTimes    prometheus.Histogram
	executions   *prometheus.CounterVec
}

// New returns the metrics of a process, including those of the Go runtime.
func New() *Metrics {
	// From a millisecond to the five minutes that a call or an execution may take.
	buckets := []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tranche_http_requests_total", Help: "Requests, by endpoint and status.",
		}, []string{"method", "route", "code"}),
		requestTimes: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "tranche_http_request_duration_seconds", Help: "Time from the headers of a request to the end of its response.", Buckets: buckets,
		}, []string{"method", "route"}),
		jobs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tranche_jobs_total", Help: "Runs of background jobs. The outcome is done, put_off (the job continues later), failed (the job is retried) or given_up.",
		}, []string{"kind", "outcome"}),
		jobTimes: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "tranche_job_duration_seconds", Help: "Duration of runs of background jobs.", Buckets: buckets,
		}, []string{"kind"}),
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tranche_calls_total", Help: "Requests of workflows to other services, by the class of the status or the reason of the failure.",
		}, []string{"outcome"}),
		callTimes: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "tranche_call_duration_seconds", Help: "Duration of requests to other services, with or without a response.", Buckets: buckets,
		}),
		executions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tranche_executions_total", Help: "Executions that this process ended, including items of batches. An execution whose end was written twice counts twice.",
		}, []string{"status"}),
	}
	m.registry.MustRegister(
		m.requests, m.requestTimes, m.jobs, m.jobTimes, m.calls, m.callTimes, m.executions,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return m
}

// Handler serves the metrics in the text format of Prometheus.
func (m *Metrics) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}))
	return mux
}

// Request counts a request. The route is the pattern of its endpoint, or empty.
func (m *Metrics) Request(method, route string, status int, took time.Duration) {
	if route == "" {
		method, route = unrouted, unrouted
	}
	m.requests.WithLabelValues(method, route, strconv.Itoa(status)).Inc()
	m.requestTimes.WithLabelValues(method, route).Observe(took.Seconds())
}

// Job counts a run of a job that returned err.
func (m *Metrics) Job(kind string, err error, took time.Duration) {
	_, isPostponed := errors.AsType[*river.JobSnoozeError](err)
	_, isAbandoned := errors.AsType[*river.JobCancelError](err)
	outcome := "done"
	switch {
	case isPostponed:
		outcome = "put_off"
	case isAbandoned:
		outcome = "given_up"
	case err != nil:
		outcome = "failed"
	}
	m.jobs.WithLabelValues(kind, outcome).Inc()
	m.jobTimes.WithLabelValues(kind).Observe(took.Seconds())
}

// Call counts a request to another service. The outcome is one of a few values.
func (m *Metrics) Call(outcome string, took time.Duration) {
	m.calls.WithLabelValues(outcome).Inc()
	m.callTimes.Observe(took.Seconds())
}

// Executions counts executions that have ended.
func (m *Metrics) Executions(status string, n int) {
	m.executions.WithLabelValues(status).Add(float64(n))
}

// Watch adds metrics of a connection pool.
func (m *Metrics) Watch(name string, pool *pgxpool.Pool) {
	labels := prometheus.Labels{"pool": name}
	gauge := func(metric, help string, value func(*pgxpool.Stat) float64) {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: metric, Help: help, ConstLabels: labels},
			func() float64 { return value(pool.Stat()) }))
	}
	gauge("tranche_pool_connections_used", "Database connections in use.",
		func(s *pgxpool.Stat) float64 { return float64(s.AcquiredConns()) })
	gauge("tranche_pool_connections_max", "Highest number of database connections.",
		func(s *pgxpool.Stat) float64 { return float64(s.MaxConns()) })
	m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "tranche_pool_wait_seconds_total", Help: "Total waiting time for a database connection.", ConstLabels: labels,
	}, func() float64 { return pool.Stat().EmptyAcquireWaitTime().Seconds() }))
}
