package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// acknowledged holds the ids of acknowledged executions, and the outputs of synchronous
// ones.
type acknowledged struct {
	mu      sync.Mutex
	outputs map[uuid.UUID]string
}

func (a *acknowledged) note(answer []byte) (uuid.UUID, error) {
	var e struct {
		ExecutionID uuid.UUID
		Output      json.RawMessage
	}
	if err := json.Unmarshal(answer, &e); err != nil {
		return e.ExecutionID, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.outputs[e.ExecutionID] = string(e.Output)
	return e.ExecutionID, nil
}

// execute lets callers execute a workflow repeatedly, and then reads back all acknowledged
// executions.
func (b *bench) execute(ctx context.Context, callers int, alias string, status int, headers ...string) (loaded, error) {
	all := &acknowledged{outputs: map[uuid.UUID]string{}}
	result, err := load(ctx, callers, b.Span, func(context.Context) (func() error, func(), error) {
		w, err := dial(b.service.addr, b.tenant.token)
		if err != nil {
			return nil, nil, err
		}
		request := w.request(http.MethodPost, executePath(alias), []byte(input), headers...)
		return func() error {
			answer, err := w.send(request, status)
			if err != nil {
				return err
			}
			_, err = all.note(answer)
			return err
		}, func() { _ = w.Close() }, nil
	})
	if err != nil {
		return result, err
	}
	return result, b.readBack(ctx, all)
}

// readBack waits until all executions have ended. It fails unless each acknowledged one has
// completed, with the output of the response.
func (b *bench) readBack(ctx context.Context, all *acknowledged) error {
	ids := make([]uuid.UUID, 0, len(all.outputs))
	for id := range all.outputs {
		ids = append(ids, id)
	}
	err := waitForNone(ctx, b.db.own, `SELECT count(*) FROM (SELECT FROM executions WHERE status IN ('pending', 'running') LIMIT 1) AS open`)
	if err != nil {
		return err
	}
	rows, err := b.db.own.Query(ctx, `SELECT e.id, e.status, p.result -> 'output' FROM executions e
		JOIN execution_payloads p ON p.execution_id = e.id WHERE e.id = ANY ($1)`, ids)
	if err != nil {
		return err
	}
	found := 0
	var id uuid.UUID
	var status string
	var output json.RawMessage
	_, err = pgx.ForEachRow(rows, []any{&id, &status, &output}, func() error {
		if answered := all.outputs[id]; status != "completed" || (answered != "" && answered != string(output)) {
			return fmt.Errorf("execution %s is %s with output %s; the response had %s", id, status, output, answered)
		}
		found++
		return nil
	})
	if err == nil && found != len(ids) {
		err = fmt.Errorf("%d executions were acknowledged, but %d exist", len(ids), found)
	}
	return err
}

func (b *bench) measureSyncAlone(ctx context.Context) error {
	result, err := b.execute(ctx, 1, aliasPure, http.StatusOK)
	b.add(syncAlone, result.percentile(50))
	b.add(syncAlone99, result.percentile(99))
	return err
}

// measureSyncMany also measures the resources of an execution, which depend less on other
// load of the machine.
func (b *bench) measureSyncMany(ctx context.Context) error {
	before, err := b.spent(ctx)
	if err != nil {
		return err
	}
	result, err := b.execute(ctx, clientsMany, aliasPure, http.StatusOK)
	if err != nil {
		return err
	}
	b.add(syncMany, result.perSecond())
	b.add(syncMany50, result.percentile(50))
	b.add(syncMany99, result.percentile(99))
	return b.addSpent(ctx, before, result.calls, syncService, syncServer, syncWAL)
}

// measureCallAlone subtracts the time of a direct call.
func (b *bench) measureCallAlone(ctx context.Context) error {
	direct, err := b.loadDirectly(ctx, nil)
	if err != nil {
		return err
	}
	result, err := b.execute(ctx, 1, aliasCall, http.StatusOK)
	b.add(callAlone, result.percentile(50)-direct.percentile(50))
	return err
}

// measureInsertTwice is measureCallAlone without the service: the caller inserts a row
// before and after the call. This is the minimum for a durable call.
func (b *bench) measureInsertTwice(ctx context.Context) error {
	direct, err := b.loadDirectly(ctx, nil)
	if err != nil {
		return err
	}
	conn, err := b.db.limit.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	row := aRow()
	between, err := b.loadDirectly(ctx, func() error {
		_, err := conn.Exec(ctx, insertRow, row)
		return err
	})
	b.add(insertTwice, between.percentile(50)-direct.percentile(50))
	return err
}

// loadDirectly lets one caller call the bureau. It calls around, unless that is nil, before
// and after each call.
func (b *bench) loadDirectly(ctx context.Context, around func() error) (loaded, error) {
	if around == nil {
		around = func() error { return nil }
	}
	return load(ctx, 1, b.Span/2, func(context.Context) (func() error, func(), error) {
		w, err := dial(b.bureau.addr, "")
		if err != nil {
			return nil, nil, err
		}
		request := w.request(http.MethodGet, atOncePath, nil, "Idempotency-Key: direct")
		return func() error {
			if err := around(); err != nil {
				return err
			}
			if _, err := w.send(request, http.StatusOK); err != nil {
				return err
			}
			return around()
		}, func() { _ = w.Close() }, nil
	})
}

func (b *bench) measureCallMany(ctx context.Context) error {
	result, err := b.execute(ctx, clientsMany, aliasCall, http.StatusOK)
	b.add(callMany, result.perSecond())
	return err
}

// preferAsync requests the asynchronous execution of a synchronous workflow.
const preferAsync = "Prefer: respond-async"

// pollInterval is the time between two queries of measureAsyncAlone: shorter than the
// measured time, and long enough to leave the processors to the service.
const pollInterval = 250 * time.Microsecond

// measureAsyncAlone measures the time from the 202 to the committed end of one execution.
func (b *bench) measureAsyncAlone(ctx context.Context) error {
	w, err := dial(b.service.addr, b.tenant.token)
	if err != nil {
		return err
	}
	defer func() { _ = w.Close() }()
	conn, err := b.db.own.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	all := &acknowledged{outputs: map[uuid.UUID]string{}}
	request := w.request(http.MethodPost, executePath(aliasPure), []byte(input), preferAsync)
	var result loaded
	for end := time.Now().Add(b.Span); time.Now().Before(end); {
		answer, err := w.send(request, http.StatusAccepted)
		if err != nil {
			return err
		}
		begin := time.Now()
		id, err := all.note(answer)
		if err != nil {
			return err
		}
		for status := ""; status != "completed"; time.Sleep(pollInterval) {
			if err := conn.QueryRow(ctx, `SELECT status FROM executions WHERE id = $1`, id).Scan(&status); err != nil {
				return err
			}
		}
		result.times = append(result.times, time.Since(begin))
	}
	slices.Sort(result.times)
	b.add(asyncAlone, result.percentile(50))
	b.add(asyncAlone99, result.percentile(99))
	return b.readBack(ctx, all)
}

func (b *bench) measureAsyncMany(ctx context.Context) error {
	begin := time.Now()
	result, err := b.execute(ctx, clientsMany, aliasPure, http.StatusAccepted, preferAsync)
	b.add(asyncAccepted, result.perSecond())
	b.add(asyncCompleted, float64(result.calls)/time.Since(begin).Seconds())
	return err
}
