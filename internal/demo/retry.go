package demo

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"tranche/testdata"
)

const (
	// pauseTime is how long the batch stays paused.
	pauseTime = 700 * time.Millisecond
	// noticeTimeMax limits the wait for the notice that the bureau is unreachable.
	noticeTimeMax = 30 * time.Second
)

// corrections replaces the wrong values in the sample's failed.csv, as a person does
// with an editor.
func corrections() *strings.Replacer {
	return strings.NewReplacer(
		"n/a", "50000.00", `"54.200,00"`, "54200.00", `"12,5OO.00"`, "12500.00", "thirty-six", "36", ",600,", ",60,",
		",unknown,", ",0,", "03/14/1979", "1979-03-14", "1985-02-31", "1985-02-28", "no address", "borrower@example.com", "-1200.00", "1200.00",
	)
}

// pauseAndResume pauses a batch and resumes it, unless it ends before.
func (t *tour) pauseAndResume(ctx context.Context, batchID string) error {
	b, err := awaitBatch(ctx, t.client, batchID, func(b batch) bool { return b.Status == "processing" && b.State.Summary.Completed > 0 })
	if err != nil || b.ended() {
		return err
	}
	err = t.client.call(ctx, http.MethodPost, batchPath(batchID)+"/pause", nil, &b)
	if hasStatus(err, http.StatusConflict) {
		return nil // it has ended
	}
	if err != nil {
		return err
	}
	if err := sleep(ctx, pauseTime); err != nil {
		return err
	}
	if err := t.client.call(ctx, http.MethodGet, batchPath(batchID), nil, &b); err != nil {
		return err
	}
	sum := b.State.Summary
	t.demo.screen.step("paused the batch: %d of %d are done and no item begins; resumed it", sum.Completed+sum.Failed, sum.Total)
	return t.client.call(ctx, http.MethodPost, batchPath(batchID)+"/resume", nil, nil)
}

// correctAndRepeat uploads the corrected failed.csv of a batch, together with a file of
// another format, while the bureau is stopped. The new batch waits for the bureau and
// reports that in a notice.
func (t *tour) correctAndRepeat(ctx context.Context, w workflow, failedPath string) error {
	failed, err := os.ReadFile(failedPath)
	if err != nil {
		return err
	}
	walkIn, item, err := anotherApplication()
	if err != nil {
		return err
	}
	var batchID string
	err = t.demo.withoutBureau(ctx, func() error {
		batchID, err = startBatch(ctx, t.client, w, []upload{
			{"failed.csv", []byte(corrections().Replace(string(failed)))}, {"walk-in.jsonl.gz", walkIn},
		}, item)
		if err != nil {
			return err
		}
		t.demo.screen.step("corrected failed.csv and uploaded it with walk-in.jsonl.gz and one application in the request; the bureau is stopped")
		return t.awaitNotice(ctx, batchID)
	})
	if err != nil {
		return err
	}
	b, err := awaitBatch(ctx, t.client, batchID, batch.ended)
	if err != nil {
		return err
	}
	sum := b.State.Summary
	t.demo.screen.step("restarted the bureau; the batch is %s: %d of %d completed, %d still need a correction", b.Status, sum.Completed, sum.Total, sum.Failed)
	return nil
}

// awaitNotice waits for the notices of a batch and prints them.
func (t *tour) awaitNotice(ctx context.Context, batchID string) error {
	ctx, cancel := context.WithTimeout(ctx, noticeTimeMax)
	defer cancel()
	b, err := awaitBatch(ctx, t.client, batchID, func(b batch) bool { return len(b.Notices) > 0 })
	if err != nil {
		return fmt.Errorf("wait for a notice of batch %s: %w", batchID, err)
	}
	for _, n := range b.Notices {
		t.demo.screen.step("the batch waits and has a notice: %s %s: %s", n.Code, n.Source, n.Message)
	}
	return nil
}

// anotherApplication returns one more application, as a compressed file and as an item.
func anotherApplication() (file []byte, item json.RawMessage, err error) {
	var line, packed bytes.Buffer
	if err := json.Compact(&line, testdata.Application); err != nil {
		return nil, nil, err
	}
	w := gzip.NewWriter(&packed)
	if _, err := w.Write(append(line.Bytes(), '\n')); err != nil {
		return nil, nil, err
	}
	err = w.Close()
	return packed.Bytes(), line.Bytes(), err
}

// retryItems retries the failed items of a batch and those whose fraud screening
// failed.
func (t *tour) retryItems(ctx context.Context, batchID string) error {
	before := t.demo.bureau.Counts().Calls
	var retried struct{ Attempt, ItemsToRetry int }
	err := t.client.call(ctx, http.MethodPost, batchPath(batchID)+"/retry",
		map[string]string{"retryMode": "failed_and_unsuccessful_sources_items"}, &retried)
	if err != nil {
		return err
	}
	b, err := awaitBatch(ctx, t.client, batchID, batch.ended)
	if err != nil {
		return err
	}
	sum := b.State.Summary
	t.demo.screen.step("retried %d items of the first batch (attempt %d) with %d calls: %d are completed, %d have no fraud screening, %d have wrong rows",
		retried.ItemsToRetry, retried.Attempt, t.demo.bureau.Counts().Calls-before, sum.Completed, sum.UnsuccessfulSources, sum.Failed)
	return nil
}
