package api

import (
	"context"
	"net/http"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"tranche/internal/execution"
	"tranche/internal/fault"
	"tranche/internal/httpapi"
	"tranche/internal/identity"
)

// ExecutionRetryRequest is the body of a retry (section 4.6).
type ExecutionRetryRequest struct {
	SkipTasks []string `json:"skipTasks,omitempty" maxItems:"1000" doc:"Tasks to pass over where they would run again: their output is null and their edges are taken." example:"[\"notify\"]"`
}

// ExecutionRetried is a retry that was accepted (decisions 5.7).
type ExecutionRetried struct {
	ExecutionID  string    `json:"executionId" doc:"The execution's id, the same as before." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11"`
	Attempt      int       `json:"attempt" doc:"Which attempt this is." example:"2"`
	Status       string    `json:"status" enum:"pending" doc:"The execution is queued again." example:"pending"`
	SkippedTasks []string  `json:"skippedTasks" doc:"The tasks that are passed over."`
	ResumedTasks []string  `json:"resumedTasks" doc:"The tasks that may run again; the others keep their results."`
	CreatedAt    Timestamp `json:"createdAt" doc:"When the retry was accepted."`
}

type (
	executionRetryInput struct {
		ID   string                 `path:"executionId" doc:"The execution's id." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11"`
		Body *ExecutionRetryRequest `required:"false"`
	}
)

func executionControlRoutes(s *Server) {
	httpapi.RegisterIdempotent(s.http, httpapi.Operation{
		ID: "retryExecution", Method: http.MethodPost, Path: "/v1/executions/{executionId}/retry", Tag: "Executions",
		Summary: "Retry an execution",
		Description: "Gives a failed, cancelled or timed-out execution another attempt under the same id, on the same version of its workflow. " +
			"Completed tasks keep their results; every other task and what follows it is decided anew, after an end with status failed everything is. " +
			"An execution of another status, or an item of a batch, is refused with errorSubCode INVALID_EXECUTION_STATUS **[ext]**.",
		Scope: identity.ScopeExecutionsRun, Category: identity.LimitSingle, Status: http.StatusAccepted,
		RequestExample:  `{"skipTasks":["notify"]}`,
		ResponseExample: `{"executionId":"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11","attempt":2,"status":"pending","skippedTasks":["notify"],"resumedTasks":["score","done"],"createdAt":"2026-11-21T02:09:25.123Z"}`,
		Errors:          []int{http.StatusNotFound},
	}, httpapi.KeyConflicts{OtherRequest: fault.Invalid, InProgress: fault.Invalid}, s.retryExecution, httpapi.Replay)
	httpapi.Register(s.http, httpapi.Operation{
		ID: "cancelExecution", Method: http.MethodPost, Path: "/v1/executions/{executionId}/cancel", Tag: "Executions",
		Summary: "Cancel an execution",
		Description: "**[ext]** Ends a pending or running execution as cancelled. The answer says so already; calls to the outside that run are broken off, wherever they run. " +
			"An execution that has ended, or an item of a batch, is refused with errorSubCode INVALID_EXECUTION_STATUS **[ext]**.",
		Scope: identity.ScopeExecutionsRun, Category: identity.LimitSingle,
		ResponseExample: `{"executionId":"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11","status":"cancelled","startedAt":"2026-11-21T02:09:25.123Z","completedAt":"2026-11-21T02:09:57.123Z","duration":32000,"tasksCompleted":1,"tasksFailed":0}`,
		Errors:          []int{http.StatusNotFound},
	}, s.cancelExecution)
}

func (s *Server) retryExecution(ctx context.Context, in *executionRetryInput) (*httpapi.Answer[ExecutionRetried], error) {
	id, err := executionID(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	if err := s.checkSandboxExecution(ctx, id); err != nil {
		return nil, err
	}
	request := execution.RetryRequest{
		TenantID: httpapi.Principal(ctx).TenantID, ID: id,
		Recorded: func(ctx context.Context, tx pgx.Tx, r *execution.Retried) error {
			return httpapi.KeepTx(ctx, tx, http.StatusAccepted, executionRetried(id, r))
		},
	}
	if in.Body != nil {
		request.SkipTasks = in.Body.SkipTasks
	}
	retried, err := s.config.Executions.Retry(ctx, request)
	if err != nil {
		return nil, err
	}
	return httpapi.NewAnswer(executionRetried(id, retried)), nil
}

func executionRetried(id uuid.UUID, r *execution.Retried) ExecutionRetried {
	retried := ExecutionRetried{
		ExecutionID: id.String(), Attempt: r.Attempt, Status: "pending",
		SkippedTasks: []string{}, ResumedTasks: []string{}, CreatedAt: stamp(r.AcceptedAt),
	}
	retried.SkippedTasks = append(retried.SkippedTasks, r.Skipped...)
	retried.ResumedTasks = append(retried.ResumedTasks, r.Resumed...)
	return retried
}

func (s *Server) cancelExecution(ctx context.Context, in *executionInput) (*executionStatusOutput, error) {
	id, err := executionID(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	if err := s.checkSandboxExecution(ctx, id); err != nil {
		return nil, err
	}
	if err := s.config.Executions.Cancel(ctx, httpapi.Principal(ctx).TenantID, id); err != nil {
		return nil, err
	}
	return s.getExecutionStatus(ctx, in)
}
