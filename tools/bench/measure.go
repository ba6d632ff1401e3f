package main

import (
	"math"
	"slices"
)

// measure is the name of a measurement with its unit.
type measure string

// The measurements, in the order of the report: the limits of disk and database, then the
// service.
const (
	diskRate     measure = "disk: fdatasync of 8 kB [/s]"
	insertAlone  measure = "database: insert of 1 kB of jsonb, 1 client, p50 [ms]"
	insertTwice  measure = "database: an insert, a call and an insert, 1 client, p50 beyond the call [ms]"
	insertMany   measure = "database: insert of 1 kB of jsonb, 32 clients [/s]"
	pgbenchAlone measure = "pgbench: insert of 1 kB of jsonb, 1 client, mean [ms]"
	pgbenchMany  measure = "pgbench: insert of 1 kB of jsonb, 32 clients [/s]"
	jobMany      measure = "database: insert row and job, update row and delete job, 32 clients [/s]"
	copyRate     measure = "database: COPY of 300-byte rows [/s]"
	drainRate    measure = "River: drain of jobs that do nothing [/s]"

	syncAlone   measure = "synchronous, no effects, 1 connection, p50 [ms]"
	syncAlone99 measure = "synchronous, no effects, 1 connection, p99 [ms]"
	syncMany    measure = "synchronous, no effects, 32 connections [/s]"
	syncMany50  measure = "synchronous, no effects, 32 connections, p50 [ms]"
	syncMany99  measure = "synchronous, no effects, 32 connections, p99 [ms]"
	syncService measure = "synchronous, no effects: processor time of the service [µs]"
	syncServer  measure = "synchronous, no effects: processor time of PostgreSQL [µs]"
	syncWAL     measure = "synchronous, no effects: WAL [bytes]"

	callAlone measure = "synchronous, one call, 1 connection, p50 beyond the call [ms]"
	callMany  measure = "synchronous, one call, 32 connections [/s]"

	asyncAlone     measure = "asynchronous, accepted to completed, p50 [ms]"
	asyncAlone99   measure = "asynchronous, accepted to completed, p99 [ms]"
	asyncAccepted  measure = "asynchronous, accepted, 32 connections [/s]"
	asyncCompleted measure = "asynchronous, completed, 32 connections [/s]"

	batchRate     measure = "batch, no effects: items to the readable package [/s]"
	effectRate    measure = "batch, one call of 20 ms an item [/s]"
	batchService  measure = "batch, no effects: processor time of the service for an item [µs]"
	batchServer   measure = "batch, no effects: processor time of PostgreSQL for an item [µs]"
	batchWAL      measure = "batch, no effects: WAL for an item [bytes]"
	effectService measure = "batch, one call an item: processor time of the service [µs]"
	effectServer  measure = "batch, one call an item: processor time of PostgreSQL [µs]"
	effectWAL     measure = "batch, one call an item: WAL [bytes]"
	largeRate     measure = "large batch, no effects [/s]"
	smallAlone    measure = "batch of 1,000, no effects, alone [ms]"
	smallBeside   measure = "batch of 1,000, no effects, during another's large batch [ms]"
	probeIdle     measure = "synchronous p99 of a tenant alone [ms]"
	probeBusy     measure = "synchronous p99 during another's batch [ms]"
	peakMemory    measure = "service: memory at most [MB]"

	tokenTime   measure = "token endpoint, p50 [ms]"
	attemptTime measure = "attempt at a one-time password, p50 [ms]"
	listRows    measure = "lists: executions there are"
	list50      measure = "lists with filters, p50 [ms]"
	list99      measure = "lists with filters, p99 [ms]"
	readyTime   measure = "service: ready after its start [s]"
	idleCPU     measure = "service: processor time when idle [%]"
	idleMemory  measure = "service: memory when idle [MB]"
)

// figures holds the values of one measurement.
type figures struct {
	Name   measure   `json:"name"`
	Values []float64 `json:"values"` // one per round
	Median float64   `json:"median"`
	Least  float64   `json:"least"`
	Most   float64   `json:"most"`
}

// record holds all figures in the order of their first values.
type record struct {
	all []*figures
}

func (r *record) add(m measure, value float64) {
	f := r.of(m)
	if f == nil {
		f = &figures{Name: m}
		r.all = append(r.all, f)
	}
	f.Values = append(f.Values, value)
	f.Median, f.Least, f.Most = median(f.Values), slices.Min(f.Values), slices.Max(f.Values)
}

func (r *record) of(m measure) *figures {
	for _, f := range r.all {
		if f.Name == m {
			return f
		}
	}
	return nil
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}
