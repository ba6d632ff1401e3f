package batch_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"tranche/cmd/tranche/service"
	"tranche/internal/apitest"
	"tranche/internal/identity"
	"tranche/jobs"
)

// drafting is a batch that has been read, and whose chunks the test runs.
type drafting struct {
	*stages
	runs []jobs.BatchItemRun
}

func newDrafting(t *testing.T, s *apitest.Service, definition string, body func(*apitest.Caller) map[string]any) *drafting {
	t.Helper()
	tenant := s.Tenant(t)
	c := tenant.As(t, identity.RoleAdmin)
	publish(t, c, definition)
	d := &drafting{stages: stagesOf(t, s, c, tenant.ID, start(t, c, "drafted", body(c)))}
	require.NoError(t, d.batches.PreProcess(t.Context(), d.tenantID, d.id, 1))
	d.runs = d.newRuns(t)
	return d
}

func (d *drafting) run(ctx context.Context, t *testing.T, in *stages, run jobs.BatchItemRun) {
	t.Helper()
	_, err := in.batches.RunItems(ctx, run)
	require.NoError(t, err)
}

// draft is the package that is begun, if any, and how many pieces of it are stored.
func (d *drafting) draft(t *testing.T) (id *uuid.UUID, pieces int) {
	t.Helper()
	require.NoError(t, d.Pool.QueryRow(t.Context(), `SELECT draft_package_id, (
			SELECT count(*) FROM package_attachments a JOIN attachment_uploads u ON u.attachment_id = a.attachment_id JOIN attachment_chunks c ON c.upload_id = u.id
			WHERE a.package_id = b.draft_package_id)
		FROM execution_batches b WHERE id = $1`, d.id).Scan(&id, &pieces))
	return id, pieces
}

// complete ends the batch and says whether the draft became its package, which has
// to be what the database tells: another process writes it again.
func (d *drafting) complete(t *testing.T, another *stages) (wasTaken bool) {
	t.Helper()
	before, _ := d.draft(t)
	require.NoError(t, d.batches.PostProcess(t.Context(), d.tenantID, d.id))
	r := d.record(t)
	require.Contains(t, []string{"complete", "cancelled"}, r.Status)
	drafted := files(t, d.caller, *r.Outputs.Post.PackageID)
	_, err := d.Pool.Exec(t.Context(), "UPDATE execution_batches SET status = 'post_processing', output_package_id = NULL WHERE id = $1", d.id)
	require.NoError(t, err)
	require.NoError(t, another.batches.PostProcess(t.Context(), d.tenantID, d.id))
	again := files(t, d.caller, *d.record(t).Outputs.Post.PackageID)
	for _, name := range []string{"results.csv", "results.jsonl", "failed.csv"} {
		require.NotEmpty(t, drafted[name])
		require.True(t, again[name] == drafted[name], "%s is not what the database tells", name)
	}
	require.Len(t, table(t, drafted["results.csv"]), r.State.Summary.Total)
	require.Equal(t, r.State.Summary.Total, strings.Count(drafted["results.jsonl"], "\n"))
	return before != nil && before.String() == *r.Outputs.Post.PackageID
}

// another is a process beside the one that runs the batch.
func (d *drafting) another(t *testing.T) *stages {
	t.Helper()
	return stagesOf(t, d.Service, d.caller, d.tenantID, d.id.String())
}

const (
	draftedItems = 3_100
	// draftedPure has no effects. Some items are refused, some fail, and some have an
	// output more.
	draftedPure = `{"name": "Drafted", "alias": "drafted",
		"inputSchema": {"type": "object", "properties": {"n": {"type": "integer", "minimum": 0}, "at": {"type": "string"}, "note": {"type": "string"}}},
		"tasks": [
			{"id": "route", "type": "switch", "config": {"cases": [{"when": "input.at == \"fails\"", "goto": "fails"}, {"when": "input.at == \"more\"", "goto": "more"}], "default": "usual"}},
			{"id": "usual", "type": "end", "config": {"output": {"twice": "{{ input.n * 2 }}", "note": "{{ input.note }}"}}},
			{"id": "more", "type": "end", "config": {"output": {"twice": "{{ input.n * 2 }}", "a more": "=x"}}},
			{"id": "fails", "type": "end", "config": {"status": "failed", "errorMessage": "it, \"fails\""}}],
		"edges": [{"source": "start", "target": "route"}, {"source": "route", "target": "usual"}, {"source": "route", "target": "more"}, {"source": "route", "target": "fails"}]}`
)

// draftedFile is a table of items, with what is given instead of some of them.
func draftedFile(t *testing.T, c *apitest.Caller, odd map[int]string) map[string]any {
	t.Helper()
	var file strings.Builder
	file.WriteString("n,at,note\n")
	for i := range draftedItems {
		if row, ok := odd[i]; ok {
			file.WriteString(row + "\n")
			continue
		}
		fmt.Fprintf(&file, "%d,%s,\"'é, %s\"\n", i, map[bool]string{true: "fails"}[i%97 == 5], strings.Repeat("x", 200))
	}
	return map[string]any{"attachmentFileNames": []string{upload(t, c, "=odd.csv", file.String())}}
}

// A package that was begun while the items ran is what the database tells, whatever
// order the chunks end in, whoever runs them, and whatever was refused between.
func TestPackageIsBegunWhileItemsRun(t *testing.T) {
	t.Parallel()
	s := apitest.Start(t, func(c *service.Config) { c.Role = service.RoleAPI })
	refused := map[int]string{}
	for _, i := range []int{0, 1, 999, 1000, 1001, 2500, 3001, draftedItems - 1} {
		refused[i] = "-1,refused,"
	}
	inOrder := func(t *testing.T, d *drafting) {
		t.Helper()
		for _, run := range d.runs {
			d.run(t.Context(), t, d.stages, run)
		}
	}
	for name, c := range map[string]struct {
		odd     map[int]string
		run     func(*testing.T, *drafting)
		isTaken bool
	}{
		"in order": {run: inOrder, isTaken: true},
		"backwards": {isTaken: true, run: func(t *testing.T, d *drafting) {
			t.Helper()
			slices.Reverse(d.runs)
			inOrder(t, d)
		}},
		"with refused ones": {odd: refused, run: inOrder, isTaken: true},
		"with refused ones, backwards": {odd: refused, isTaken: true, run: func(t *testing.T, d *drafting) {
			t.Helper()
			slices.Reverse(d.runs)
			inOrder(t, d)
		}},
		"with an output more at once": {odd: map[int]string{7: "7,more,"}, run: inOrder, isTaken: true},
		"with an output more at last": {odd: map[int]string{draftedItems - 1: "7,more,"}, run: inOrder},
		"by two processes": {isTaken: true, run: func(t *testing.T, d *drafting) {
			t.Helper()
			another := d.another(t)
			for i, run := range d.runs {
				in := []*stages{d.stages, another}[i%2]
				d.run(t.Context(), t, in, run)
			}
		}},
		"by a process that is gone": {run: func(t *testing.T, d *drafting) {
			t.Helper()
			another := d.another(t)
			d.run(t.Context(), t, another, d.runs[0])
			d.runs = d.runs[1:]
			inOrder(t, d)
		}},
		"delivered twice": {isTaken: true, run: func(t *testing.T, d *drafting) {
			t.Helper()
			inOrder(t, d)
			inOrder(t, d)
		}},
		"cut off": {isTaken: true, run: func(t *testing.T, d *drafting) {
			t.Helper()
			crashing(t, func(ctx context.Context) error {
				_, err := d.batches.RunItems(ctx, d.runs[1])
				return err
			})
			d.runs = slices.Delete(d.runs, 1, 2)
			inOrder(t, d)
		}},
		"cancelled": {isTaken: true, run: func(t *testing.T, d *drafting) {
			t.Helper()
			d.run(t.Context(), t, d.stages, d.runs[0])
			d.run(t.Context(), t, d.stages, d.runs[1])
			d.caller.Post(t, "/v1/execution-batches/"+d.id.String()+"/cancel", nil).Expect(http.StatusOK)
			for done := false; !done; {
				var err error
				done, err = d.batches.CancelItems(t.Context(), d.tenantID, d.id)
				require.NoError(t, err)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDrafting(t, s, draftedPure, func(c2 *apitest.Caller) map[string]any { return draftedFile(t, c2, c.odd) })
			require.Greater(t, len(d.runs), 3, "chunks")
			c.run(t, d)
			if _, waits := c.odd[0]; !waits { // for what a process may be running
				_, pieces := d.draft(t)
				require.Positive(t, pieces, "it is not stored while items run")
			}
			require.Equal(t, c.isTaken, d.complete(t, d.another(t)))
		})
	}
}

// So is one of items that call, which end in any order: those that were recorded
// once, and those that were recorded before they had ended.
func TestPackageOfCallsIsBegunWhileItemsRun(t *testing.T) {
	t.Parallel()
	s := apitest.Start(t, func(c *service.Config) { c.Role = service.RoleAPI })
	for name, of := range map[string]func(*target) string{
		"one call": func(o *target) string {
			return `{"name": "Drafted", "alias": "drafted", "inputSchema": {"type": "object", "properties": {"id": {"type": "string", "maxLength": 4}}},
				"tasks": [` + request("score", "GET", o.URL) + `, {"id": "done", "type": "end", "config": {"output": {"score": "{{ tasks.score.output.body.score }}"}}}],
				"edges": [{"source": "start", "target": "score"}, {"source": "score", "target": "done"}]}`
		},
		"several calls": func(o *target) string { return o.chain("drafted") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newTarget(t)
			for i := 3; i < 1200; i += 7 {
				o.broken[fmt.Sprintf("%d/score", i)] = true
			}
			items := many(1200)
			items[600] = "is too long"
			d := newDrafting(t, s, of(o), func(*apitest.Caller) map[string]any { return ids(items...) })
			require.Len(t, d.runs, 5, "chunks")
			var group sync.WaitGroup
			for _, run := range d.runs {
				group.Go(func() { d.run(t.Context(), t, d.stages, run) })
			}
			group.Wait()
			require.Equal(t, "post_processing", d.record(t).Status)
			require.True(t, d.complete(t, d.another(t)))
		})
	}
}
