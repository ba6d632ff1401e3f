package execution

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"tranche/internal/engine"
	"tranche/internal/exactjson"
	"tranche/internal/fault"
	"tranche/internal/postgres"
	"tranche/internal/workflow"
	"tranche/jobs"
	"tranche/queries"
)

// signalPathMax is the longest path of a wait, in bytes.
const signalPathMax = 512

// CallbackPath is the path of callback addresses below the public one; a token
// follows.
const CallbackPath = "/v1/callbacks/"

// Signal is a payload for a wait of an execution.
type Signal struct {
	TenantID    uuid.UUID
	ExecutionID uuid.UUID
	// TaskID is the wait's id, or its path within nested graphs: each[3].approve.
	TaskID string
	// Attempt is that of the execution to which a callback address belongs. 0 is whichever
	// it is in: signals of clients, and addresses that name no attempt.
	Attempt int
	Payload any // an exactjson value
}

// Deliver stores a signal and lets the execution go on, in one transaction. A
// signal whose wait has not begun is kept. fault.NotFound: there is no such
// execution; fault.Invalid: it has ended or is in another attempt, no such task waits
// or may still wait, the payload does not match the wait's schema, or a signal has
// come before.
func (s *Service) Deliver(ctx context.Context, signal Signal) error {
	payload, err := exactjson.Encode(signal.Payload)
	if err != nil {
		return fmt.Errorf("write the payload: %w", err)
	}
	plan, err := s.plan(ctx, signal.TenantID, signal.ExecutionID)
	if err != nil {
		return err
	}
	return postgres.InTx(ctx, s.Pool, func(tx pgx.Tx) error {
		q := queries.New()
		row, err := q.ExecutionGetForSignal(ctx, tx, queries.ExecutionGetForSignalParams{TenantID: signal.TenantID, ID: signal.ExecutionID})
		if err != nil {
			return readError(err)
		}
		if status := engine.Status(row.Status); status.Ended() {
			return errStatus(fmt.Sprintf("only a pending or running execution takes signals; this one is %s", status))
		}
		if signal.Attempt != 0 && signal.Attempt != int(row.Attempt) {
			return errSignal("taskId", "was to be answered in an attempt that has ended")
		}
		plan, state, err := s.Stored(ctx, signal.TenantID, signal.ExecutionID, plan, row.State)
		if err != nil {
			return err
		}
		path, err := accept(plan, state, &signal)
		if err != nil {
			return err
		}
		rows, err := q.ExecutionSignalInsert(ctx, tx, queries.ExecutionSignalInsertParams{
			TenantID: signal.TenantID, ExecutionID: signal.ExecutionID, Attempt: row.Attempt, TaskPath: path, Payload: payload,
		})
		if err != nil {
			return err
		}
		if rows == 0 {
			return errSignal("taskId", "has got its signal already")
		}
		_, err = s.Jobs.InsertTx(ctx, tx, jobs.TaskExecution{TenantID: signal.TenantID, ExecutionID: signal.ExecutionID}, nil)
		return err
	})
}

func errSignal(field, message string) error {
	return fault.New(fault.Invalid, "the signal cannot be taken").WithDetails(fault.Detail{Field: field, Message: message})
}

// accept finds the wait that a signal is for and checks the payload. It
// returns the wait's path.
func accept(plan *workflow.Plan, state *engine.State, signal *Signal) (string, error) {
	wait, path, problem := findWait(plan, state, signal.TaskID)
	if problem != "" {
		return "", errSignal("taskId", problem)
	}
	if wait.Schema != nil {
		if details := wait.Schema.Check(signal.Payload); len(details) > 0 {
			for i := range details {
				details[i].Field = workflow.JoinPath(PayloadField, details[i].Field)
			}
			return "", fault.New(fault.Invalid, "the payload does not match the schema of the wait").WithDetails(details...)
		}
	}
	return path, nil
}

// PayloadField is the member that faults of a payload name.
const PayloadField = "payload"

// findWait finds a wait by its path, or by its id where only one task of that
// id waits. problem says why it takes no signal.
func findWait(plan *workflow.Plan, state *engine.State, name string) (wait *workflow.Wait, path, problem string) {
	byID := 0
	for _, w := range engine.Waits(plan, state) {
		switch {
		case w.Path == name:
			if w.Status != engine.StatusPending && w.Status != engine.StatusWaiting {
				return nil, "", "names a task that does not wait any more"
			}
			return w.Wait, w.Path, ""
		case w.TaskID == name && w.Status == engine.StatusWaiting:
			byID++
			wait, path = w.Wait, w.Path
		}
	}
	switch {
	case byID == 1:
		return wait, path, ""
	case byID > 1:
		return nil, "", "names several tasks that wait; name one by its path"
	}
	// A run that has not begun: its wait may be named by the path it will have.
	if wait := engine.FutureWait(plan, state, name); wait != nil && len(name) <= signalPathMax {
		return wait, name, ""
	}
	return nil, "", "names no task that waits for a signal"
}

// Callbacks makes and reads the addresses at which waits are answered without a
// bearer token. They hold for one wait of one attempt; whoever has one can answer.
type Callbacks struct {
	keys    [][]byte
	baseURL string
}

// NewCallbacks returns the addresses below baseURL (PUBLIC_URL) under keys of
// 256 bits that serve no other purpose: the first signs, all are read.
func NewCallbacks(keys [][]byte, baseURL string) *Callbacks {
	return &Callbacks{keys: keys, baseURL: strings.TrimSuffix(baseURL, "/")}
}

// attemptMark is between the path of a wait, where it cannot be, and the attempt.
const attemptMark = "#"

// URL is the address that answers the wait at a path of an execution in an attempt.
func (c *Callbacks) URL(tenantID, executionID uuid.UUID, path string, attempt int) string {
	body := append(append(tenantID[:], executionID[:]...), path+attemptMark+strconv.Itoa(attempt)...)
	return c.baseURL + CallbackPath + base64.RawURLEncoding.EncodeToString(append(sign(c.keys[0], body), body...))
}

// Read returns what wait a token is for; false if it is not one of ours.
func (c *Callbacks) Read(token string) (signal Signal, ok bool) {
	text, err := base64.RawURLEncoding.Strict().DecodeString(token)
	const ids = 2 * len(uuid.UUID{})
	if err != nil || len(text) <= sha256.Size+ids {
		return Signal{}, false
	}
	sum, body := text[:sha256.Size], text[sha256.Size:]
	if !slices.ContainsFunc(c.keys, func(key []byte) bool { return hmac.Equal(sum, sign(key, body)) }) {
		return Signal{}, false
	}
	signal = Signal{TenantID: uuid.UUID(body[:ids/2]), ExecutionID: uuid.UUID(body[ids/2 : ids])}
	path, attempt, isNamed := strings.Cut(string(body[ids:]), attemptMark)
	if signal.TaskID = path; isNamed {
		signal.Attempt, err = strconv.Atoi(attempt)
	}
	return signal, err == nil
}

func sign(key, body []byte) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write(body)
	return mac.Sum(nil)
}
