package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"time"
)

// batchTimeMax limits the time of one batch.
const batchTimeMax = 20 * time.Minute

// batchState holds the members of a batch record that the benchmark reads.
type batchState struct {
	Status string
	State  struct {
		Summary struct{ Completed, Failed int } `json:"batchItemsExecutionsSummary"`
	}
	Outputs struct {
		PostProcessing struct {
			PackageID string `json:"processedOutputPackageId"`
		} `json:"wBatchPostProcessingOutput"`
	}
}

// runBatch runs a batch over a file of items. It returns the time from execute-batch until
// the record contains the output package, and then checks that package.
func (b *bench) runBatch(ctx context.Context, t *tenant, alias string, items int) (time.Duration, error) {
	w, err := dial(b.service.addr, t.token)
	if err != nil {
		return 0, err
	}
	defer func() { _ = w.Close() }()
	file, err := b.upload(ctx, w, items)
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	var started struct{ ExecutionBatchID string }
	err = w.call(http.MethodPost, "/v1/workflows/"+alias+"/v1/execute-batch",
		map[string]any{"label": "bench", "attachmentFileNames": []string{file}}, http.StatusAccepted, &started)
	if err != nil {
		return 0, err
	}
	var state batchState
	for state.Status != "complete" {
		if time.Since(begin) > batchTimeMax || slices.Contains([]string{"cancelled", "pre_processing_failed", "post_processing_failed"}, state.Status) {
			return 0, fmt.Errorf("batch %s is %s after %s", started.ExecutionBatchID, state.Status, time.Since(begin))
		}
		time.Sleep(watchInterval)
		if err := w.call(http.MethodGet, "/v1/execution-batches/"+started.ExecutionBatchID, nil, http.StatusOK, &state); err != nil {
			return 0, err
		}
	}
	took := time.Since(begin)
	if n := state.State.Summary.Completed; n != items {
		return 0, fmt.Errorf("%d items: %d completed and %d failed", items, n, state.State.Summary.Failed)
	}
	return took, b.readPackage(ctx, w, state.Outputs.PostProcessing.PackageID, items)
}

// upload uploads a file of items and returns its name.
func (b *bench) upload(ctx context.Context, w *wire, items int) (name string, err error) {
	file, err := os.CreateTemp(b.db.dir, "items-*.csv")
	if err != nil {
		return "", err
	}
	defer func() { _, _ = file.Close(), os.Remove(file.Name()) }()
	lines := bufio.NewWriter(file)
	fmt.Fprint(lines, "borrowerId,firstName,lastName,email,income,debt,amount,months,score,purpose,address.street,address.zip,address.city\n")
	for i := range items {
		fmt.Fprintf(lines, "B-%07d,Maria,Santos-%d,maria.santos.%d@example.com,%d.%02d,%d.10,%d.00,36,%d,home improvement,12 Long Avenue,0%d,Springfield\n",
			i, i, i, 2000+i%9000, i%100, i%900, 1000+i%50000, 500+i%350, 1000+i%9000)
	}
	if err := lines.Flush(); err != nil {
		return "", err
	}
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return "", err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return "", err
	}
	var address struct{ SignedURL, FileName, ContentType string }
	err = w.call(http.MethodPost, "/v1/stores/packages/commands/attachments/generate-upload-signed-url",
		map[string]string{"fileName": "items.csv"}, http.StatusCreated, &address)
	if err != nil {
		return "", err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPut, address.SignedURL, file)
	if err != nil {
		return "", err
	}
	request.ContentLength = size
	request.Header.Set("Content-Type", address.ContentType)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	if response.StatusCode >= http.StatusMultipleChoices {
		return "", fmt.Errorf("the upload got status %s", response.Status)
	}
	return address.FileName, nil
}

// readPackage checks that results.jsonl has one line for each item.
func (b *bench) readPackage(ctx context.Context, w *wire, packageID string, items int) error {
	var list struct {
		Data []struct{ FileName, DownloadURL string }
	}
	if err := w.call(http.MethodGet, "/v1/stores/packages/"+packageID+"/attachments", nil, http.StatusOK, &list); err != nil {
		return err
	}
	for _, file := range list.Data {
		if file.FileName != "results.jsonl" {
			continue
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, file.DownloadURL, nil)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		lines := bufio.NewScanner(response.Body)
		lines.Buffer(nil, 1<<20)
		n := 0
		for lines.Scan() {
			n++
		}
		if n != items {
			return fmt.Errorf("the package has %d results for %d items", n, items)
		}
		return lines.Err()
	}
	return fmt.Errorf("package %s contains no results.jsonl", packageID)
}

func (b *bench) measureBatch(ctx context.Context) error {
	return b.measureItems(ctx, aliasPure, b.Items, batchRate, batchService, batchServer, batchWAL)
}

func (b *bench) measureEffectBatch(ctx context.Context) error {
	return b.measureItems(ctx, aliasSlow, b.EffectItems, effectRate, effectService, effectServer, effectWAL)
}

// measureItems measures the rate of a batch and the cost of an item.
func (b *bench) measureItems(ctx context.Context, alias string, items int, rate, service, server, wal measure) error {
	before, err := b.spent(ctx)
	if err != nil {
		return err
	}
	took, err := b.runBatch(ctx, b.tenant, alias, items)
	if err != nil {
		return err
	}
	b.add(rate, float64(items)/took.Seconds())
	return b.addSpent(ctx, before, items, service, server, wal)
}

// pace is the pause between two calls of probe, so that it adds little load.
const pace = 5 * time.Millisecond

// measureNeighbour measures single calls during another tenant's batch, and the memory of
// the service during the largest batch.
func (b *bench) measureNeighbour(ctx context.Context) error {
	neighbour, err := b.newTenant(ctx, "neighbour")
	if err != nil {
		return err
	}
	idle, err := b.probe(ctx, time.After(4*b.Span))
	if err != nil {
		return err
	}
	items := max(b.Items, b.LargeItems)
	ended, over := make(chan error, 1), make(chan time.Time)
	var took time.Duration
	go func() {
		var err error
		took, err = b.runBatch(ctx, neighbour, aliasPure, items)
		close(over)
		ended <- err
	}()
	busy, err := b.probe(ctx, over)
	if err != nil {
		return err
	}
	if err := <-ended; err != nil {
		return err
	}
	b.add(probeIdle, idle.percentile(99))
	b.add(probeBusy, busy.percentile(99))
	if b.LargeItems > 0 {
		b.add(largeRate, float64(items)/took.Seconds())
	}
	memory, err := b.service.memory("VmHWM")
	b.add(peakMemory, memory)
	return err
}

// probe makes paced calls until over is closed or delivers.
func (b *bench) probe(ctx context.Context, over <-chan time.Time) (loaded, error) {
	var result loaded
	w, err := dial(b.service.addr, b.tenant.token)
	if err != nil {
		return result, err
	}
	defer func() { _ = w.Close() }()
	request := w.request(http.MethodPost, executePath(aliasPure), []byte(input))
	for {
		select {
		case <-over:
			slices.Sort(result.times)
			return result, nil
		case <-ctx.Done():
			return result, ctx.Err()
		case <-time.After(pace):
		}
		begin := time.Now()
		if _, err := w.send(request, http.StatusOK); err != nil {
			return result, err
		}
		result.times = append(result.times, time.Since(begin))
	}
}
