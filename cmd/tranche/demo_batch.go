package main

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

// pollEvery is how often the demo asks how its batch is doing: well within the
// limit of 200 status requests a minute.
const pollEvery = 400 * time.Millisecond

// demoBatch is what the demo reads of a batch record.
type demoBatch struct {
	ID        string `json:"executionBatchId"`
	Status    string `json:"status"`
	CreatedAt string `json:"createdAt"`
	UpdatedAt string `json:"updatedAt"`
	State     struct {
		Summary struct {
			Total, Completed, Failed, Pending, UnsuccessfulSources int64
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

func (b demoBatch) ended() bool {
	switch b.Status {
	case "complete", "cancelled", "pre_processing_failed", "post_processing_failed":
		return true
	default:
		return false
	}
}

// demoUpload is a file to be uploaded.
type demoUpload struct {
	name    string
	content []byte
}

// startBatch uploads files of items and starts a workflow over them and the
// items given: the sequence of section 4.4 of the interface specification.
func startBatch(ctx context.Context, c *demoClient, w demoWorkflow, files []demoUpload, items ...json.RawMessage) (batchID string, err error) {
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
	// Nobody signs 2,000 times in a demo: these borrowers signed on paper.
	input := map[string]any{"customInput": map[string]any{"consentsOnFile": true}}
	if len(items) > 0 {
		input["items"] = items
	}
	var started struct{ ExecutionBatchID string }
	err = c.call(ctx, http.MethodPost, "/v1/workflows/"+w.Alias+"/"+w.Version+"/execute-batch",
		map[string]any{"label": "Demo: " + files[0].name, "attachmentFileNames": stored, "workflowInput": input}, &started)
	return started.ExecutionBatchID, err
}

// downloadPackage writes the files of an output package into a folder and
// returns their paths by name.
func downloadPackage(ctx context.Context, c *demoClient, packageID, folder string) (map[string]string, error) {
	var list struct {
		Data []struct{ FileName, DownloadURL string }
	}
	if err := c.call(ctx, http.MethodGet, "/v1/stores/packages/"+packageID+"/attachments", nil, &list); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil { // #nosec G301 -- made-up data that anybody may read
		return nil, err
	}
	paths := map[string]string{}
	for _, file := range list.Data {
		name := filepath.Base(file.FileName)
		paths[name] = filepath.Join(folder, name)
		if err := c.stranger().download(ctx, file.DownloadURL, paths[name]); err != nil {
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

// gone reports whether the service does not know what was asked for, as after
// the demo's database was deleted.
func gone(err error) bool {
	refused, ok := errors.AsType[*refusal](err)
	return ok && refused.Status == http.StatusNotFound
}
