package catalog_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"tranche/internal/catalog"
	"tranche/internal/fault"
	"tranche/internal/pgtest"
	"tranche/internal/task"
	"tranche/internal/workflow"
	"tranche/queries"
)

// bundle is a catalog on a database of its own, and a tenant of it.
type bundle struct {
	*catalog.Catalog
	pool       *pgxpool.Pool
	tenantID   uuid.UUID
	statements *atomic.Int64 // that the catalog has sent
}

func setup(t *testing.T) *bundle {
	t.Helper()
	url := pgtest.URL(t)
	config, err := pgxpool.ParseConfig(url)
	require.NoError(t, err)
	b := &bundle{pool: pgtest.OpenPool(t, url), statements: &atomic.Int64{}}
	config.ConnConfig.Tracer = statementCounter{b.statements}
	counted, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(counted.Close)
	b.tenantID = pgtest.Tenant(t, b.pool).ID
	b.Catalog = catalog.New(counted, task.Types(task.Ports{}))
	return b
}

type statementCounter struct{ n *atomic.Int64 }

func (c statementCounter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.n.Add(1)
	return ctx
}

func (statementCounter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func content() catalog.Content {
	return catalog.Content{
		Name:  "x",
		Tasks: json.RawMessage(`[{"id": "done", "type": "end", "config": {"output": {"rate": 1.10}}}]`),
	}
}

func (b *bundle) draft(t *testing.T, alias string) *catalog.Workflow {
	t.Helper()
	w, err := b.Create(t.Context(), b.tenantID, alias, content())
	require.NoError(t, err)
	return w
}

func (b *bundle) active(t *testing.T, alias string) *catalog.Workflow {
	t.Helper()
	w, err := b.Publish(t.Context(), b.tenantID, b.draft(t, alias).ID)
	require.NoError(t, err)
	return w
}

// next publishes another version of an active workflow.
func (b *bundle) next(t *testing.T, of *catalog.Workflow) *catalog.Workflow {
	t.Helper()
	draft, err := b.CreateDraft(t.Context(), b.tenantID, of.ID)
	require.NoError(t, err)
	w, err := b.Publish(t.Context(), b.tenantID, draft.ID)
	require.NoError(t, err)
	return w
}

func TestResolve(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first := b.active(t, "scoring")
	second := b.next(t, first)
	_, err := b.CreateDraft(t.Context(), b.tenantID, second.ID) // v3
	require.NoError(t, err)

	for name, want := range map[string]uuid.UUID{"v1": first.ID, "v2": second.ID, workflow.Latest: second.ID} {
		w, plan, err := b.Resolve(t.Context(), b.tenantID, "scoring", name)
		require.NoError(t, err, name)
		require.Equal(t, want, w.ID, name)
		require.Len(t, plan.Graph.Tasks, 1)
	}
	for _, name := range [][2]string{
		{"scoring", "v4"},
		{"scoring", "v0"},
		{"scoring", "v01"},
		{"scoring", "V1"},
		{"scoring", "1"},
		{"scoring", "v"},
		{"scoring", "v+1"},
		{"scoring", "v99999999999"},
		{"scoring", ""},
		{"scoring", "Latest"},
		{"other", "v1"},
		{"other", "latest"},
		{"Scoring", "v1"},
		{"a\x00", "latest"},
		{"\xff", "v1"},
	} {
		_, _, err := b.Resolve(t.Context(), b.tenantID, name[0], name[1])
		require.ErrorIs(t, err, fault.NotFound, "%q", name)
	}
	_, _, err = b.Resolve(t.Context(), b.tenantID, "scoring", "v3")
	require.ErrorIs(t, err, fault.Conflict, "a draft")
	require.Equal(t, fault.InvalidWorkflowStatus, fault.From(err).SubCode)

	_, err = b.Archive(t.Context(), b.tenantID, second.ID)
	require.NoError(t, err)
	_, _, err = b.Resolve(t.Context(), b.tenantID, "scoring", "v2")
	require.ErrorIs(t, err, fault.Conflict, "archived")
	w, _, err := b.Resolve(t.Context(), b.tenantID, "scoring", workflow.Latest)
	require.NoError(t, err)
	require.Equal(t, first.ID, w.ID, "the highest that is active")
	_, err = b.Archive(t.Context(), b.tenantID, first.ID)
	require.NoError(t, err)
	_, _, err = b.Resolve(t.Context(), b.tenantID, "scoring", workflow.Latest)
	require.ErrorIs(t, err, fault.NotFound)
}

func TestResolveKeepsTenantsApart(t *testing.T) {
	t.Parallel()
	b := setup(t)
	mine := b.active(t, "scoring")
	_, _, err := b.Resolve(t.Context(), b.tenantID, "scoring", "v1")
	require.NoError(t, err)
	other := pgtest.Tenant(t, b.pool).ID
	_, _, err = b.Resolve(t.Context(), other, "scoring", "v1")
	require.ErrorIs(t, err, fault.NotFound)
	_, _, err = b.Plan(t.Context(), other, mine.ID)
	require.ErrorIs(t, err, fault.NotFound, "not from memory either")
}

func TestResolveAsksTheDatabaseOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.active(t, "scoring")
	resolve := func(version string) int64 {
		before := b.statements.Load()
		_, _, err := b.Resolve(t.Context(), b.tenantID, "scoring", version)
		require.NoError(t, err)
		return b.statements.Load() - before
	}
	resolve("v1")
	require.Zero(t, resolve("v1"))
	before := b.statements.Load()
	_, _, err := b.Plan(t.Context(), b.tenantID, w.ID)
	require.NoError(t, err)
	require.Zero(t, b.statements.Load()-before, "the plan is the same")
	require.EqualValues(t, 1, resolve(workflow.Latest), "which version is the latest, others may have changed")
	b.Forget(w.ID)
	require.NotZero(t, resolve("v1"))
}

// TestResolveAfterArchiveInAnotherProcess: another process archives what this one has resolved.
func TestResolveAfterArchiveInAnotherProcess(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.active(t, "scoring")
	_, _, err := b.Resolve(t.Context(), b.tenantID, "scoring", "v1")
	require.NoError(t, err)
	elsewhere := catalog.New(b.pool, task.Types(task.Ports{}))
	_, err = elsewhere.Archive(t.Context(), b.tenantID, w.ID)
	require.NoError(t, err)

	_, _, err = b.Resolve(t.Context(), b.tenantID, "scoring", "v1")
	require.NoError(t, err, "remembered; what records an execution finds out")
	b.Forget(w.ID)
	_, _, err = b.Resolve(t.Context(), b.tenantID, "scoring", "v1")
	require.ErrorIs(t, err, fault.Conflict)
	archived, plan, err := b.Plan(t.Context(), b.tenantID, w.ID)
	require.NoError(t, err, "what runs of it goes on")
	require.Equal(t, catalog.Archived, archived.Status)
	require.NotNil(t, plan)
	_, _, err = b.Resolve(t.Context(), b.tenantID, "scoring", "v1")
	require.ErrorIs(t, err, fault.Conflict, "and the plan in memory does not bring it back")
}

func TestPlanRefusesDrafts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, _, err := b.Plan(t.Context(), b.tenantID, b.draft(t, "scoring").ID)
	require.ErrorIs(t, err, fault.Conflict)
	_, _, err = b.Plan(t.Context(), b.tenantID, pgtest.NewID(t))
	require.ErrorIs(t, err, fault.NotFound)
}

func TestContentRoundTrip(t *testing.T) {
	t.Parallel()
	b := setup(t)
	got, err := b.Get(t.Context(), b.tenantID, b.draft(t, "scoring").ID)
	require.NoError(t, err)
	require.Equal(t, `[{"id":"done","type":"end","config":{"output":{"rate":1.10}}}]`, string(got.Tasks))
	require.Equal(t, `{"type":"object"}`, string(got.InputSchema))
	require.Equal(t, `[]`, string(got.Edges))
	require.Equal(t, 1, got.Revision)
}

func TestCreateRefusesABadAlias(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, alias := range []string{"", "A", "-a", "a b", "a\n", "ä"} {
		_, err := b.Create(t.Context(), b.tenantID, alias, content())
		require.ErrorIs(t, err, fault.Invalid, "%q", alias)
	}
	bad := content()
	bad.Tasks = json.RawMessage(`[{"id":1}`)
	_, err := b.Create(t.Context(), b.tenantID, "a", bad)
	require.ErrorIs(t, err, fault.Invalid)
}

// TestVersionsAreNeverReused drafts and publishes from every version at once.
func TestVersionsAreNeverReused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first := b.active(t, "scoring")
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			for range 5 {
				draft, err := b.CreateDraft(t.Context(), b.tenantID, first.ID)
				if err != nil {
					if fault.From(err).Kind != fault.Conflict {
						t.Error(err)
					}
					continue
				}
				if _, err := b.Publish(t.Context(), b.tenantID, draft.ID); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
	found, total, err := b.List(t.Context(), b.tenantID, catalog.Filter{Status: catalog.Active}, queries.Window{Limit: 100, CountMax: 100})
	require.NoError(t, err)
	require.Greater(t, total, 1)
	for i, w := range found {
		require.Equal(t, total-i, w.Version, "no gap and none twice, newest first")
	}
}

func TestListCountIsBounded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for i := range 4 {
		b.draft(t, fmt.Sprintf("a%d", i))
	}
	_, total, err := b.List(t.Context(), b.tenantID, catalog.Filter{}, queries.Window{Limit: 1, CountMax: 3})
	require.NoError(t, err)
	require.Equal(t, 3, total)
}

// runs is a workflow of so many tasks that run the latest version of another.
func runs(alias string, tasks int) catalog.Content {
	var nodes, edges []string
	for i := range tasks {
		nodes = append(nodes, fmt.Sprintf(`{"id":"t%d","type":"sub-workflow","config":{"alias":%q,"version":"latest"}}`, i, alias))
		edges = append(edges, fmt.Sprintf(`{"source":"start","target":"t%d"}`, i))
	}
	return catalog.Content{
		Name: "x", Tasks: json.RawMessage("[" + strings.Join(nodes, ",") + "]"), Edges: json.RawMessage("[" + strings.Join(edges, ",") + "]"),
	}
}

// Workflows of many tasks that run each other are published as fast as others,
// however many ways lead through them.
func TestPublishNestedWorkflows(t *testing.T) {
	t.Parallel()
	b := setup(t)
	inner := b.active(t, "level0")
	publish := func(alias string, content catalog.Content) (*catalog.Workflow, error) {
		draft, err := b.Create(t.Context(), b.tenantID, alias, content)
		require.NoError(t, err)
		return b.Publish(t.Context(), b.tenantID, draft.ID)
	}
	for level := range workflow.SubDepthMax {
		_, err := publish(fmt.Sprintf("level%d", level+1), runs(fmt.Sprintf("level%d", level), 100))
		require.NoError(t, err)
	}
	message := func(err error) string {
		require.ErrorIs(t, err, fault.Unprocessable)
		return fault.From(err).Details[0].Message
	}
	_, err := publish("level9", runs("level8", 100))
	require.Equal(t, "would nest workflows more than 8 deep", message(err))

	draft, err := b.CreateDraft(t.Context(), b.tenantID, inner.ID)
	require.NoError(t, err)
	_, err = b.Update(t.Context(), b.tenantID, draft.ID, func(int) bool { return true }, func(catalog.Content) catalog.Content { return runs("level7", 100) })
	require.NoError(t, err)
	_, err = b.Publish(t.Context(), b.tenantID, draft.ID)
	require.Equal(t, "would run workflow level0 inside itself", message(err))
}
