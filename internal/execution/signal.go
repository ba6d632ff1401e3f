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

// CallbackPath is the path of callback addresses below the public address; a token
// follows it.
const CallbackPath = "/v1/callbacks/"

// Signal is a payload for a wait of an execution.
type Signal struct {
	TenantID    uuid.UUID
	ExecutionID uuid.UUID
	// TaskID is the wait's id, or its path in nested graphs: each[3].approve.
	TaskID string
	// Attempt is the attempt of the execution that a callback address belongs to. 0 is the
	// current attempt: for signals of clients and for addresses without an attempt.
	Attempt int
	Payload any // an exactjson value
}

// Deliver stores a signal and inserts a job that continues the execution, in one
// transaction. A signal may come before its wait begins. Errors: fault.NotFound if the
// execution does not exist; fault.Invalid if it has ended or is in another attempt, if no
// such task waits or will wait, if the payload does not match the wait's schema, or if the
// wait already has a signal.
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
			return errSignal("taskId", "belongs to an attempt that has ended")
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
			return errSignal("taskId", "already has a signal")
		}
		_, err = s.Jobs.InsertTx(ctx, tx, jobs.TaskExecution{TenantID: signal.TenantID, ExecutionID: signal.ExecutionID}, nil)
		return err
	})
}

func errSignal(field, message string) error {
	return fault.New(fault.Invalid, "the signal is not accepted").WithDetails(fault.Detail{Field: field, Message: message})
}

// accept finds the wait of a signal and checks the payload. It returns the wait's path.
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

// PayloadField is the field path of a payload in errors.
const PayloadField = "payload"

// findWait finds a wait by its path, or by its id if only one task with that id waits.
// problem is empty, or the reason why there is no such wait.
func findWait(plan *workflow.Plan, state *engine.State, name string) (wait *workflow.Wait, path, problem string) {
	byID := 0
	for _, w := range engine.Waits(plan, state) {
		switch {
		case w.Path == name:
			if w.Status != engine.StatusPending && w.Status != engine.StatusWaiting {
				return nil, "", "names a task that no longer waits"
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
		return nil, "", "names several waiting tasks; use the path of one of them"
	}
	// The wait of a nested run that has not begun has a future path.
	if wait := engine.FutureWait(plan, state, name); wait != nil && len(name) <= signalPathMax {
		return wait, name, ""
	}
	return nil, "", "names no task that waits for a signal"
}

// Callbacks makes and reads callback addresses, which answer one wait of one attempt. The
// address is the authorisation: its caller needs no bearer token.
type Callbacks struct {
	keys    [][]byte
	baseURL string
}

// NewCallbacks returns callback addresses below baseURL (PUBLIC_URL). The keys have 256
// bits and no other purpose. The first key signs; all keys verify.
func NewCallbacks(keys [][]byte, baseURL string) *Callbacks {
	return &Callbacks{keys: keys, baseURL: strings.TrimSuffix(baseURL, "/")}
}

// attemptMark separates the path of a wait from the attempt. No path contains it.
const attemptMark = "#"

// URL returns the address that answers the wait at a path, in one attempt of an execution.
func (c *Callbacks) URL(tenantID, executionID uuid.UUID, path string, attempt int) string {
	body := append(append(tenantID[:], executionID[:]...), path+attemptMark+strconv.Itoa(attempt)...)
	return c.baseURL + CallbackPath + base64.RawURLEncoding.EncodeToString(append(sign(c.keys[0], body), body...))
}

// Read returns a signal for the wait that a token names. ok is false if no key signed it.
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
