package api

import (
	"context"
	"errors"
	"net/http"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"tranche/internal/catalog"
	"tranche/internal/execution"
	"tranche/internal/fault"
	"tranche/internal/httpapi"
	"tranche/internal/identity"
	"tranche/internal/postgres"
	"tranche/queries"
)

// ExecutionOutput is the result of an execution and its workflow (contract A.2.8 and A.4.3, 5.5).
type ExecutionOutput struct {
	ID              string            `json:"id" doc:"The id of the execution." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11"`
	BillableID      string            `json:"billableId,omitempty" doc:"The id for billing."`
	BorrowerID      string            `json:"borrowerId,omitempty" doc:"The borrower's id." example:"B-1001"`
	WorkflowID      string            `json:"workflowId" doc:"The id of the executed workflow."`
	WorkflowAlias   string            `json:"workflowAlias" doc:"The alias of the workflow." example:"pre-qualification"`
	WorkflowVersion string            `json:"workflowVersion" doc:"The version of the workflow." example:"v1"`
	WorkflowType    string            `json:"workflowType,omitempty" doc:"The type of the workflow." example:"scoring"`
	StatusCode      int               `json:"statusCode" doc:"The status code of the result, as in the response of execute." example:"200"`
	IsSuccess       bool              `json:"isSuccess" doc:"true if the execution completed." example:"true"`
	Output          RawObject         `json:"output" doc:"The output of the workflow. {} if the execution failed."`
	CustomOutput    RawJSON           `json:"customOutput" doc:"The additional output of the end task, or null if it has none."`
	HasAttachments  bool              `json:"hasAttachments" doc:"true if the result has attachments."`
	Attachments     []ExecutionFile   `json:"attachments" doc:"The files of the result. If a file does not exist, it is left out and notices has an entry with the code ATTACHMENT_MISSING."`
	Notes           []string          `json:"notes" doc:"The notes of the end task."`
	Notices         []ExecutionNotice `json:"notices" doc:"Remarks about the run."`
	ErrorMessage    *string           `json:"errorMessage" nullable:"true" doc:"The reason of the failure, or null if the execution did not fail."`
	ErrorSubCode    string            `json:"errorSubCode,omitempty" enum:"EXTERNAL_SERVICE_ERROR,EXECUTION_TIMEOUT,INPUT_SCHEMA_MISMATCH" doc:"**[ext]** A more specific class of the failure."`
	CreatedAt       Timestamp         `json:"createdAt" doc:"The time at which the execution was created."`
}

// ExecutionStatus is the progress of an execution (contract A.2.5).
type ExecutionStatus struct {
	ExecutionID    string     `json:"executionId" doc:"The id of the execution." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11"`
	Status         string     `json:"status" enum:"pending,running,completed,failed,cancelled,timeout" doc:"The current status." example:"completed"`
	StartedAt      *Timestamp `json:"startedAt,omitempty" doc:"The time at which it started. Absent before that."`
	CompletedAt    *Timestamp `json:"completedAt,omitempty" doc:"The time at which it ended. Absent before that."`
	Duration       *int64     `json:"duration,omitempty" doc:"The time from start to end, in milliseconds. Absent until it has ended." example:"32000"`
	TasksCompleted int        `json:"tasksCompleted" doc:"The number of tasks that have completed." example:"3"`
	TasksFailed    int        `json:"tasksFailed" doc:"The number of tasks that have failed, including failures after which the execution continued." example:"0"`
}

type (
	executionInput struct {
		ID string `path:"executionId" doc:"The id of the execution." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11"`
	}
	executionOutputOutput struct{ Body ExecutionOutput }
	executionStatusOutput struct{ Body ExecutionStatus }
)

func executionRoutes(s *Server) {
	httpapi.Register(s.http, httpapi.Operation{
		ID: "getExecutionOutput", Method: http.MethodGet, Path: "/v1/executions/{executionId}/output", Tag: "Executions",
		Summary: "Get the output of an execution",
		Description: "Returns the result of an execution that has ended. Before that, the response is 404 with the `errorSubCode` " +
			"EXECUTION_NOT_FINISHED **[ext]**.",
		Scope: identity.ScopeExecutionsData, Category: identity.LimitPolling,
		ResponseExample: `{"id":"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11","borrowerId":"B-1001","workflowId":"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a10","workflowAlias":"pre-qualification","workflowVersion":"v1","statusCode":200,"isSuccess":true,"output":{"decision":"approve","installment":391.53},"customOutput":null,"hasAttachments":false,"attachments":[],"notes":[],"notices":[],"errorMessage":null,"createdAt":"2026-11-21T02:09:25.123Z"}`,
		Errors:          []int{http.StatusNotFound},
	}, s.getExecutionOutput)
	httpapi.Register(s.http, httpapi.Operation{
		ID: "getExecutionStatus", Method: http.MethodGet, Path: "/v1/executions/{executionId}/status", Tag: "Executions",
		Summary:     "Get the status of an execution",
		Description: "Returns the status, the progress and the duration of an execution.",
		Scope:       identity.ScopeExecutionsRead, Category: identity.LimitPolling,
		ResponseExample: `{"executionId":"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11","status":"completed","startedAt":"2026-11-21T02:09:25.123Z","completedAt":"2026-11-21T02:09:57.123Z","duration":32000,"tasksCompleted":3,"tasksFailed":0}`,
		Errors:          []int{http.StatusNotFound},
	}, s.getExecutionStatus)
}

func (s *Server) getExecutionOutput(ctx context.Context, in *executionInput) (*executionOutputOutput, error) {
	id, err := executionID(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	row, err := queries.New().ExecutionGetOutput(ctx, queries.OnPartition(s.config.Pool, id), queries.ExecutionGetOutputParams{TenantID: httpapi.Principal(ctx).TenantID, ID: id})
	if err != nil {
		return nil, executionReadError(err)
	}
	if row.Result == nil {
		return nil, fault.New(fault.NotFound, "the execution has not ended").WithSubCode(fault.ExecutionNotFinished)
	}
	if err := s.http.AcquireAnswer(ctx, len(row.Result)); err != nil {
		return nil, err
	}
	stored, err := execution.ReadResult(row.Result)
	if err != nil {
		return nil, err
	}
	r, err := s.executionResult(ctx, id, stored)
	if err != nil {
		return nil, err
	}
	return &executionOutputOutput{Body: ExecutionOutput{
		ID: r.ExecutionID, BillableID: queries.Value(row.BillableID), BorrowerID: queries.Value(row.BorrowerID),
		WorkflowID: row.WorkflowID.String(), WorkflowAlias: row.WorkflowAlias,
		WorkflowVersion: catalog.VersionName(int(row.WorkflowVersion)), WorkflowType: queries.Value(row.WorkflowType),
		StatusCode: r.StatusCode, IsSuccess: r.IsSuccess, Output: r.Output, CustomOutput: r.CustomOutput,
		HasAttachments: len(r.Attachments) > 0, Attachments: r.Attachments, Notes: r.Notes, Notices: r.Notices,
		ErrorMessage: r.ErrorMessage, ErrorSubCode: r.ErrorSubCode, CreatedAt: stamp(queries.CreatedAt(id)),
	}}, nil
}

func (s *Server) getExecutionStatus(ctx context.Context, in *executionInput) (*executionStatusOutput, error) {
	id, err := executionID(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	row, err := queries.New().ExecutionGetStatus(ctx, queries.OnPartition(s.config.Pool, id), queries.ExecutionGetStatusParams{TenantID: httpapi.Principal(ctx).TenantID, ID: id})
	if err != nil {
		return nil, executionReadError(err)
	}
	status := ExecutionStatus{
		ExecutionID: id.String(), Status: row.Status, StartedAt: stampOrNil(row.StartedAt), CompletedAt: stampOrNil(row.CompletedAt),
		TasksCompleted: int(row.TasksCompleted), TasksFailed: int(row.TasksFailed),
	}
	if row.StartedAt != nil && row.CompletedAt != nil {
		status.Duration = new(row.CompletedAt.Sub(*row.StartedAt).Milliseconds())
	}
	return &executionStatusOutput{Body: status}, nil
}

// executionID parses the id of a path. An id of the wrong form is fault.NotFound.
func executionID(ctx context.Context, text string) (uuid.UUID, error) {
	id, err := httpapi.ParseID(text, "execution")
	if err == nil {
		httpapi.NoteExecution(ctx, id)
	}
	return id, err
}

func executionReadError(err error) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return fault.New(fault.NotFound, "there is no such execution")
	}
	return postgres.Translate(err)
}
