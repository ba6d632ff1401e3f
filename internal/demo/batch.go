package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// pollInterval is the time between two status requests. The limit is 200 a minute.
const pollInterval = 400 * time.Millisecond

// batch holds the members of a batch record that the demo uses.
type batch struct {
	ID     string `json:"executionBatchId"`
	Status string `json:"status"`
	State  struct {
		Summary struct {
			Total, Completed, Failed, UnsuccessfulSources int64
		} `json:"batchItemsExecutionsSummary"`
	} `json:"state"`
	Outputs struct {
		PreProcessing struct {
			Result string `json:"result"`
		} `json:"wBatchPreProcessingOutput"`
		PostProcessing struct {
			PackageID *string `json:"processedOutputPackageId"`
		} `json:"wBatchPostProcessingOutput"`
	} `json:"outputs"`
	Notices []struct{ Code, Source, Message string }
}

func (b batch) ended() bool {
	switch b.Status {
	case "complete", "cancelled", "pre_processing_failed", "post_processing_failed":
		return true
	default:
		return false
	}
}

func batchPath(id string) string { return "/v1/execution-batches/" + id }

// upload is a file with items.
type upload struct {
	name    string
	content []byte
}

// startBatch uploads files and starts a batch with their items and with items in the
// request (contract A.4.4).
func startBatch(ctx context.Context, c *client, w workflow, files []upload, items ...json.RawMessage) (batchID string, err error) {
	stored := make([]string, len(files))
	for i, file := range files {
		var address struct{ SignedURL, FileName, ContentType string }
		err = c.call(ctx, http.MethodPost, "/v1/stores/packages/commands/attachments/generate-upload-signed-url",
			map[string]string{"fileName": file.name}, &address)
		if err != nil {
			return "", err
		}
		if err := c.upload(ctx, address.SignedURL, address.ContentType, file.content); err != nil {
			return "", fmt.Errorf("upload %s: %w", file.name, err)
		}
		stored[i] = address.FileName
	}
	// The demo does not sign 2,000 consents: these borrowers signed on paper.
	input := map[string]any{"customInput": map[string]any{"consentsOnFile": true}}
	if len(items) > 0 {
		input["items"] = items
	}
	var started struct{ ExecutionBatchID string }
	err = c.call(ctx, http.MethodPost, "/v1/workflows/"+w.Alias+"/"+w.Version+"/execute-batch",
		map[string]any{"label": "Demo: " + files[0].name, "attachmentFileNames": stored, "workflowInput": input}, &started)
	return started.ExecutionBatchID, err
}

// awaitBatch polls a batch until isWanted accepts it or it has ended.
func awaitBatch(ctx context.Context, c *client, batchID string, isWanted func(batch) bool) (batch, error) {
	for {
		var b batch
		err := c.call(ctx, http.MethodGet, batchPath(batchID), nil, &b)
		if err != nil || isWanted(b) || b.ended() {
			return b, err
		}
		if err := sleep(ctx, pollInterval); err != nil {
			return b, err
		}
	}
}

// downloadPackage downloads the files of an output package to a directory and returns
// their paths by name.
func downloadPackage(ctx context.Context, c *client, packageID, dir string) (map[string]string, error) {
	var list struct {
		Data []struct{ FileName, DownloadURL string }
	}
	if err := c.call(ctx, http.MethodGet, "/v1/stores/packages/"+packageID+"/attachments", nil, &list); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { // #nosec G301 -- fictitious data
		return nil, err
	}
	paths := map[string]string{}
	for _, file := range list.Data {
		name := filepath.Base(file.FileName)
		paths[name] = filepath.Join(dir, name)
		if err := c.withoutToken().download(ctx, file.DownloadURL, paths[name]); err != nil {
			return nil, fmt.Errorf("download %s: %w", name, err)
		}
	}
	return paths, nil
}

// countDecisions counts the decisions in a results.jsonl.
func countDecisions(path string) (map[string]int, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // it was only read
	counts := map[string]int{}
	decoder := json.NewDecoder(file)
	for decoder.More() {
		var item struct {
			Output struct{ Decision string }
		}
		if err := decoder.Decode(&item); err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
		if item.Output.Decision != "" {
			counts[item.Output.Decision]++
		}
	}
	return counts, nil
}

// hasStatus reports whether err is an error response with a status.
func hasStatus(err error, status int) bool {
	failed, ok := errors.AsType[*apiError](err)
	return ok && failed.Status == status
}
