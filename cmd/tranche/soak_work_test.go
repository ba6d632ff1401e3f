package main_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// soakPatience limits the time of each piece of work, including all disturbances.
const soakPatience = 5 * time.Minute

// soakWorkflows are the workflows of the callers. Each item asks about its id once and
// pays for it once.
const soakWorkflows = `[
{"name": "Ask and pay", "alias": "pay", "timeoutSeconds": 300, "inputSchema": {"type": "object", "required": ["id"], "properties": {"id": {"type": "string"}}},
 "tasks": [
  {"id": "ask", "type": "http-request", "config": {"url": "TARGET/ask?id={{ input.id }}", RETRY}},
  {"id": "pay", "type": "http-request", "config": {"method": "POST", "url": "TARGET/pay?id={{ input.id }}", "body": {"points": "{{ tasks.ask.output.body.points }}"}, RETRY}},
  {"id": "done", "type": "end", "config": {"output": {"id": "{{ input.id }}", "points": "{{ tasks.pay.output.body.points }}"}}}],
 "edges": [{"source": "start", "target": "ask"}, {"source": "ask", "target": "pay"}, {"source": "pay", "target": "done"}]},
{"name": "Count", "alias": "count", "timeoutSeconds": 300, "inputSchema": {"type": "object", "required": ["id"], "properties": {"id": {"type": "string"}, "points": {"type": "integer"}}},
 "tasks": [{"id": "done", "type": "end", "config": {"output": {"id": "{{ input.id }}", "points": "{{ input.points }}"}}}],
 "edges": [{"source": "start", "target": "done"}]},
{"name": "Ask about each", "alias": "each", "timeoutSeconds": 300, "inputSchema": {"type": "object"},
 "tasks": [
  {"id": "all", "type": "for-each", "config": {"items": "input.ids", "tasks": [{"id": "ask", "type": "http-request", "config": {"url": "TARGET/each?id={{ item }}", RETRY}}],
   "edges": [{"source": "start", "target": "ask"}]}},
  {"id": "done", "type": "end", "config": {"output": {"id": "{{ input.id }}", "points": "{{ sum(map(tasks.all.output, #.body.points)) }}"}}}],
 "edges": [{"source": "start", "target": "all"}, {"source": "all", "target": "done"}]},
{"name": "Ask and wait", "alias": "wait", "inputSchema": {"type": "object"},
 "tasks": [
  {"id": "ask", "type": "http-request", "config": {"url": "TARGET/wait?id={{ input.id }}", RETRY}},
  {"id": "word", "type": "wait-for-signal"},
  {"id": "done", "type": "end", "config": {"output": {"id": "{{ input.id }}", "points": "{{ tasks.ask.output.body.points + tasks.word.output.more }}"}}}],
 "edges": [{"source": "start", "target": "ask"}, {"source": "ask", "target": "word"}, {"source": "word", "target": "done"}]}
]`

const soakRetry = `"retry": {"maxAttempts": 20, "initialDelayMs": 200, "maxDelayMs": 2000}`

// soak is an installation under disturbances.
type soak struct {
	t         *testing.T
	seed      uint64
	target    *soakTarget
	db        *soakDatabase
	env       environment
	processes [2]*running
	urls      [2]atomic.Pointer[string] // of the processes
	token     string
	ids       atomic.Int64

	singles, items, batches atomic.Int64 // acknowledged work that has ended correctly
}

// caller executes workflows and batches one after the other.
type caller struct {
	*soak
	rand *rand.Rand
}

// newID returns a unique id.
func (s *soak) newID() string { return fmt.Sprintf("S-%d-%d", s.seed, s.ids.Add(1)) }

// answerOf is a response of any status; 0 means no response.
type answerOf struct {
	status int
	body   map[string]any
	text   []byte
}

func (a answerOf) String() string { return fmt.Sprintf("%d %.1000s", a.status, a.text) }

func (c *caller) try(ctx context.Context, method, path, key string, body []byte) (got answerOf) {
	request, err := http.NewRequestWithContext(ctx, method, *c.urls[rand.IntN(len(c.urls))].Load()+path, bytes.NewReader(body))
	if err != nil {
		c.t.Error(err)
		return got
	}
	request.Header.Set("Authorization", "Bearer "+c.token)
	if key != "" {
		request.Header.Set("Idempotency-Key", key)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return got
	}
	defer response.Body.Close()
	if got.text, err = io.ReadAll(response.Body); err != nil {
		return answerOf{}
	}
	got.status = response.StatusCode
	if response.Header.Get("Content-Type") == "application/json" {
		if err := json.Unmarshal(got.text, &got.body); err != nil {
			c.t.Errorf("%s %s: %s: %v", method, path, got, err)
		}
	}
	return got
}

// ask sends a request to random processes until it gets one of the allowed statuses. It
// repeats the request after 409 for a key in flight, 429, 503 and broken connections.
func (c *caller) ask(method, path, key string, body any, allowed ...int) answerOf {
	text, err := json.Marshal(body)
	if err != nil || body == nil {
		text = nil
	}
	ctx, cancel := context.WithTimeout(c.t.Context(), soakPatience)
	defer cancel()
	for {
		got := c.try(ctx, method, path, key, text)
		if slices.Contains(allowed, got.status) {
			return got
		}
		switch got.status {
		case 0, http.StatusServiceUnavailable, http.StatusTooManyRequests:
		case http.StatusConflict:
			if key == "" {
				c.t.Errorf("%s %s: %s", method, path, got)
				return answerOf{}
			}
		default:
			c.t.Errorf("%s %s: %s", method, path, got)
			return answerOf{}
		}
		if c.t.Failed() {
			return answerOf{}
		}
		if ctx.Err() != nil {
			c.t.Errorf("%s %s got no answer: %s", method, path, got)
			return answerOf{}
		}
		time.Sleep(100*time.Millisecond + rand.N(400*time.Millisecond))
	}
}

// follow polls until a record has one of the given statuses.
func (c *caller) follow(path string, ends ...string) (record answerOf, ended bool) {
	for deadline := time.Now().Add(soakPatience); ; {
		record = c.ask(http.MethodGet, path, "", nil, http.StatusOK)
		for _, status := range ends {
			if record.body["status"] == status {
				return record, true
			}
		}
		if record.status == 0 {
			return record, false
		}
		if time.Now().After(deadline) {
			c.t.Errorf("%s did not end: %s", path, record)
			return record, false
		}
		time.Sleep(50*time.Millisecond + rand.N(250*time.Millisecond))
	}
}

// run works until the time is over.
func (c *caller) run(until time.Time, wg *sync.WaitGroup) {
	defer wg.Done()
	for time.Now().Before(until) && !c.t.Failed() {
		switch c.rand.IntN(8) {
		case 0:
			c.runBatch()
		case 1:
			c.runEach()
		case 2:
			c.runWaiting()
		default:
			c.runSingle()
		}
	}
}

// runSingle executes a workflow, synchronously or asynchronously, and waits for its result.
func (c *caller) runSingle() {
	id := c.newID()
	alias, input := "pay", map[string]any{"id": id}
	if c.rand.IntN(2) == 0 {
		alias, input = "count", map[string]any{"id": id, "points": points(id)}
	}
	c.execute(alias, id, input, points(id), nil)
}

func (c *caller) runEach() {
	id, ids, sum := c.newID(), []string{}, int64(0)
	for range 5 + c.rand.IntN(40) {
		each := c.newID()
		ids, sum = append(ids, each), sum+points(each)
	}
	c.execute("each", id, map[string]any{"id": id, "ids": ids}, sum, nil)
}

func (c *caller) runWaiting() {
	id, more := c.newID(), c.rand.Int64N(1000)
	c.execute("wait", id, map[string]any{"id": id}, points(id)+more, func(executionID string) {
		time.Sleep(time.Duration(c.rand.IntN(2500)) * time.Millisecond)
		// If the answer was lost, the repeated signal gets a 400.
		c.ask(http.MethodPost, "/v1/executions/"+executionID+"/signals", "", map[string]any{"taskId": "word", "payload": map[string]any{"more": more}},
			http.StatusAccepted, http.StatusBadRequest)
	})
}

// execute runs a workflow with an idempotency key and checks its output.
func (c *caller) execute(alias, id string, input map[string]any, sum int64, meanwhile func(executionID string)) {
	got := c.ask(http.MethodPost, "/v1/workflows/"+alias+"/v1/execute", id, input, http.StatusOK, http.StatusAccepted)
	executionID, _ := got.body["executionId"].(string)
	if got.status == 0 {
		return
	}
	if got.status == http.StatusAccepted {
		if meanwhile != nil {
			meanwhile(executionID)
		}
		if _, ended := c.follow("/v1/executions/"+executionID+"/status", "completed", "failed", "timeout", "cancelled"); !ended {
			return
		}
		got = c.ask(http.MethodGet, "/v1/executions/"+executionID+"/output", "", nil, http.StatusOK)
	}
	if !isRight(got.body["output"], id, sum) {
		c.t.Errorf("%s %s, execution %s: %s", alias, id, executionID, got)
	}
	c.singles.Add(1)
}

func isRight(output any, id string, sum int64) bool {
	object, _ := output.(map[string]any)
	return object["id"] == id && object["points"] == float64(sum)
}

// runBatch runs a batch, sometimes pauses it or cancels and retries it, and reads its
// results.
func (c *caller) runBatch() {
	alias := []string{"pay", "count"}[c.rand.IntN(2)]
	ids, items := map[string]bool{}, []any{}
	for range 50 + c.rand.IntN(1500) {
		id := c.newID()
		ids[id], items = true, append(items, map[string]any{"id": id, "points": points(id)})
	}
	started := c.ask(http.MethodPost, "/v1/workflows/"+alias+"/v1/execute-batch", c.newID(), map[string]any{"workflowInput": map[string]any{"items": items}}, http.StatusAccepted)
	if started.status == 0 {
		return
	}
	path := fmt.Sprint("/v1/execution-batches/", started.body["executionBatchId"])
	switch c.rand.IntN(3) {
	case 0:
		time.Sleep(time.Duration(c.rand.IntN(2000)) * time.Millisecond)
		c.ask(http.MethodPost, path+"/pause", "", nil, http.StatusOK, http.StatusAccepted, http.StatusConflict)
		time.Sleep(time.Duration(c.rand.IntN(2000)) * time.Millisecond)
		c.ask(http.MethodPost, path+"/resume", "", nil, http.StatusOK, http.StatusAccepted, http.StatusConflict)
	case 1:
		if record, ended := c.follow(path, "processing", "post_processing", "complete"); !ended || record.body["status"] == "complete" {
			break
		}
		c.ask(http.MethodPost, path+"/cancel", "", nil, http.StatusOK, http.StatusAccepted, http.StatusConflict)
		if record, ended := c.follow(path, "cancelled", "complete"); !ended || record.body["status"] == "complete" {
			break
		}
		c.ask(http.MethodPost, path+"/retry", "", map[string]any{"retryMode": "failed_items"}, http.StatusAccepted, http.StatusConflict)
	}
	record, ended := c.follow(path, "complete", "cancelled", "pre_processing_failed", "post_processing_failed")
	if !ended {
		return
	}
	c.checkBatch(path, record, ids)
}

func (c *caller) checkBatch(path string, record answerOf, ids map[string]bool) {
	var batch struct {
		Status string
		State  struct {
			Summary struct{ Total, Completed int } `json:"batchItemsExecutionsSummary"`
		}
		Outputs struct {
			Post struct{ ProcessedOutputPackageID string } `json:"wBatchPostProcessingOutput"`
		}
	}
	if err := json.Unmarshal(record.text, &batch); err != nil {
		c.t.Error(err)
		return
	}
	if batch.Status == "cancelled" && batch.State.Summary.Completed == len(ids) { // no item was left to retry
		c.items.Add(int64(len(ids)))
		return
	}
	if s := batch.State.Summary; s.Total != len(ids) || s.Completed != len(ids) || batch.Status != "complete" {
		c.t.Errorf("%s of %d items: %s", path, len(ids), record)
		return
	}
	list := c.ask(http.MethodGet, "/v1/stores/packages/"+batch.Outputs.Post.ProcessedOutputPackageID+"/attachments", "", nil, http.StatusOK)
	var files struct {
		Data []struct{ FileName, DownloadURL string }
	}
	if err := json.Unmarshal(list.text, &files); err != nil {
		c.t.Errorf("%s: %s: %v", path, list, err)
		return
	}
	lines := 0
	for _, file := range files.Data {
		if file.FileName != "results.jsonl" {
			continue
		}
		_, address, _ := strings.Cut(file.DownloadURL, "://")
		_, address, _ = strings.Cut(address, "/")
		text := c.ask(http.MethodGet, "/"+address, "", nil, http.StatusOK).text
		for line := range bytes.Lines(text) {
			var item struct{ Output map[string]any }
			if err := json.Unmarshal(line, &item); err != nil {
				c.t.Errorf("%s: line %s: %v", path, line, err)
				continue
			}
			id := fmt.Sprint(item.Output["id"])
			if !ids[id] || !isRight(item.Output, id, points(id)) {
				c.t.Errorf("%s: the item of this line is unknown, repeated or wrong: %s", path, line)
			}
			delete(ids, id)
			lines++
		}
	}
	if len(ids) > 0 {
		c.t.Errorf("%s: its package lacks %d of %d items", path, len(ids), lines+len(ids))
	}
	c.items.Add(int64(lines))
	c.batches.Add(1)
}
