package metrics

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tranche/internal/liveness"
	"tranche/queries"
)

// askTimeMax is how long the database may take; Prometheus waits for 10 s.
const askTimeMax = 5 * time.Second

// WatchDatabase shows what is open in the database db, which sees all tenants. It is
// asked whenever the metrics are read, and what it tells is the same on every process.
func (m *Metrics) WatchDatabase(db queries.DBTX, log *slog.Logger) {
	m.registry.MustRegister(&database{
		db: db, log: log,
		up:         desc("database_up", "1 where the database answered when the metrics were read."),
		jobs:       desc("queue_jobs", "Background jobs that have not ended.", "queue", "state"),
		late:       desc("queue_late_seconds", "For how long the first job of the queue that could run has waited.", "queue"),
		executions: desc("executions_open", "Executions that have not ended, those that wait and items of batches too."),
		batches:    desc("batches_open", "Batches that have not ended.", "status"),
		schedules:  desc("schedules_late", "Schedules that were due a minute ago and have not fired."),
		processes:  desc("processes_alive", "Processes whose heartbeat is fresh.", "role"),
	})
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("tranche_"+name, help, labels, nil)
}

// database is a collector.
type database struct {
	db  queries.DBTX
	log *slog.Logger
	// asking keeps several who read at a time to one connection.
	asking sync.Mutex

	up, jobs, late, executions, batches, schedules, processes *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (d *database) Describe(descs chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{d.up, d.jobs, d.late, d.executions, d.batches, d.schedules, d.processes} {
		descs <- desc
	}
}

// Collect implements prometheus.Collector. Of a database that does not answer it
// shows that alone.
func (d *database) Collect(out chan<- prometheus.Metric) {
	d.asking.Lock()
	defer d.asking.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), askTimeMax)
	defer cancel()
	figures, err := d.ask(ctx)
	up := 1.0
	if err != nil {
		d.log.WarnContext(ctx, "the metrics lack what the database knows", "error", err)
		up = 0
	}
	for _, figure := range append(figures, prometheus.MustNewConstMetric(d.up, prometheus.GaugeValue, up)) {
		out <- figure
	}
}

// ask returns all figures or none.
func (d *database) ask(ctx context.Context) (figures []prometheus.Metric, err error) {
	add := func(desc *prometheus.Desc, value float64, labels ...string) {
		figures = append(figures, prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...))
	}
	q := queries.New()
	open, err := q.SysMetricsGetOpen(ctx, d.db)
	if err != nil {
		return nil, err
	}
	add(d.executions, float64(open.Executions))
	add(d.schedules, float64(open.SchedulesLate))
	queues, err := q.SysMetricsListQueues(ctx, d.db)
	if err != nil {
		return nil, err
	}
	for _, row := range queues {
		add(d.jobs, float64(row.Jobs), row.Queue, row.State)
		if row.State == "available" {
			add(d.late, row.LateSeconds, row.Queue)
		}
	}
	batches, err := q.SysMetricsListBatches(ctx, d.db)
	if err != nil {
		return nil, err
	}
	for _, row := range batches {
		add(d.batches, float64(row.Batches), row.Status)
	}
	processes, err := q.SysMetricsListProcesses(ctx, d.db, liveness.DeadAfter.Seconds())
	if err != nil {
		return nil, err
	}
	for _, row := range processes {
		add(d.processes, float64(row.Processes), row.Role)
	}
	return figures, nil
}
