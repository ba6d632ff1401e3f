package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"tranche/testdata"
)

const (
	// pausedFor is how long the demo holds its batch, for all to see.
	pausedFor = 700 * time.Millisecond
	// noticeTimeMax bounds the wait for a batch to notice that its target is down.
	noticeTimeMax = 30 * time.Second
)

// corrections are what a person changes in the sample's failed.csv with an
// editor, in this order.
func corrections() *strings.Replacer {
	return strings.NewReplacer(
		"n/a", "50000.00", `"54.200,00"`, "54200.00", `"12,5OO.00"`, "12500.00", "thirty-six", "36", ",600,", ",60,",
		",unknown,", ",0,", "03/14/1979", "1979-03-14", "1985-02-31", "1985-02-28", "no address", "borrower@example.com", "-1200.00", "1200.00",
	)
}

// pauseAndResume holds a batch on its way. One that ends too soon is left alone.
func (t *tour) pauseAndResume(ctx context.Context, batchID string) error {
	batch, err := t.await(ctx, batchID, func(b demoBatch) bool { return b.Status == "processing" && b.State.Summary.Completed > 0 })
	if err != nil || batch.ended() {
		return err
	}
	path := "/v1/execution-batches/" + batchID
	if err := t.client.call(ctx, http.MethodPost, path+"/pause", nil, &batch); err != nil {
		return unlessEnded(err)
	}
	if err := sleep(ctx, pausedFor); err != nil {
		return err
	}
	if err := t.client.call(ctx, http.MethodGet, path, nil, &batch); err != nil {
		return err
	}
	sum := batch.State.Summary
	t.screen.step("paused the batch: %d of %d are done, nothing more begins; resumed it", sum.Completed+sum.Failed, sum.Total)
	return t.client.call(ctx, http.MethodPost, path+"/resume", nil, nil)
}

// unlessEnded passes over the refusal of a batch that ended in the meantime.
func unlessEnded(err error) error {
	if refused, ok := errors.AsType[*refusal](err); ok && refused.Status == http.StatusConflict {
		return nil
	}
	return err
}

// await polls a batch until it is as wanted or has ended.
func (t *tour) await(ctx context.Context, batchID string, isWanted func(demoBatch) bool) (demoBatch, error) {
	for {
		var batch demoBatch
		err := t.client.call(ctx, http.MethodGet, "/v1/execution-batches/"+batchID, nil, &batch)
		if err != nil || isWanted(batch) || batch.ended() {
			return batch, err
		}
		if err := sleep(ctx, pollEvery); err != nil {
			return batch, err
		}
	}
}

// correctAndRepeat uploads the corrected failed.csv of the batch as it is,
// together with another format, while the bureau is away: the batch waits for
// it and says so.
func (t *tour) correctAndRepeat(ctx context.Context, w demoWorkflow, failedPath string) error {
	failed, err := os.ReadFile(failedPath)
	if err != nil {
		return err
	}
	walkIn, item, err := oneMore()
	if err != nil {
		return err
	}
	var batchID string
	err = t.withoutBureau(ctx, func() error {
		batchID, err = startBatch(ctx, t.client, w, []demoUpload{
			{"failed.csv", []byte(corrections().Replace(string(failed)))}, {"walk-in.jsonl.gz", walkIn},
		}, item)
		if err != nil {
			return err
		}
		t.screen.step("corrected failed.csv, uploaded it as it is with walk-in.jsonl.gz and one application in the request; the bureau is down")
		return t.awaitNotice(ctx, batchID)
	})
	if err != nil {
		return err
	}
	batch, err := t.await(ctx, batchID, demoBatch.ended)
	if err != nil {
		return err
	}
	sum := batch.State.Summary
	t.screen.step("the bureau is back; the batch: %s, %d of %d completed, %d still to be corrected", batch.Status, sum.Completed, sum.Total, sum.Failed)
	return nil
}

// awaitNotice prints what a batch says about a target that is down.
func (t *tour) awaitNotice(ctx context.Context, batchID string) error {
	ctx, cancel := context.WithTimeout(ctx, noticeTimeMax)
	defer cancel()
	batch, err := t.await(ctx, batchID, func(b demoBatch) bool { return len(b.Notices) > 0 })
	if err != nil {
		return fmt.Errorf("wait for the notice of batch %s: %w", batchID, err)
	}
	for _, n := range batch.Notices {
		t.screen.step("the batch waits and says so: %s %s: %s", n.Code, n.Source, n.Message)
	}
	return nil
}

// oneMore is another application twice: as a packed file and as an item.
func oneMore() (file []byte, item json.RawMessage, err error) {
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

// retryItems runs what failed of the batch once more, and the items whose fraud
// screening did.
func (t *tour) retryItems(ctx context.Context, batchID string) error {
	before := t.bureau().Counts().Calls
	var retried struct{ Attempt, ItemsToRetry int }
	err := t.client.call(ctx, http.MethodPost, "/v1/execution-batches/"+batchID+"/retry",
		map[string]string{"retryMode": "failed_and_unsuccessful_sources_items"}, &retried)
	if err != nil {
		return err
	}
	batch, err := t.await(ctx, batchID, demoBatch.ended)
	if err != nil {
		return err
	}
	sum := batch.State.Summary
	t.screen.step("retried %d items of the first batch (attempt %d) with %d calls: %d completed now, %d without a fraud screening, %d whose rows are wrong",
		retried.ItemsToRetry, retried.Attempt, t.bureau().Counts().Calls-before, sum.Completed, sum.UnsuccessfulSources, sum.Failed)
	return nil
}
