package demo

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"tranche/testdata"
)

const (
	singleAlias = "pre-qualification" // executed once, synchronously
	bulkAlias   = "underwriting"      // executed for each row of batchFile
	batchFile   = "loan-applications.csv"
)

// tour walks through the service over HTTP.
type tour struct {
	demo    *Demo
	client  *client
	outputs string // directory of output packages and certificates
}

// run publishes the sample workflows, executes one for a single applicant and one for
// a file of applicants, and repeats the failed items. If an interrupted run left a
// batch, run continues that batch and starts none.
func (t *tour) run(ctx context.Context) error {
	workflows, err := publishWorkflows(ctx, t.client, t.demo.bureau.URL())
	if err != nil {
		return err
	}
	names := make([]string, 0, len(workflows))
	for _, alias := range slices.Sorted(maps.Keys(workflows)) {
		names = append(names, alias+" "+workflows[alias].Version)
	}
	t.demo.screen.step("published %s", strings.Join(names, ", "))
	if err := t.executeOne(ctx, workflows[singleAlias]); err != nil {
		return fmt.Errorf("execute %s: %w", singleAlias, err)
	}
	if err := t.executeWithConsent(ctx, workflows[bulkAlias]); err != nil {
		return fmt.Errorf("execute %s with a consent: %w", bulkAlias, err)
	}
	batchID, err := t.unfinishedBatch(ctx)
	if err != nil {
		return err
	}
	if batchID == "" {
		if batchID, err = t.startBatch(ctx, workflows[bulkAlias]); err != nil {
			return fmt.Errorf("start the batch: %w", err)
		}
		if err := t.pauseAndResume(ctx, batchID); err != nil {
			return fmt.Errorf("pause the batch: %w", err)
		}
	}
	files, err := t.finishBatch(ctx, batchID)
	if err != nil {
		return err
	}
	if err := t.correctAndRepeat(ctx, workflows[bulkAlias], files["failed.csv"]); err != nil {
		return fmt.Errorf("repeat the failed items: %w", err)
	}
	if err := t.retryItems(ctx, batchID); err != nil {
		return fmt.Errorf("retry batch %s: %w", batchID, err)
	}
	return nil
}

func (t *tour) executeOne(ctx context.Context, w workflow) error {
	begun := time.Now()
	executed, err := t.execute(ctx, w)
	if err != nil {
		return err
	}
	t.demo.screen.step("executed %s for one applicant in %.1f ms; the decision:", w.Alias, float64(time.Since(begun).Microseconds())/1000)
	t.demo.screen.json(executed.Output)
	return nil
}

// unfinishedBatch returns the id of the batch of an interrupted run, or "" if there is
// none in the database.
func (t *tour) unfinishedBatch(ctx context.Context) (string, error) {
	if t.demo.state.BatchID == "" {
		return "", nil
	}
	var b batch
	err := t.client.call(ctx, http.MethodGet, batchPath(t.demo.state.BatchID), nil, &b)
	if hasStatus(err, http.StatusNotFound) {
		return "", nil // the demo's database was deleted
	}
	if err != nil {
		return "", err
	}
	t.demo.screen.step("found the batch of an interrupted run (%s); this process takes over the work of the dead one within 25 s", b.Status)
	if b.Status == "paused" {
		err = t.client.call(ctx, http.MethodPost, batchPath(b.ID)+"/resume", nil, nil)
	}
	return b.ID, err
}

func (t *tour) startBatch(ctx context.Context, w workflow) (string, error) {
	batchID, err := startBatch(ctx, t.client, w, []upload{{batchFile, testdata.Applications}})
	if err != nil {
		return "", err
	}
	t.demo.screen.step("uploaded %s and started %s with it", batchFile, w.Alias)
	t.demo.state.BatchID = batchID
	return batchID, t.demo.state.save()
}

// finishBatch waits for the end of a batch, prints its summary and returns the paths of
// its results by name.
func (t *tour) finishBatch(ctx context.Context, batchID string) (map[string]string, error) {
	begun := time.Now()
	report, end := t.demo.screen.progress()
	b, err := awaitBatch(ctx, t.client, batchID, func(b batch) bool {
		report(b)
		return b.ended()
	})
	end()
	if err != nil {
		return nil, fmt.Errorf("wait for batch %s: %w", batchID, err)
	}
	took := time.Since(begun)
	t.demo.state.BatchID = ""
	if err := t.demo.state.save(); err != nil {
		return nil, err
	}
	if b.Status != "complete" || b.Outputs.PostProcessing.PackageID == nil {
		return nil, fmt.Errorf("batch %s ended with status %s: %s", batchID, b.Status, b.Outputs.PreProcessing.Result)
	}
	files, err := downloadPackage(ctx, t.client, *b.Outputs.PostProcessing.PackageID, filepath.Join(t.outputs, batchID))
	if err != nil {
		return nil, fmt.Errorf("download the results: %w", err)
	}
	decisions, err := countDecisions(files["results.jsonl"])
	if err != nil {
		return nil, err
	}
	t.printSummary(b, took, decisions)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		t.demo.screen.say("        %s", files[name])
	}
	return files, nil
}

func (t *tour) printSummary(b batch, took time.Duration, decisions map[string]int) {
	sum, calls := b.State.Summary, t.demo.bureau.Counts()
	t.demo.screen.step("batch %s: %s", b.ID, b.Status)
	rows := [][]any{
		{"applications", sum.Total},
		{"completed", sum.Completed},
		{"failed", sum.Failed},
		{"without a fraud screening", sum.UnsuccessfulSources},
	}
	for _, decision := range slices.Sorted(maps.Keys(decisions)) {
		rows = append(rows, []any{"decision: " + decision, decisions[decision]})
	}
	rows = append(rows,
		[]any{"calls to the bureau", calls.Calls},
		[]any{"  answered with an error", calls.Failed},
		[]any{"time", took.Round(100 * time.Millisecond)})
	t.demo.screen.table(rows...)
}
