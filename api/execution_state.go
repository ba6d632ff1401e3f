package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"tranche/internal/catalog"
	"tranche/internal/engine"
	"tranche/internal/execution"
	"tranche/internal/httpapi"
	"tranche/internal/identity"
	"tranche/internal/workflow"
	"tranche/queries"
)

// ExecutionInput is the input of an execution (contract A.2.7).
type ExecutionInput struct {
	ID              string    `json:"id" doc:"The id of the execution." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11"`
	WorkflowID      string    `json:"workflowId" doc:"The id of the executed workflow." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a10"`
	WorkflowAlias   string    `json:"workflowAlias" doc:"The alias of the workflow." example:"pre-qualification"`
	WorkflowVersion string    `json:"workflowVersion" doc:"The version of the workflow." example:"v1"`
	Input           RawObject `json:"input" doc:"The input, including the defaults of the inputSchema. Numbers keep all their digits."`
	CreatedAt       Timestamp `json:"createdAt" doc:"The time at which the execution was created."`
}

// ExecutionState is the state of an execution and its tasks (contract 5.6).
type ExecutionState struct {
	ExecutionID string          `json:"executionId" doc:"The id of the execution." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11"`
	Status      string          `json:"status" enum:"pending,running,completed,failed,cancelled,timeout" doc:"The current status." example:"failed"`
	Attempt     int             `json:"attempt" doc:"The number of the attempt. It starts at 1 and increases with every retry." example:"1"`
	StartedAt   *Timestamp      `json:"startedAt,omitempty" doc:"The time at which this attempt started. Absent before that."`
	CompletedAt *Timestamp      `json:"completedAt,omitempty" doc:"The time at which it ended. Absent before that."`
	Retryable   bool            `json:"retryable" doc:"true if a retry would be accepted." example:"true"`
	RetryReason string          `json:"retryReason" doc:"The reason why a retry would or would not be accepted." example:"the execution failed"`
	Tasks       []ExecutionTask `json:"tasks" doc:"The tasks in the order of the definition. A running execution stores them before each call to another service, and the response shows the last stored state."`
}

// ExecutionTask is the state of a task.
type ExecutionTask struct {
	TaskID      string              `json:"taskId" doc:"The id of the task." example:"score"`
	Name        string              `json:"name,omitempty" doc:"A name for people." example:"Ask the bureau"`
	Type        string              `json:"type" doc:"The type of the task." example:"http-request"`
	Status      string              `json:"status" enum:"pending,running,waiting,completed,failed,skipped,cancelled,timeout" doc:"The current status." example:"completed"`
	Attempt     int                 `json:"attempt" doc:"The number of attempts that have begun, including automatic retries. 0 before the first attempt." example:"1"`
	MaxAttempts int                 `json:"maxAttempts" doc:"The maximum number of attempts." example:"3"`
	StartedAt   *Timestamp          `json:"startedAt,omitempty" doc:"The time at which the first attempt began. Absent before that."`
	CompletedAt *Timestamp          `json:"completedAt,omitempty" doc:"The time at which it ended. Absent before that."`
	DurationMs  *int64              `json:"durationMs,omitempty" doc:"The time from start to end, in milliseconds. Absent until it has ended." example:"131"`
	NextRetryAt *Timestamp          `json:"nextRetryAt,omitempty" doc:"The time at which a waiting task continues."`
	Error       *ExecutionTaskError `json:"error,omitempty" doc:"The error of the last attempt."`
	Output      *JSON               `json:"output,omitempty" doc:"The output of a completed task. Only tokens with the scope executions:data receive it."`
	Index       *int                `json:"index,omitempty" doc:"For a task in a for-each or loop, the number of the item or iteration, starting at 0." example:"0"`
	Children    []ExecutionTask     `json:"children,omitempty" doc:"The tasks of the nested graph, run by run. A for-each has those of the first 100 items and of all items that have not completed; a loop has those of the last iteration. Outputs are available only while the nested run is in progress."`
}

// ExecutionTaskError is the error of a task.
type ExecutionTaskError struct {
	Code       string `json:"code" doc:"The class of the error." example:"EXTERNAL_SERVICE_ERROR"`
	Message    string `json:"message" doc:"A description of the event for people." example:"the service answered 503"`
	StatusCode int    `json:"statusCode,omitempty" doc:"The HTTP status of the response, if there was one." example:"503"`
}

type (
	executionInputOutput struct{ Body ExecutionInput }
	executionStateOutput struct{ Body ExecutionState }
)

func executionStateRoutes(s *Server) {
	httpapi.Register(s.http, httpapi.Operation{
		ID: "getExecutionInput", Method: http.MethodGet, Path: "/v1/executions/{executionId}/input", Tag: "Executions",
		Summary:     "Get the input of an execution",
		Description: "Returns the input with which an execution was started.",
		Scope:       identity.ScopeExecutionsData, Category: identity.LimitPolling,
		ResponseExample: `{"id":"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11","workflowId":"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a10","workflowAlias":"pre-qualification","workflowVersion":"v1","input":{"borrowerId":"B-1001","annualIncome":54000.00},"createdAt":"2026-11-21T02:09:25.123Z"}`,
		Errors:          []int{http.StatusNotFound},
	}, s.getExecutionInput)
	httpapi.Register(s.http, httpapi.Operation{
		ID: "getExecutionState", Method: http.MethodGet, Path: "/v1/executions/{executionId}/state", Tag: "Executions",
		Summary: "Get the state of an execution",
		Description: "Returns the status of every task, its output or error, and whether the execution can be retried. Only tokens with the scope " +
			"`executions:data` receive outputs.",
		Scope: identity.ScopeExecutionsRead, Category: identity.LimitPolling,
		ResponseExample: `{"executionId":"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11","status":"failed","attempt":1,"startedAt":"2026-11-21T02:09:25.123Z","completedAt":"2026-11-21T02:09:25.301Z","retryable":true,"retryReason":"the execution failed","tasks":[{"taskId":"score","name":"Ask the bureau","type":"http-request","status":"failed","attempt":3,"maxAttempts":3,"startedAt":"2026-11-21T02:09:25.123Z","completedAt":"2026-11-21T02:09:25.301Z","durationMs":178,"error":{"code":"EXTERNAL_SERVICE_ERROR","message":"the service answered 503","statusCode":503}},{"taskId":"done","type":"end","status":"pending","attempt":0,"maxAttempts":1}]}`,
		Errors:          []int{http.StatusNotFound},
	}, s.getExecutionState)
}

func (s *Server) getExecutionInput(ctx context.Context, in *executionInput) (*executionInputOutput, error) {
	id, err := executionID(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	row, err := queries.New().ExecutionGetInput(ctx, queries.OnPartition(s.config.Pool, id), queries.ExecutionGetInputParams{TenantID: httpapi.Principal(ctx).TenantID, ID: id})
	if err != nil {
		return nil, executionReadError(err)
	}
	if err := s.http.AcquireAnswer(ctx, len(row.Input)); err != nil {
		return nil, err
	}
	return &executionInputOutput{Body: ExecutionInput{
		ID: id.String(), WorkflowID: row.WorkflowID.String(), WorkflowAlias: row.WorkflowAlias,
		WorkflowVersion: catalog.VersionName(int(row.WorkflowVersion)), Input: RawObject(row.Input), CreatedAt: stamp(queries.CreatedAt(id)),
	}}, nil
}

func (s *Server) getExecutionState(ctx context.Context, in *executionInput) (*executionStateOutput, error) {
	id, err := executionID(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	p := httpapi.Principal(ctx)
	row, err := queries.New().ExecutionGetState(ctx, queries.OnPartition(s.config.Pool, id), queries.ExecutionGetStateParams{TenantID: p.TenantID, ID: id})
	if err != nil {
		return nil, executionReadError(err)
	}
	if err := s.http.AcquireAnswer(ctx, len(row.State)+len(row.Result)); err != nil {
		return nil, err
	}
	_, plan, err := s.config.Catalog.Plan(ctx, p.TenantID, row.WorkflowID)
	if err != nil {
		return nil, err
	}
	plan, state, err := s.config.Executions.Stored(ctx, p.TenantID, id, plan, row.State)
	if err != nil {
		return nil, err
	}
	view := taskView{plan: plan, withOutput: p.Has(identity.ScopeExecutionsData)}
	if row.Result != nil && view.withOutput {
		result, err := execution.ReadResult(row.Result)
		if err != nil {
			return nil, err
		}
		var output map[string]any
		decoder := json.NewDecoder(bytes.NewReader(result.Output))
		decoder.UseNumber() // exactjson would limit the depth, which is a limit for requests
		if err := decoder.Decode(&output); err != nil {
			return nil, fmt.Errorf("read the output of execution %s: %w", id, err)
		}
		state.RestoreOutput(output)
	}
	retryable, reason := execution.Retryable(engine.Status(row.Status), row.BatchID != nil)
	return &executionStateOutput{Body: ExecutionState{
		ExecutionID: id.String(), Status: row.Status, Attempt: int(row.Attempt),
		StartedAt: stampOrNil(row.StartedAt), CompletedAt: stampOrNil(row.CompletedAt),
		Retryable: retryable, RetryReason: reason,
		Tasks: view.tasks(plan.Graph, state.Tasks),
	}}, nil
}

// taskView converts the tasks of an execution.
type taskView struct {
	plan       *workflow.Plan
	withOutput bool
}

func (v taskView) tasks(graph *workflow.Graph, states []engine.TaskState) []ExecutionTask {
	tasks := make([]ExecutionTask, len(graph.Tasks))
	for i, task := range graph.Tasks {
		tasks[i] = v.task(task, &states[i])
	}
	return tasks
}

// children returns the tasks of the stored nested runs of a task.
func (v taskView) children(task *workflow.Task, nested *engine.Nested) []ExecutionTask {
	graph := v.plan.NestedGraph(task.Nest)
	var children []ExecutionTask
	for _, frame := range nested.Frames {
		if graph == nil || len(frame.Tasks) != len(graph.Tasks) {
			continue // its workflow was deleted, or only its result is stored
		}
		run := v
		run.withOutput = v.withOutput && frame.Status != engine.StatusCompleted // a completed run has no outputs of tasks
		for _, child := range run.tasks(graph, frame.Tasks) {
			if task.Nest.Kind != workflow.NestOnce {
				child.Index = new(frame.Index)
			}
			children = append(children, child)
		}
	}
	return children
}

func (v taskView) task(task *workflow.Task, state *engine.TaskState) ExecutionTask {
	t := ExecutionTask{
		TaskID: task.ID, Name: task.Name, Type: task.Type, Status: string(state.Status),
		Attempt: state.Attempt, MaxAttempts: max(task.Retry.MaxAttempts, 1),
		StartedAt: stampOrAbsent(state.StartedAt), CompletedAt: stampOrAbsent(state.CompletedAt),
	}
	if t.StartedAt != nil && t.CompletedAt != nil {
		t.DurationMs = new(state.CompletedAt.Sub(state.StartedAt).Milliseconds())
	}
	if state.Status == engine.StatusWaiting {
		t.NextRetryAt = stampOrAbsent(state.WakeAt)
	}
	if state.Error != nil {
		t.Error = &ExecutionTaskError{Code: state.Error.Code, Message: state.Error.Message, StatusCode: state.Error.StatusCode}
	}
	if state.Nested != nil {
		t.Children = v.children(task, state.Nested)
	}
	if v.withOutput && state.Status == engine.StatusCompleted {
		t.Output = &JSON{state.Output}
	}
	return t
}
