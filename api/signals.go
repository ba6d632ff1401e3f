package api

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/google/uuid"

	"tranche/internal/execution"
	"tranche/internal/fault"
	"tranche/internal/httpapi"
	"tranche/internal/identity"
	"tranche/internal/postgres"
)

// SignalRequest is a payload for a waiting task.
type SignalRequest struct {
	TaskID  string `json:"taskId" minLength:"1" maxLength:"512" doc:"The id of the wait-for-signal task. For a task in a nested graph, use the path, such as each[3].approval; the id is enough if only one task with it waits." example:"approval"`
	Payload JSON   `json:"payload,omitzero" doc:"The output of the task. It must match the schema of the task. Defaults to null."`
}

// SignalAccepted is the answer to a signal.
type SignalAccepted struct {
	ExecutionID string `json:"executionId" doc:"The id of the execution that continues." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11"`
}

type (
	signalInput struct {
		ID   string `path:"executionId" doc:"The id of the execution." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11"`
		Body SignalRequest
	}
	callbackInput struct {
		Token string `path:"callbackToken" doc:"The last segment of the URL that callbackUrl returned." example:"2rS0Y3c1x7m4k"`
		Body  *JSON  `required:"false"`
	}
	signalOutput struct{ Body SignalAccepted }
)

func signalRoutes(s *Server) {
	httpapi.Register(s.http, httpapi.Operation{
		ID: "signalExecution", Method: http.MethodPost, Path: "/v1/executions/{executionId}/signals", Tag: "Executions",
		Summary: "Send a signal to an execution",
		Description: "**[ext]** Delivers the payload for which a wait-for-signal task waits. A signal that arrives before the task begins to wait is " +
			"stored. The response is 400 for a second signal, for a signal that arrives too late, and for a payload that does not match the " +
			"schema of the task. If the execution has ended, the signal is rejected with the `errorSubCode` INVALID_EXECUTION_STATUS **[ext]**.",
		Scope: identity.ScopeExecutionsRun, Category: identity.LimitSingle, Status: http.StatusAccepted,
		RequestExample:  `{"taskId":"approval","payload":{"approved":true,"by":"j.doe"}}`,
		ResponseExample: `{"executionId":"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11"}`,
		Errors:          []int{http.StatusNotFound},
	}, s.signalExecution)
	httpapi.Register(s.http, httpapi.Operation{
		ID: "answerCallback", Method: http.MethodPost, Path: execution.CallbackPath + "{callbackToken}", Tag: "Executions",
		Summary: "Send a signal to a callback URL",
		Description: "**[ext]** Delivers the body as the payload of one wait-for-signal task. The expression function `callbackUrl` returns the URL. No " +
			"bearer token is needed: the URL cannot be guessed, and it works once and only until the wait ends. After that the response is " +
			"400. A URL accepts 200 requests per minute.",
		Status:          http.StatusAccepted,
		RequestExample:  `{"approved":true,"by":"j.doe"}`,
		ResponseExample: `{"executionId":"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11"}`,
		Errors:          []int{http.StatusNotFound},
	}, s.answerCallback)
}

func (s *Server) signalExecution(ctx context.Context, in *signalInput) (*signalOutput, error) {
	id, err := executionID(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	if err := s.checkSandboxExecution(ctx, id); err != nil {
		return nil, err
	}
	return s.deliver(ctx, execution.Signal{
		TenantID: httpapi.Principal(ctx).TenantID, ExecutionID: id, TaskID: in.Body.TaskID, Payload: in.Body.Payload.Value,
	})
}

func (s *Server) answerCallback(ctx context.Context, in *callbackInput) (*signalOutput, error) {
	signal, ok := s.config.Callbacks.Read(in.Token)
	if !ok {
		return nil, fault.New(fault.NotFound, "there is no such callback URL")
	}
	if in.Body != nil {
		signal.Payload = in.Body.Value
	}
	httpapi.NoteExecution(ctx, signal.ExecutionID)
	if err := s.config.Identity.AdmitAddress(ctx, uuid.NewSHA1(signal.ExecutionID, []byte(signal.TaskID))); err != nil {
		return nil, err
	}
	out, err := s.deliver(postgres.WithTenant(ctx, signal.TenantID), signal)
	return out, ofCallback(err)
}

// ofCallback renames the fields of details: the body of a callback is the payload.
func ofCallback(err error) error {
	f, ok := errors.AsType[*fault.Error](err)
	if !ok {
		return err
	}
	for i := range f.Details {
		field := &f.Details[i].Field
		if within, isPayload := strings.CutPrefix(*field, execution.PayloadField); isPayload {
			*field = cmp.Or(strings.TrimPrefix(within, "."), httpapi.WholeBody)
		}
	}
	return err
}

func (s *Server) deliver(ctx context.Context, signal execution.Signal) (*signalOutput, error) {
	if err := s.config.Executions.Deliver(ctx, signal); err != nil {
		return nil, err
	}
	return &signalOutput{Body: SignalAccepted{ExecutionID: signal.ExecutionID.String()}}, nil
}
