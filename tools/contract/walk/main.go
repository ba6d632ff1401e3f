// Command walk takes the steps of the README with the client that oapi-codegen
// makes of the OpenAPI document (package client, made by ../check):
//
//	walk BASE CREDENTIALS TESTDATA
//
// CREDENTIALS is what `tranche client create --output json` printed.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"tranche/tools/contract/client"
)

const (
	alias   = "pre-qualification"
	version = "v1"
	timeMax = 2 * time.Minute
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: walk BASE CREDENTIALS TESTDATA")
		os.Exit(2)
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeMax)
	defer cancel()
	if err := walk(ctx, os.Args[1], os.Args[2], os.Args[3]); err != nil {
		cancel()
		fmt.Fprintln(os.Stderr, "walk:", err)
		os.Exit(1)
	}
	fmt.Println("the Go client walked through the README")
}

func walk(ctx context.Context, base, credentials, testdata string) error {
	token, err := login(ctx, base, credentials)
	if err != nil {
		return fmt.Errorf("get a token: %w", err)
	}
	c, err := client.NewClientWithResponses(base, client.WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
		r.Header.Set("Authorization", "Bearer "+token)
		return nil
	}))
	if err != nil {
		return err
	}
	if err := publish(ctx, c, testdata); err != nil {
		return fmt.Errorf("publish a workflow: %w", err)
	}
	if err := execute(ctx, c, testdata); err != nil {
		return fmt.Errorf("execute it: %w", err)
	}
	file, err := upload(ctx, base, c, testdata)
	if err != nil {
		return fmt.Errorf("upload a file: %w", err)
	}
	pkg, err := runBatch(ctx, c, file)
	if err != nil {
		return fmt.Errorf("run a batch: %w", err)
	}
	return checkPackage(ctx, c, pkg)
}

func login(ctx context.Context, base, credentials string) (string, error) {
	var request client.TokenRequest
	if err := read(credentials, &request); err != nil {
		return "", err
	}
	c, err := client.NewClientWithResponses(base)
	if err != nil {
		return "", err
	}
	answer, err := c.IssueTokenWithResponse(ctx, request)
	if err != nil {
		return "", err
	}
	if answer.JSON200 == nil {
		return "", unexpected(answer.StatusCode(), answer.Body)
	}
	refreshed, err := c.RefreshTokenWithResponse(ctx, client.RefreshRequest{RefreshToken: answer.JSON200.RefreshToken})
	if err != nil {
		return "", err
	}
	if refreshed.JSON200 == nil {
		return "", unexpected(refreshed.StatusCode(), refreshed.Body)
	}
	return refreshed.JSON200.AccessToken, nil
}

func publish(ctx context.Context, c *client.ClientWithResponses, testdata string) error {
	var definition client.WorkflowCreate
	if err := read(filepath.Join(testdata, "workflows", alias+".json"), &definition); err != nil {
		return err
	}
	created, err := c.CreateWorkflowWithResponse(ctx, definition)
	if err != nil {
		return err
	}
	if created.JSON201 == nil || created.JSON201.PublishedAt != nil {
		return unexpected(created.StatusCode(), created.Body)
	}
	published, err := c.PublishWorkflowWithResponse(ctx, created.JSON201.Id)
	if err != nil {
		return err
	}
	if published.JSON200 == nil {
		return unexpected(published.StatusCode(), published.Body)
	}
	return nil
}

func execute(ctx context.Context, c *client.ClientWithResponses, testdata string) error {
	var input map[string]any
	if err := read(filepath.Join(testdata, "application.json"), &input); err != nil {
		return err
	}
	answer, err := c.ExecuteWorkflowWithResponse(ctx, alias, version, nil, input)
	if err != nil {
		return err
	}
	if answer.JSON200 == nil || !answer.JSON200.IsSuccess || answer.JSON200.Output["decision"] != "approve" {
		return unexpected(answer.StatusCode(), answer.Body)
	}
	// An input that does not match the schema is an error with details.
	delete(input, "score")
	refused, err := c.ExecuteWorkflowWithResponse(ctx, alias, version, nil, input)
	if err != nil {
		return err
	}
	if p := refused.JSON422; p == nil || p.ErrorSubCode == nil || *p.ErrorSubCode != "INPUT_SCHEMA_MISMATCH" || len(p.Details) != 1 {
		return unexpected(refused.StatusCode(), refused.Body)
	}
	return nil
}

// upload puts the sample applications at a signed address and returns their
// stored name.
func upload(ctx context.Context, base string, c *client.ClientWithResponses, testdata string) (string, error) {
	const name = "loan-applications.csv"
	address, err := c.GenerateUploadSignedURLWithResponse(ctx, client.UploadAddressInputBody{FileName: name})
	if err != nil {
		return "", err
	}
	if address.JSON201 == nil {
		return "", unexpected(address.StatusCode(), address.Body)
	}
	file, err := os.ReadFile(filepath.Join(testdata, name))
	if err != nil {
		return "", err
	}
	id, params, err := signed(address.JSON201.SignedUrl)
	if err != nil {
		return "", err
	}
	anonymous, err := client.NewClientWithResponses(base)
	if err != nil {
		return "", err
	}
	stored, err := anonymous.UploadAttachmentWithBodyWithResponse(ctx, id, params, address.JSON201.ContentType, bytes.NewReader(file))
	if err != nil {
		return "", err
	}
	if stored.JSON200 == nil || stored.JSON200.Size != int64(len(file)) {
		return "", unexpected(stored.StatusCode(), stored.Body)
	}
	return address.JSON201.FileName, nil
}

// signed takes a signed address to pieces: the file's id and the parameters.
func signed(address string) (string, *client.UploadAttachmentParams, error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", nil, err
	}
	q := u.Query()
	return path.Base(u.Path), &client.UploadAttachmentParams{
		Tenant: q.Get("tenant"), Name: q.Get("name"), Type: q.Get("type"),
		Size: q.Get("size"), Expires: q.Get("expires"), Signature: q.Get("signature"),
	}, nil
}

// runBatch runs a batch over a file and returns the package of its output.
func runBatch(ctx context.Context, c *client.ClientWithResponses, file string) (string, error) {
	started, err := c.ExecuteBatchWithResponse(ctx, alias, version, nil, client.BatchRequest{AttachmentFileNames: &[]string{file}})
	if err != nil {
		return "", err
	}
	if started.JSON202 == nil {
		return "", unexpected(started.StatusCode(), started.Body)
	}
	for {
		batch, err := c.GetBatchWithResponse(ctx, started.JSON202.ExecutionBatchId)
		if err != nil {
			return "", err
		}
		if batch.JSON200 == nil {
			return "", unexpected(batch.StatusCode(), batch.Body)
		}
		switch batch.JSON200.Status {
		case client.BatchRecordStatusComplete:
			if pkg := batch.JSON200.Outputs.WBatchPostProcessingOutput.ProcessedOutputPackageId; pkg != nil {
				return *pkg, nil
			}
			return "", errors.New("a complete batch has no package")
		case client.BatchRecordStatusPreProcessingFailed, client.BatchRecordStatusPostProcessingFailed, client.BatchRecordStatusCancelled:
			return "", unexpected(batch.StatusCode(), batch.Body)
		}
		select {
		case <-time.After(time.Second): // 200 a minute are allowed
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

func checkPackage(ctx context.Context, c *client.ClientWithResponses, pkg string) error {
	files, err := c.ListPackageAttachmentsWithResponse(ctx, pkg)
	if err != nil {
		return err
	}
	if files.JSON200 == nil {
		return unexpected(files.StatusCode(), files.Body)
	}
	var names []string
	for _, file := range files.JSON200.Data {
		names = append(names, file.FileName)
	}
	for _, name := range []string{"results.csv", "results.jsonl", "failed.csv", "manifest.json"} {
		if !slices.Contains(names, name) {
			return fmt.Errorf("the package has no %s, but %q", name, names)
		}
	}
	return nil
}

// read decodes a JSON file.
func read(name string, into any) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

func unexpected(status int, body []byte) error {
	return errors.New("not the answer that was expected: " + strconv.Itoa(status) + " " + string(body))
}
