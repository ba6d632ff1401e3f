package execution_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"tranche/internal/catalog"
	"tranche/internal/egress"
	"tranche/internal/engine"
	"tranche/internal/exactjson"
	"tranche/internal/execution"
	"tranche/internal/pgtest"
	"tranche/internal/task"
	"tranche/jobs"
	"tranche/queries"
)

// bundle is a tenant on a database of its own, and services that stand for the
// processes of an installation.
type bundle struct {
	pool    *pgxpool.Pool
	catalog *catalog.Catalog
	tenant  uuid.UUID
	target  *target
}

func setup(t *testing.T) *bundle {
	t.Helper()
	open, err := egress.ParseAllow("127.0.0.1/32")
	require.NoError(t, err)
	pool := pgtest.Pool(t)
	return &bundle{
		pool:    pool,
		catalog: catalog.New(pool, task.Types(task.Ports{HTTP: egress.New(open)})),
		tenant:  pgtest.Tenant(t, pool).ID,
		target:  newTarget(t),
	}
}

// process returns a service that holds leases under a process of its own,
// alive until kill is called.
func (b *bundle) process(t *testing.T) (s *execution.Service, kill func()) {
	t.Helper()
	id, log := uuid.New(), slog.New(slog.DiscardHandler)
	require.NoError(t, queries.New().SysProcessHeartbeat(t.Context(), b.pool, queries.SysProcessHeartbeatParams{ID: id, Role: "all"}))
	client, err := jobs.NewClient(b.pool, jobs.Config{ProcessID: id, Logger: log})
	require.NoError(t, err)
	s = execution.New(execution.Config{
		Pool: b.pool, Jobs: client, Catalog: b.catalog, ProcessID: id, Clock: time.Now, Log: log,
		Runner: &engine.Runner{Clock: time.Now, Log: log},
	})
	t.Cleanup(func() { s.Stop(context.Background()) })
	return s, func() {
		_, err := b.pool.Exec(context.Background(), `UPDATE processes SET heartbeat_at = now() - interval '1 minute' WHERE id = $1`, id)
		require.NoError(t, err)
	}
}

// request publishes a workflow and returns a request to execute it.
func (b *bundle) request(t *testing.T, alias, tasks, edges, input string) execution.Request {
	t.Helper()
	w, err := b.catalog.Create(t.Context(), b.tenant, alias, catalog.Content{
		Name: alias, InputSchema: json.RawMessage(`{"type":"object"}`), Tasks: json.RawMessage(tasks), Edges: json.RawMessage(edges),
	})
	require.NoError(t, err)
	_, err = b.catalog.Publish(t.Context(), b.tenant, w.ID)
	require.NoError(t, err)
	_, plan, err := b.catalog.Resolve(t.Context(), b.tenant, alias, "v1")
	require.NoError(t, err)
	value, err := exactjson.Decode([]byte(input))
	require.NoError(t, err)
	members, ok := value.(map[string]any)
	require.True(t, ok)
	return execution.Request{TenantID: b.tenant, PrincipalID: "tester", WorkflowID: w.ID, Plan: plan, Input: members}
}

// calling is a request to execute a workflow that calls the target once and
// answers with what it said.
func (b *bundle) calling(t *testing.T, config string) execution.Request {
	t.Helper()
	return b.request(t, "calling", `[
		{"id":"ask","type":"http-request","config":{"method":"POST","url":"`+b.target.URL+`/ask"`+config+`}},
		{"id":"done","type":"end","config":{"output":{"said":"{{ tasks.ask.output.body.said }}"}}}]`,
		`[{"source":"start","target":"ask"},{"source":"ask","target":"done"}]`, `{}`)
}

func (b *bundle) text(t *testing.T, sql string, args ...any) string {
	t.Helper()
	var text string
	require.NoError(t, b.pool.QueryRow(t.Context(), sql, args...).Scan(&text))
	return text
}

func (b *bundle) status(t *testing.T, id uuid.UUID) string {
	t.Helper()
	return b.text(t, `SELECT status FROM executions WHERE id = $1`, id)
}

// target is an HTTP server that records the idempotency keys of its calls. It
// answers when it is let.
type target struct {
	*httptest.Server
	mu     sync.Mutex
	keys   []string
	called chan struct{} // receives for every call
	let    chan struct{} // closed: answers at once
	status int
}

func newTarget(t *testing.T) *target {
	t.Helper()
	tg := &target{called: make(chan struct{}, 100), let: make(chan struct{}), status: http.StatusOK}
	tg.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tg.mu.Lock()
		tg.keys = append(tg.keys, r.Header.Get("Idempotency-Key"))
		tg.mu.Unlock()
		tg.called <- struct{}{}
		select {
		case <-tg.let:
		case <-r.Context().Done():
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(tg.status)
		_, _ = w.Write([]byte(`{"said":1.10}`))
	}))
	t.Cleanup(tg.Close)
	return tg
}

func (tg *target) seen() []string {
	tg.mu.Lock()
	defer tg.mu.Unlock()
	return append([]string{}, tg.keys...)
}
