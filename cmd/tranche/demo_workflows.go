package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"reflect"
	"strings"

	"tranche/testdata"
)

// demoWorkflow is what the demo reads of a workflow.
type demoWorkflow struct {
	ID      string `json:"id"`
	Alias   string `json:"alias"`
	Version string `json:"version"`
	Status  string `json:"status"`
}

// publishWorkflows makes every sample workflow executable with the bureau at
// an address, and returns them by alias. A workflow that is published like
// that already is used as it is, so that the demo can run again and again.
func publishWorkflows(ctx context.Context, c *demoClient, bureauURL string) (map[string]demoWorkflow, error) {
	files, err := testdata.Workflows.ReadDir("workflows")
	if err != nil {
		return nil, err
	}
	published := map[string]demoWorkflow{}
	for _, file := range files {
		text, err := testdata.Workflows.ReadFile(path.Join("workflows", file.Name()))
		if err != nil {
			return nil, err
		}
		body := strings.ReplaceAll(string(text), testdata.BureauURL, bureauURL)
		w, err := publishWorkflow(ctx, c, json.RawMessage(body))
		if err != nil {
			return nil, fmt.Errorf("publish %s: %w", file.Name(), err)
		}
		published[w.Alias] = w
	}
	return published, nil
}

func publishWorkflow(ctx context.Context, c *demoClient, body json.RawMessage) (demoWorkflow, error) {
	var wanted demoWorkflow
	if err := json.Unmarshal(body, &wanted); err != nil {
		return wanted, err
	}
	draft, active, err := findVersions(ctx, c, wanted.Alias)
	if err != nil {
		return wanted, err
	}
	if active.ID != "" {
		same, err := saysTheSame(ctx, c, active.ID, body)
		if err != nil || same {
			return active, err
		}
	}
	switch {
	case draft.ID != "":
		err = c.call(ctx, http.MethodPut, "/v2/workflows/"+draft.ID, body, nil)
	case active.ID != "":
		if err = c.call(ctx, http.MethodPost, "/v2/workflows/"+active.ID+"/create-draft", nil, &draft); err == nil {
			err = c.call(ctx, http.MethodPut, "/v2/workflows/"+draft.ID, body, nil)
		}
	default:
		err = c.call(ctx, http.MethodPost, "/v2/workflows", body, &draft)
	}
	if err != nil {
		return wanted, err
	}
	draft.Alias = wanted.Alias
	return draft, c.call(ctx, http.MethodPost, "/v2/workflows/"+draft.ID+"/publish", nil, &draft)
}

// findVersions returns the draft and the newest active version of an alias;
// one that does not exist has no id.
func findVersions(ctx context.Context, c *demoClient, alias string) (draft, active demoWorkflow, err error) {
	var list struct{ Data []demoWorkflow }
	err = c.call(ctx, http.MethodGet, "/v2/workflows?per-page=100&search="+url.QueryEscape(alias), nil, &list)
	for _, w := range list.Data { // newest first
		switch {
		case w.Alias != alias:
		case w.Status == "draft":
			draft = w
		case w.Status == "active" && active.ID == "":
			active = w
		}
	}
	return draft, active, err
}

// saysTheSame compares the definition of a workflow with the one of a body.
func saysTheSame(ctx context.Context, c *demoClient, id string, body json.RawMessage) (bool, error) {
	type definition struct{ InputSchema, Tasks, Edges any }
	var kept, wanted definition
	if err := c.call(ctx, http.MethodGet, "/v2/workflows/"+id, nil, &kept); err != nil {
		return false, err
	}
	err := json.Unmarshal(body, &wanted)
	return reflect.DeepEqual(kept, wanted), err
}
