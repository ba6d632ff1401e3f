package demo

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

// workflow holds the members of a workflow that the demo uses.
type workflow struct {
	ID      string `json:"id"`
	Alias   string `json:"alias"`
	Version string `json:"version"`
	Status  string `json:"status"`
}

// publishWorkflows publishes every sample workflow with the address of the bureau and
// returns them by alias. It publishes no new version of an unchanged workflow.
func publishWorkflows(ctx context.Context, c *client, bureauURL string) (map[string]workflow, error) {
	files, err := testdata.Workflows.ReadDir("workflows")
	if err != nil {
		return nil, err
	}
	published := map[string]workflow{}
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

func publishWorkflow(ctx context.Context, c *client, body json.RawMessage) (workflow, error) {
	var wanted workflow
	if err := json.Unmarshal(body, &wanted); err != nil {
		return wanted, err
	}
	draft, active, err := findVersions(ctx, c, wanted.Alias)
	if err != nil {
		return wanted, err
	}
	if active.ID != "" {
		same, err := isUnchanged(ctx, c, active.ID, body)
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

// findVersions returns the draft and the newest active version of an alias. A version
// that does not exist has an empty id.
func findVersions(ctx context.Context, c *client, alias string) (draft, active workflow, err error) {
	var list struct{ Data []workflow }
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

// isUnchanged reports whether a workflow has the definition in body.
func isUnchanged(ctx context.Context, c *client, id string, body json.RawMessage) (bool, error) {
	type definition struct{ InputSchema, Tasks, Edges any }
	var stored, wanted definition
	if err := c.call(ctx, http.MethodGet, "/v2/workflows/"+id, nil, &stored); err != nil {
		return false, err
	}
	err := json.Unmarshal(body, &wanted)
	return reflect.DeepEqual(stored, wanted), err
}
