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

// ExecutionRetryRequest is the body of a retry (contract A.4.6).
type ExecutionRetryRequest struct {
	SkipTasks []string `json:"skipTasks,omitempty" maxItems:"1000" doc:"The ids of tasks to skip if they would run again. A skipped task has the output null, and the execution continues with the tasks after it." example:"[\"notify\"]"`
}

// ExecutionRetried is an accepted retry (contract 5.7).
type ExecutionRetried struct {
	ExecutionID  string    `json:"executionId" doc:"The id of the execution. A retry does not change it." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11"`
	Attempt      int       `json:"attempt" doc:"The number of the new attempt." example:"2"`
	Status       string    `json:"status" enum:"pending" doc:"Always pending: the execution is queued again." example:"pending"`
	SkippedTasks []string  `json:"skippedTasks" doc:"The tasks that are skipped."`
	ResumedTasks []string  `json:"resumedTasks" doc:"The tasks that may run again. All other tasks keep their results."`
	CreatedAt    Timestamp `json:"createdAt" doc:"The time at which the retry was accepted."`
}

type (
	executionRetryInput struct {
		ID   string                 `path:"executionId" doc:"The id of the execution." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11"`
		Body *ExecutionRetryRequest `required:"false"`
	}
)

func executionControlRoutes(s *Server) {
	httpapi.RegisterIdempotent(s.http, httpapi.Operation{
		ID: "retryExecution", Method: http.MethodPost, Path: "/v1/executions/{executionId}/retry", Tag: "Executions",
		Summary: "Retry an execution",
		Description: "Starts another attempt of an execution that failed, was cancelled or timed out. The execution keeps its id and its version of the " +
			"workflow. Completed tasks keep their results, and all other tasks and the tasks after them are decided again. If an end task with " +
			"the status failed ended the execution, all tasks are decided again.\n\n" +
			"An execution with another status, or an execution of a batch, is rejected with the `errorSubCode` INVALID_EXECUTION_STATUS " +
			"**[ext]**.",
		Scope: identity.ScopeExecutionsRun, Category: identity.LimitSingle, Status: http.StatusAccepted,
		RequestExample:  `{"skipTasks":["notify"]}`,
		ResponseExample: `{"executionId":"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11","attempt":2,"status":"pending","skippedTasks":["notify"],"resumedTasks":["score","done"],"createdAt":"2026-11-21T02:09:25.123Z"}`,
		Errors:          []int{http.StatusNotFound},
	}, httpapi.KeyConflicts{OtherRequest: fault.Invalid, InProgress: fault.Invalid}, s.retryExecution, httpapi.Replay)
	httpapi.Register(s.http, httpapi.Operation{
		ID: "cancelExecution", Method: http.MethodPost, Path: "/v1/executions/{executionId}/cancel", Tag: "Executions",
		Summary: "Cancel an execution",
		Description: "**[ext]** Ends a pending or running execution with the status `cancelled`, which the response already shows. Calls to other " +
			"services in progress are aborted on every instance of the service.\n\n" +
			"An execution that has ended, or an execution of a batch, is rejected with the `errorSubCode` INVALID_EXECUTION_STATUS **[ext]**.",
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
