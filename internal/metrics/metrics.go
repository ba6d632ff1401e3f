// Package metrics counts what this process does and asks the database what waits,
// for Prometheus to read. No label holds anything that a tenant or a caller
// chooses, so the number of series is bounded; whoever wants to know about one
// tenant asks the views of schema ops. It must not know what the things are that
// it counts.
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

// unrouted is the route and the method of requests that no endpoint takes: callers
// choose both.
const unrouted = "none"

// Metrics counts; it is safe for concurrent use.
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

// New returns metrics of a process, Go's own among them.
func New() *Metrics {
	// From a millisecond to the five minutes that a call or an execution may take.
	buckets := []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tranche_http_requests_total", Help: "Requests that were answered, by endpoint and status.",
		}, []string{"method", "route", "code"}),
		requestTimes: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "tranche_http_request_duration_seconds", Help: "From a request's headers to the end of its answer.", Buckets: buckets,
		}, []string{"method", "route"}),
		jobs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tranche_jobs_total", Help: "Runs of background jobs; what came of them is done, put_off (it goes on later), failed (it is tried again) or given_up.",
		}, []string{"kind", "outcome"}),
		jobTimes: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "tranche_job_duration_seconds", Help: "How long runs of background jobs took.", Buckets: buckets,
		}, []string{"kind"}),
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tranche_calls_total", Help: "Requests that workflows made to others, by the class of the answer's status or why there was none.",
		}, []string{"outcome"}),
		callTimes: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "tranche_call_duration_seconds", Help: "How long requests to others took, answered or not.", Buckets: buckets,
		}),
		executions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tranche_executions_total", Help: "Executions that this process brought to an end, items of batches too; one whose end had to be written again counts twice.",
		}, []string{"status"}),
	}
	m.registry.MustRegister(
		m.requests, m.requestTimes, m.jobs, m.jobTimes, m.calls, m.callTimes, m.executions,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return m
}

// Handler shows everything in Prometheus's text format.
func (m *Metrics) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}))
	return mux
}

// Request counts an answered request. The route is the pattern of its endpoint, empty
// where there is none.
func (m *Metrics) Request(method, route string, status int, took time.Duration) {
	if route == "" {
		method, route = unrouted, unrouted
	}
	m.requests.WithLabelValues(method, route, strconv.Itoa(status)).Inc()
	m.requestTimes.WithLabelValues(method, route).Observe(took.Seconds())
}

// Job counts a run of a job that returned err.
func (m *Metrics) Job(kind string, err error, took time.Duration) {
	_, isPutOff := errors.AsType[*river.JobSnoozeError](err)
	_, isGivenUp := errors.AsType[*river.JobCancelError](err)
	outcome := "done"
	switch {
	case isPutOff:
		outcome = "put_off"
	case isGivenUp:
		outcome = "given_up"
	case err != nil:
		outcome = "failed"
	}
	m.jobs.WithLabelValues(kind, outcome).Inc()
	m.jobTimes.WithLabelValues(kind).Observe(took.Seconds())
}

// Call counts a request to somebody else; outcome is one of a few.
func (m *Metrics) Call(outcome string, took time.Duration) {
	m.calls.WithLabelValues(outcome).Inc()
	m.callTimes.Observe(took.Seconds())
}

// Executions counts some that have ended.
func (m *Metrics) Executions(status string, n int) {
	m.executions.WithLabelValues(status).Add(float64(n))
}

// Watch shows how much of a pool of database connections is in use.
func (m *Metrics) Watch(name string, pool *pgxpool.Pool) {
	labels := prometheus.Labels{"pool": name}
	gauge := func(metric, help string, value func(*pgxpool.Stat) float64) {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: metric, Help: help, ConstLabels: labels},
			func() float64 { return value(pool.Stat()) }))
	}
	gauge("tranche_pool_connections_used", "Database connections in use.",
		func(s *pgxpool.Stat) float64 { return float64(s.AcquiredConns()) })
	gauge("tranche_pool_connections_max", "Database connections that may be in use.",
		func(s *pgxpool.Stat) float64 { return float64(s.MaxConns()) })
	m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "tranche_pool_wait_seconds_total", Help: "Time that was spent waiting for a database connection.", ConstLabels: labels,
	}, func() float64 { return pool.Stat().EmptyAcquireWaitTime().Seconds() }))
}
