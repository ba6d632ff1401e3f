package execution_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"tranche/internal/engine"
	"tranche/internal/execution"
	"tranche/internal/pgtest"
	"tranche/internal/targettest"
)

const largeRows = 2000 // are more than 64 kB of JSON

// answerRows answers one row, or largeRows if the query has large.
func answerRows(w http.ResponseWriter, r *http.Request) {
	rows := 1
	if r.URL.Query().Has("large") {
		rows = largeRows
	}
	body := `{"rows":[` + strings.TrimSuffix(strings.Repeat(`{"amount":1.10,"text":"payment"},`, rows), ",") + `]}`
	targettest.JSON(body)(w, r)
}

func setupRows(t *testing.T) *bundle {
	t.Helper()
	b := setup(t)
	b.release()
	b.target.SetAnswer(answerRows)
	return b
}

func isHeldPath(c targettest.Call) bool { return c.Path == "/held" }

// twoCalls returns a request to execute a workflow that makes two calls one after the other.
func (b *bundle) twoCalls(t *testing.T, alias, first, second string) execution.Request {
	t.Helper()
	return b.request(t, alias, `[
		{"id":"first","type":"http-request","config":{"url":"`+b.target.URL+first+`"}},
		{"id":"second","type":"http-request","config":{"url":"`+b.target.URL+second+`"}},
		{"id":"done","type":"end","config":{"output":{"rows":"{{ len(tasks.first.output.body.rows) }}"}}}]`,
		`[{"source":"start","target":"first"},{"source":"first","target":"second"},{"source":"second","target":"done"}]`, `{}`)
}

// tenCalls returns a request to execute a workflow that makes ten calls concurrently.
func (b *bundle) tenCalls(t *testing.T) execution.Request {
	t.Helper()
	return b.request(t, "each", `[{"id":"each","type":"for-each","config":{"items":"input.items","concurrency":10,"tasks":[
		{"id":"ask","type":"http-request","config":{"url":"`+b.target.URL+`/?large"}}]}}]`, `[]`, `{"items":[0,1,2,3,4,5,6,7,8,9]}`)
}

// Executions hold the memory of large answers until they end. Small answers and other
// tenants do not wait for it.
func TestMemoryLimitOfLargeAnswers(t *testing.T) {
	t.Parallel()
	b := setupRows(t)
	s, _ := b.process(t)
	memory := s.LimitMemory(1) // one large answer takes it
	large := b.twoCalls(t, "large", "/?large", "/held")
	releaseFirst := b.target.Hold(isHeldPath)
	ended := goRun(s, large)
	b.target.WaitMatch(1, isHeldPath)

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
	pgtest.WaitFor(t, "the second execution to wait", func() bool { return memory.Users(b.tenant) == 2 })

	small, err := s.Run(t.Context(), b.twoCalls(t, "small", "/", "/"), 0)
	require.NoError(t, err)
	require.Equal(t, `{"rows":1}`, string(small.Result.Output))
	other := *b
	other.tenant = pgtest.Tenant(t, b.pool).ID
	theirs, err := s.Run(t.Context(), other.twoCalls(t, "large", "/?large", "/"), 0)
	require.NoError(t, err)
	require.Equal(t, `{"rows":2000}`, string(theirs.Result.Output))
	require.Zero(t, memory.Users(other.tenant))
	require.Len(t, b.target.WaitMatch(1, isHeldPath), 1, "the second execution still waits")

	releaseSecond := b.target.Hold(isHeldPath)
	releaseFirst()
	e := <-ended
	require.NoError(t, e.err)
	require.Equal(t, `{"rows":2000}`, string(e.execution.Result.Output))
	b.target.WaitMatch(2, isHeldPath)
	require.Equal(t, 1, memory.Users(b.tenant))
	releaseSecond()
	f := <-finished
	require.Zero(t, memory.Users(b.tenant))
	require.Nil(t, f.Outcome.Output, "an end in memory is only text")
	require.Same(t, &f.Result.Output[0], &f.ResultText[bytes.Index(f.ResultText, f.Result.Output)], "one text")
	_, err = s.End(t.Context(), f)
	require.NoError(t, err)
	require.Equal(t, "2000", b.text(t, `SELECT result->'output'->>'rows' FROM execution_payloads WHERE execution_id = $1`, waiting.ID))
}

// An answer is never lost to the memory limit: it waits at most for half of the remaining
// time. Items of batches do not wait.
func TestLargeAnswersWaitBriefly(t *testing.T) {
	t.Parallel()
	b := setupRows(t)
	s, _ := b.process(t)
	memory := s.LimitMemory(1)
	_, err := memory.Acquire(t.Context(), b.tenant, 1)
	require.NoError(t, err)

	each := b.tenCalls(t)
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
func TestLargeAnswersOfOneExecutionShareMemory(t *testing.T) {
	t.Parallel()
	b := setupRows(t)
	s, _ := b.process(t)
	memory, release := s.LimitMemory(1), b.target.Hold()
	ended := goRun(s, b.tenCalls(t))
	b.target.WaitInFlight(10)
	began := time.Now()
	release()
	e := <-ended
	require.NoError(t, e.err)
	require.Equal(t, engine.StatusCompleted, e.execution.Status)
	require.Equal(t, 10*largeRows, strings.Count(string(e.execution.Result.Output), "payment"))
	require.Less(t, time.Since(began), execution.AnswerWaitMax)
	require.Zero(t, memory.Users(b.tenant))
}

// Large stored states wait for the memory limit, except those of items.
func TestMemoryLimitOfLargeStates(t *testing.T) {
	t.Parallel()
	b := setupRows(t)
	s, _ := b.process(t)
	memory := s.LimitMemory(1)
	started, err := s.Start(t.Context(), b.request(t, "resting", `[
		{"id":"first","type":"http-request","config":{"url":"`+b.target.URL+`/?large"}},
		{"id":"rest","type":"delay","config":{"forMs":3600000}}]`, `[{"source":"first","target":"rest"},{"source":"start","target":"first"}]`, `{}`))
	require.NoError(t, err)
	continueUntilWait := func(run func(context.Context, uuid.UUID, uuid.UUID) (*execution.Finished, execution.Holding, error)) error {
		f, holding, err := run(context.Background(), b.tenant, started.ID)
		if err == nil && (f != nil || holding != execution.Held) {
			err = fmt.Errorf("it does not wait: %v, %v", f, holding)
		}
		return err
	}
	require.NoError(t, continueUntilWait(s.RunLeased))
	require.Zero(t, memory.Users(b.tenant))

	release, err := memory.Acquire(t.Context(), b.tenant, 1)
	require.NoError(t, err)
	require.NoError(t, continueUntilWait(s.RunAdmitted))
	waited := make(chan error, 1)
	go func() { waited <- continueUntilWait(s.RunLeased) }()
	pgtest.WaitFor(t, "the state to wait", func() bool { return memory.Users(b.tenant) == 2 })
	require.Empty(t, waited)
	release()
	require.NoError(t, <-waited)
	require.Zero(t, memory.Users(b.tenant))
}
