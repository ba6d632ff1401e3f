package main

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"tranche/internal/bureau"
	"tranche/testdata"
)

const (
	demoSingle = "pre-qualification" // what the demo runs once, synchronously
	demoBulk   = "underwriting"      // what it runs over the whole file
	demoFile   = "loan-applications.csv"
)

// tour is the demo's walk through the service, over HTTP alone.
type tour struct {
	client *demoClient
	bureau func() *bureau.Server
	// withoutBureau does something while the bureau is down.
	withoutBureau func(ctx context.Context, do func() error) error

	state   *demoState
	screen  *screen
	outputs string // folder for output packages
	mailbox string // folder that messages go to
}

// run publishes the sample workflows, runs one of them for one applicant and
// one for all, and tells what came out; then it repeats what failed. A batch
// that an interrupted run left takes the place of a new one.
func (t *tour) run(ctx context.Context) error {
	workflows, err := publishWorkflows(ctx, t.client, t.bureau().URL())
	if err != nil {
		return err
	}
	names := make([]string, 0, len(workflows))
	for _, alias := range slices.Sorted(maps.Keys(workflows)) {
		names = append(names, alias+" "+workflows[alias].Version)
	}
	t.screen.step("published %s", strings.Join(names, ", "))
	if err := t.executeOne(ctx, workflows[demoSingle]); err != nil {
		return fmt.Errorf("execute %s: %w", demoSingle, err)
	}
	if err := t.executeWithConsent(ctx, workflows[demoBulk]); err != nil {
		return fmt.Errorf("execute %s with a consent: %w", demoBulk, err)
	}
	batchID, err := t.unfinishedBatch(ctx)
	if err != nil {
		return err
	}
	if batchID == "" {
		if batchID, err = t.startBatch(ctx, workflows[demoBulk]); err != nil {
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
	if err := t.correctAndRepeat(ctx, workflows[demoBulk], files["failed.csv"]); err != nil {
		return fmt.Errorf("repeat what failed: %w", err)
	}
	if err := t.retryItems(ctx, batchID); err != nil {
		return fmt.Errorf("retry batch %s: %w", batchID, err)
	}
	return nil
}

func (t *tour) executeOne(ctx context.Context, w demoWorkflow) error {
	begun := time.Now()
	result, err := t.execute(ctx, w)
	if err != nil {
		return err
	}
	t.screen.step("executed %s for one applicant in %.1f ms; the decision:", w.Alias, float64(time.Since(begun).Microseconds())/1000)
	t.screen.json(result.Output)
	return nil
}

// unfinishedBatch returns the batch that an earlier run left behind, if it
// still exists.
func (t *tour) unfinishedBatch(ctx context.Context) (string, error) {
	if t.state.BatchID == "" {
		return "", nil
	}
	var batch demoBatch
	err := t.client.call(ctx, http.MethodGet, "/v1/execution-batches/"+t.state.BatchID, nil, &batch)
	if gone(err) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	t.screen.step("found the batch of an interrupted run (%s); what the dead process held is taken over within 25 s", batch.Status)
	if batch.Status == "paused" {
		err = t.client.call(ctx, http.MethodPost, "/v1/execution-batches/"+batch.ID+"/resume", nil, nil)
	}
	return batch.ID, err
}

func (t *tour) startBatch(ctx context.Context, w demoWorkflow) (string, error) {
	batchID, err := startBatch(ctx, t.client, w, []demoUpload{{demoFile, testdata.Applications}})
	if err != nil {
		return "", err
	}
	t.screen.step("uploaded %s and started %s over it", demoFile, w.Alias)
	t.state.BatchID = batchID
	return batchID, t.state.save()
}

// finishBatch follows a batch to its end, tells what came out and returns the
// paths of its results by name.
func (t *tour) finishBatch(ctx context.Context, batchID string) (map[string]string, error) {
	begun := time.Now()
	report, end := t.screen.progress()
	batch, err := t.await(ctx, batchID, func(b demoBatch) bool {
		report(b)
		return b.ended()
	})
	end()
	if err != nil {
		return nil, fmt.Errorf("follow batch %s: %w", batchID, err)
	}
	took := time.Since(begun)
	t.state.BatchID = ""
	if err := t.state.save(); err != nil {
		return nil, err
	}
	if batch.Status != "complete" || batch.Outputs.PostProcessing.PackageID == nil {
		return nil, fmt.Errorf("batch %s ended as %s: %s", batchID, batch.Status, batch.Outputs.PreProcessing.Result)
	}
	files, err := downloadPackage(ctx, t.client, *batch.Outputs.PostProcessing.PackageID, filepath.Join(t.outputs, batchID))
	if err != nil {
		return nil, fmt.Errorf("download the results: %w", err)
	}
	decisions, err := countDecisions(files["results.jsonl"])
	if err != nil {
		return nil, err
	}
	t.summary(batch, took, decisions)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		t.screen.say("        %s", files[name])
	}
	return files, nil
}

func (t *tour) summary(batch demoBatch, took time.Duration, decisions map[string]int) {
	sum, asked := batch.State.Summary, t.bureau().Counts()
	t.screen.step("batch %s: %s", batch.ID, batch.Status)
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
		[]any{"calls to the bureau", asked.Calls},
		[]any{"  refused by it", asked.Refused},
		[]any{"followed for", took.Round(100 * time.Millisecond)})
	t.screen.table(rows...)
}
