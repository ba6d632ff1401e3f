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

// queryTimeMax bounds the queries of one scrape. Prometheus waits for 10 s.
const queryTimeMax = 5 * time.Second

// WatchDatabase adds metrics of the database. Each scrape queries db, which must see all
// tenants. The values are the same in every process.
func (m *Metrics) WatchDatabase(db queries.DBTX, log *slog.Logger) {
	m.registry.MustRegister(&database{
		db: db, log: log,
		up:         desc("database_up", "1 if the database responded to this scrape, otherwise 0."),
		jobs:       desc("queue_jobs", "Background jobs that have not ended.", "queue", "state"),
		late:       desc("queue_late_seconds", "Waiting time of the first available job of the queue.", "queue"),
		executions: desc("executions_open", "Executions that have not ended, including waiting ones and items of batches."),
		batches:    desc("batches_open", "Batches that have not ended.", "status"),
		schedules:  desc("schedules_late", "Schedules that have been due for a minute and have not fired."),
		processes:  desc("processes_alive", "Processes with a recent heartbeat.", "role"),
	})
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("tranche_"+name, help, labels, nil)
}

// database is a collector of metrics of the database.
type database struct {
	db  queries.DBTX
	log *slog.Logger
	// mu makes concurrent scrapes use one connection after the other.
	mu sync.Mutex

	up, jobs, late, executions, batches, schedules, processes *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (d *database) Describe(descs chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{d.up, d.jobs, d.late, d.executions, d.batches, d.schedules, d.processes} {
		descs <- desc
	}
}

// Collect implements prometheus.Collector. If the database does not respond, database_up is the
// only metric.
func (d *database) Collect(out chan<- prometheus.Metric) {
	d.mu.Lock()
	defer d.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), queryTimeMax)
	defer cancel()
	figures, err := d.query(ctx)
	up := 1.0
	if err != nil {
		d.log.WarnContext(ctx, "the metrics of the database could not be read", "error", err)
		up = 0
	}
	for _, figure := range append(figures, prometheus.MustNewConstMetric(d.up, prometheus.GaugeValue, up)) {
		out <- figure
	}
}

// query returns all metrics or none.
func (d *database) query(ctx context.Context) (figures []prometheus.Metric, err error) {
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
