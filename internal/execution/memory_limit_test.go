package execution_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"tranche/internal/engine"
	"tranche/internal/execution"
	"tranche/internal/pgtest"
)

// answerers answer with as many rows as they are asked for, at /held once they are let.
type answerers struct {
	url  string
	held chan struct{} // receives for every call of /held
	let  chan struct{}
}

const largeRows = 2000 // are more than 64 kB of JSON

func newAnswerers(t *testing.T) *answerers {
	t.Helper()
	a := &answerers{held: make(chan struct{}, 100), let: make(chan struct{}, 100)}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/held" {
			a.held <- struct{}{}
			select {
			case <-a.let:
			case <-r.Context().Done():
			}
		}
		rows := 1
		if r.URL.Query().Has("large") {
			rows = largeRows
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"rows":[%s]}`, strings.TrimSuffix(strings.Repeat(`{"amount":1.10,"text":"payment"},`, rows), ","))
	}))
	t.Cleanup(server.Close)
	a.url = server.URL
	return a
}

// asking is a request to execute a workflow that asks once and, with what it was
// answered, once more.
func (b *bundle) asking(t *testing.T, alias, first, second string) execution.Request {
	t.Helper()
	return b.request(t, alias, `[
		{"id":"first","type":"http-request","config":{"url":"`+first+`"}},
		{"id":"second","type":"http-request","config":{"url":"`+second+`"}},
		{"id":"done","type":"end","config":{"output":{"rows":"{{ len(tasks.first.output.body.rows) }}"}}}]`,
		`[{"source":"start","target":"first"},{"source":"first","target":"second"},{"source":"second","target":"done"}]`, `{}`)
}

// asEach is a request to execute a workflow that asks ten times at once.
func (b *bundle) asEach(t *testing.T, url string) execution.Request {
	t.Helper()
	return b.request(t, "each", `[{"id":"each","type":"for-each","config":{"items":"input.items","concurrency":10,"tasks":[
		{"id":"ask","type":"http-request","config":{"url":"`+url+`"}}]}}]`, `[]`, `{"items":[0,1,2,3,4,5,6,7,8,9]}`)
}

// What executions of a tenant were answered is decoded as far as there is room for it,
// which they hold until they have ended; small answers and other tenants do not wait.
func TestLargeAnswersAreFewAtATime(t *testing.T) {
	t.Parallel()
	b, a := setup(t), newAnswerers(t)
	s, _ := b.process(t)
	memory := s.LimitMemory(1) // one large answer takes it
	large := b.asking(t, "large", a.url+"/?large", a.url+"/held")

	ended := make(chan execution.Execution, 1)
	go func() {
		e, err := s.Run(context.Background(), large, 0)
		if err != nil {
			t.Error(err)
		}
		ended <- e
	}()
	<-a.held

	waiting, err := s.Start(t.Context(), large)
	require.NoError(t, err)
	finished := make(chan *execution.Finished, 1)
	go func() {
		f, _, err := s.RunLeased(context.Background(), b.tenant, waiting.ID)
		if err != nil {
			t.Error(err)
		}
		finished <- f
	}()
	require.Eventually(t, func() bool { return memory.Users(b.tenant) == 2 }, 10*time.Second, time.Millisecond)

	small, err := s.Run(t.Context(), b.asking(t, "small", a.url, a.url), 0)
	require.NoError(t, err)
	require.Equal(t, `{"rows":1}`, string(small.Result.Output))
	other := *b
	other.tenant = pgtest.Tenant(t, b.pool).ID
	theirs, err := s.Run(t.Context(), other.asking(t, "large", a.url+"/?large", a.url), 0)
	require.NoError(t, err)
	require.Equal(t, `{"rows":2000}`, string(theirs.Result.Output))
	require.Zero(t, memory.Users(other.tenant))
	require.Empty(t, a.held, "the second waits for room")

	a.let <- struct{}{}
	require.Equal(t, `{"rows":2000}`, string((<-ended).Result.Output))
	<-a.held
	require.Equal(t, 1, memory.Users(b.tenant))
	a.let <- struct{}{}
	f := <-finished
	require.Zero(t, memory.Users(b.tenant))
	require.Nil(t, f.Outcome.Output, "what waits to be written is text")
	require.Same(t, &f.Result.Output[0], &f.ResultText[bytes.Index(f.ResultText, f.Result.Output)], "once")
	_, err = s.End(t.Context(), f)
	require.NoError(t, err)
	require.Equal(t, "2000", b.text(t, `SELECT result->'output'->>'rows' FROM execution_payloads WHERE execution_id = $1`, waiting.ID))
}

// However full the room is, an answer that has come is not lost: it waits for half of
// the time that is left at most. Items of batches do not wait.
func TestLargeAnswersWaitBrieflyForRoom(t *testing.T) {
	t.Parallel()
	b, a := setup(t), newAnswerers(t)
	s, _ := b.process(t)
	memory := s.LimitMemory(1)
	_, err := memory.Acquire(t.Context(), b.tenant, 1)
	require.NoError(t, err)

	each := b.asEach(t, a.url+"/?large")
	began := time.Now()
	f, _, err := s.RunItem(t.Context(), execution.Item{
		TenantID: b.tenant, ID: pgtest.NewID(t), BatchID: uuid.New(), Plan: each.Plan, Input: each.Input, Attempt: 1, IsUnrecorded: true,
	}, func(context.Context, *execution.Checkpoint) (bool, error) { return true, nil })
	require.NoError(t, err)
	require.Equal(t, engine.StatusCompleted, f.Outcome.Status)
	require.Less(t, time.Since(began), execution.AnswerWaitMax)

	hurried := *each.Plan
	hurried.Timeout = 6 * time.Second
	each.Plan = &hurried
	e, err := s.Run(t.Context(), each, 0)
	require.NoError(t, err)
	require.Equal(t, engine.StatusCompleted, e.Status)
	require.Equal(t, 10*largeRows, strings.Count(string(e.Result.Output), "payment"))
	require.Equal(t, 1, memory.Users(b.tenant))
}

// The answers of one execution do not wait for each other.
func TestLargeAnswersOfOneExecutionEnterTogether(t *testing.T) {
	t.Parallel()
	b, a := setup(t), newAnswerers(t)
	s, _ := b.process(t)
	memory := s.LimitMemory(1)
	go func() {
		for range 10 {
			<-a.held
		}
		for range 10 {
			a.let <- struct{}{}
		}
	}()
	began := time.Now()
	e, err := s.Run(t.Context(), b.asEach(t, a.url+"/held?large"), 0)
	require.NoError(t, err)
	require.Equal(t, engine.StatusCompleted, e.Status)
	require.Equal(t, 10*largeRows, strings.Count(string(e.Result.Output), "payment"))
	require.Less(t, time.Since(began), execution.AnswerWaitMax)
	require.Zero(t, memory.Users(b.tenant))
}

// What is stored of an execution that goes on is decoded as far as there is room for it
// too; package batch admits its items by itself.
func TestLargeStatesAreFewAtATime(t *testing.T) {
	t.Parallel()
	b, a := setup(t), newAnswerers(t)
	s, _ := b.process(t)
	memory := s.LimitMemory(1)
	started, err := s.Start(t.Context(), b.request(t, "resting", `[
		{"id":"first","type":"http-request","config":{"url":"`+a.url+`/?large"}},
		{"id":"rest","type":"delay","config":{"forMs":3600000}}]`, `[{"source":"first","target":"rest"},{"source":"start","target":"first"}]`, `{}`))
	require.NoError(t, err)
	goOn := func(run func(context.Context, uuid.UUID, uuid.UUID) (*execution.Finished, execution.Holding, error)) error {
		f, holding, err := run(context.Background(), b.tenant, started.ID)
		if err == nil && (f != nil || holding != execution.Held) {
			err = fmt.Errorf("it does not rest: %v, %v", f, holding)
		}
		return err
	}
	require.NoError(t, goOn(s.RunLeased))
	require.Zero(t, memory.Users(b.tenant))

	leave, err := memory.Acquire(t.Context(), b.tenant, 1)
	require.NoError(t, err)
	require.NoError(t, goOn(s.RunAdmitted))
	waited := make(chan error, 1)
	go func() { waited <- goOn(s.RunLeased) }()
	require.Eventually(t, func() bool { return memory.Users(b.tenant) == 2 }, 10*time.Second, time.Millisecond)
	require.Empty(t, waited)
	leave()
	require.NoError(t, <-waited)
	require.Zero(t, memory.Users(b.tenant))
}
