package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"tranche/internal/engine"
	"tranche/internal/execution"
	"tranche/internal/fault"
	"tranche/internal/httpapi"
	"tranche/internal/idempotency"
	"tranche/internal/identity"
	"tranche/internal/workflow"
	"tranche/queries"
)

// Limits of an execute request.
const (
	executeBodyMax = 5 << 20 // bytes
	tagsMax        = 50
	tagTextMax     = 64 // characters
	waitSecondsMax = 60
)

// ExecutionResult is the result of an execution (contract A.2.3).
type ExecutionResult struct {
	ExecutionID  string            `json:"executionId" doc:"The id of the execution." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11"`
	IsSuccess    bool              `json:"isSuccess" doc:"true if the execution completed." example:"true"`
	StatusCode   int               `json:"statusCode" doc:"The status code of the result. 200 unless the end task sets another one. Failures have 422 (caused by the workflow), 502 (caused by an external service), 504 (timeout) or 500 (any other cause)." example:"200"`
	Output       RawObject         `json:"output" doc:"The output of the workflow. {} if the execution failed."`
	CustomOutput RawJSON           `json:"customOutput" doc:"The additional output of the end task, or null if it has none."`
	Attachments  []ExecutionFile   `json:"attachments" doc:"The files of the result. If a file does not exist, it is left out and notices has an entry with the code ATTACHMENT_MISSING."`
	Notes        []string          `json:"notes" doc:"The notes of the end task."`
	Notices      []ExecutionNotice `json:"notices" doc:"Remarks about the run, mainly failures after which it continued."`
	ErrorMessage *string           `json:"errorMessage" nullable:"true" doc:"The reason of the failure, or null if the execution did not fail."`
	ErrorSubCode string            `json:"errorSubCode,omitempty" enum:"EXTERNAL_SERVICE_ERROR,EXECUTION_TIMEOUT,INPUT_SCHEMA_MISMATCH" doc:"**[ext]** A more specific class of the failure."`
}

// ExecutionFile is a file of a result.
type ExecutionFile struct {
	URL           string     `json:"url" doc:"A signed URL of the file."`
	FileExtension string     `json:"fileExtension" doc:"The extension of the file name, without the dot." example:"pdf"`
	Metadata      JSONObject `json:"metadata" doc:"The metadata that the workflow attached to the file."`
}

// ExecutionNotice is a remark about a run (contract 5.8).
type ExecutionNotice struct {
	Code      string    `json:"code" doc:"A code for the event." example:"EXTERNAL_SERVICE_ERROR"`
	Level     string    `json:"level" enum:"info,warning,error" doc:"The severity." example:"warning"`
	Message   string    `json:"message" doc:"A description of the event for people."`
	TaskID    string    `json:"taskId,omitempty" doc:"The id of the task. For a task in a nested graph it is the path, such as each[3].score." example:"bureau"`
	Source    string    `json:"source,omitempty" doc:"The data source that the task reads. In a notice of a batch, the host." example:"bureau"`
	CreatedAt Timestamp `json:"createdAt" doc:"The time of the event."`
}

// ExecutionAccepted is an execution that has not ended (contract A.2.4).
type ExecutionAccepted struct {
	ExecutionID string    `json:"executionId" doc:"The id of the execution." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11"`
	Status      string    `json:"status" enum:"pending,running" doc:"pending if the execution is queued, running if it began while the request waited." example:"pending"`
	CreatedAt   Timestamp `json:"createdAt" doc:"The time at which it was accepted."`
}

type (
	executeInput struct {
		Alias      string `path:"alias" doc:"The alias of the workflow." example:"pre-qualification"`
		Version    string `path:"version" doc:"The version of the workflow. latest **[ext]** stands for the highest active version." example:"v1"`
		BorrowerID string `query:"borrower-id" maxLength:"255" doc:"**[ext]** The borrower's id. Defaults to the input's borrowerId if that is a string."`
		BillableID string `query:"billable-id" maxLength:"255" doc:"**[ext]** An id for billing, such as a contract number."`
		Tags       string `query:"tags" maxLength:"4000" doc:"**[ext]** A comma-separated list of at most 50 tags. A tag has at most 64 characters."`
		Test       bool   `query:"test" doc:"**[ext]** Marks the execution as a test. Executions of sandbox clients are always tests."`
		RescoreOf  string `query:"rescore-of" maxLength:"64" doc:"**[ext]** The id of the execution that this one re-evaluates."`
		Prefer     string `header:"Prefer" maxLength:"200" doc:"**[ext]** respond-async returns 202 immediately. wait=N returns 202 if there is no result after N seconds; N is from 1 to 60 (RFC 7240)."`
	}
	executeOutput struct {
		Status     int
		Preference string                              `header:"Preference-Applied" doc:"The preference of the request that was applied."`
		Replayed   string                              `header:"Idempotency-Replayed"`
		Body       httpapi.AnswerBody[ExecutionResult] // its JSON is an ExecutionAccepted if Status is 202
	}
)

func executeRoutes(s *Server) {
	httpapi.RegisterIdempotent(s.http, httpapi.Operation{
		ID: "executeWorkflow", Method: http.MethodPost, Path: "/v1/workflows/{alias}/{version}/execute", Tag: "Executions",
		Summary: "Execute a workflow",
		Description: "Runs an active workflow with the body as its input. The input must match the workflow's `inputSchema`.\n\n" +
			"A synchronous workflow returns 200 with the result of the execution, also if the execution failed. An asynchronous workflow, or a " +
			"request with `Prefer: respond-async`, returns 202 with the id of the execution. A workflow is synchronous unless its " +
			"`executionMode` is `async` or a task waits. If the client disconnects, the execution continues.",
		Scope: identity.ScopeExecutionsRun, Category: identity.LimitSingle, BodyMax: executeBodyMax,
		BodySchema:      &huma.Schema{Type: huma.TypeObject, AdditionalProperties: true, Description: "An object that matches the workflow's `inputSchema`. Numbers keep all their digits."},
		RequestExample:  `{"borrowerId":"B-1001","annualIncome":54000.00,"requestedAmount":12000.50}`,
		ResponseExample: `{"executionId":"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11","isSuccess":true,"statusCode":200,"output":{"decision":"approve","installment":391.53},"customOutput":null,"attachments":[],"notes":[],"notices":[],"errorMessage":null}`,
		Alternatives: map[int]httpapi.Alternative{http.StatusAccepted: {
			Description: "The execution is recorded and continues. Poll its status and get its output.",
			Body:        ExecutionAccepted{},
			Example:     `{"executionId":"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11","status":"pending","createdAt":"2026-11-21T02:09:25.123Z"}`,
		}},
		Errors: []int{http.StatusNotFound, http.StatusConflict, http.StatusUnprocessableEntity},
	}, httpapi.KeyConflicts{OtherRequest: fault.Unprocessable, InProgress: fault.Conflict}, s.execute, s.replayExecution)
}

// Resolve joins all Prefer headers into one list (RFC 9110, 5.3). It implements
// huma.Resolver.
func (in *executeInput) Resolve(ctx huma.Context) []error {
	r, _ := humachi.Unwrap(ctx)
	in.Prefer = strings.Join(r.Header.Values("Prefer"), ",")
	return nil
}

// execute runs a workflow for one borrower.
func (s *Server) execute(ctx context.Context, in *executeInput) (*executeOutput, error) {
	prefer, err := parsePrefer(in.Prefer)
	if err != nil {
		return nil, err
	}
	input, _ := httpapi.RequestBody(ctx).(map[string]any)
	request, err := s.executionRequest(ctx, in)
	if err != nil {
		return nil, err
	}
	e, err := s.runOrStart(ctx, in, input, request, prefer)
	if e.ID != uuid.Nil && !errors.Is(err, idempotency.ErrTaken) { // ErrTaken rolled the execution back
		httpapi.NoteExecution(ctx, e.ID)
	}
	if err != nil {
		return nil, err
	}
	out := &executeOutput{Status: http.StatusOK, Preference: prefer.applied()}
	if e.Result == nil {
		out.Status = http.StatusAccepted
		out.Body.JSON, err = s.acceptExecution(ctx, &e)
		return out, err
	}
	out.Body.Value, err = s.executionResult(ctx, e.ID, e.Result)
	return out, err
}

// acceptExecution returns the body of a 202 and stores it as the answer for the
// request's Idempotency-Key. If the execution has ended since, its result is the
// answer already; the error is then idempotency.ErrTaken, so that it is replayed.
func (s *Server) acceptExecution(ctx context.Context, e *execution.Execution) (json.RawMessage, error) {
	text, err := httpapi.EncodeJSON(executionAccepted(e))
	key, ok := httpapi.IdempotencyKey(ctx)
	if err != nil || !ok || e.Status == engine.StatusPending { // a pending execution has its answer stored with its record
		return text, err
	}
	return text, key.Settle(ctx, s.config.Pool, e.ID, idempotency.Answer{Status: http.StatusAccepted, Body: text})
}

// replayExecution answers a repeated request: with the stored 202, or with the
// result of the execution.
func (s *Server) replayExecution(ctx context.Context, in *executeInput, stored idempotency.Stored) (*executeOutput, error) {
	out := &executeOutput{Status: http.StatusOK, Replayed: httpapi.Replayed}
	if stored.Result == nil {
		out.Status, out.Body.JSON = stored.Answer.Status, stored.Answer.Body
	} else {
		if err := s.http.AcquireAnswer(ctx, len(stored.Result)); err != nil {
			return nil, err
		}
		result, err := execution.ReadResult(stored.Result)
		if err != nil {
			return nil, err
		}
		if out.Body.Value, err = s.executionResult(ctx, stored.ExecutionID, result); err != nil {
			return nil, err
		}
	}
	if prefer, err := parsePrefer(in.Prefer); err == nil && prefer.async == (out.Status == http.StatusAccepted) {
		out.Preference = prefer.applied() // the stored answer has the form that the repeated request prefers
	}
	return out, nil
}

// runOrStart finds the workflow, checks the input and runs it. It tries again once if
// the cached workflow is no longer active.
func (s *Server) runOrStart(
	ctx context.Context, in *executeInput, input map[string]any, request execution.Request, prefer preference,
) (execution.Execution, error) {
	for again := true; ; again = false {
		w, plan, err := s.config.Catalog.Resolve(ctx, request.TenantID, in.Alias, in.Version)
		if err != nil {
			return execution.Execution{}, err
		}
		filled, faults := execution.CheckInput(plan, input)
		if len(faults) > 0 {
			nameWholeBody(faults)
			return execution.Execution{}, fault.New(fault.Unprocessable, "the input does not match the workflow's inputSchema").
				WithSubCode(fault.InputSchemaMismatch).WithDetails(faults...)
		}
		request.WorkflowID, request.Plan, request.Input = w.ID, plan, filled
		if request.BorrowerID == nil {
			request.BorrowerID = execution.BorrowerOf(filled)
		}
		isAsync := prefer.async || plan.Mode == workflow.ModeAsync
		request.Recorded = storeKey(ctx, isAsync)
		var e execution.Execution
		if isAsync {
			e, err = s.config.Executions.Start(ctx, request)
		} else {
			e, err = s.config.Executions.Run(ctx, request, prefer.wait)
		}
		if again && errors.Is(err, execution.ErrNotActive) {
			s.config.Catalog.Forget(w.ID)
			continue
		}
		return e, err
	}
}

// storeKey returns the function that stores the request's Idempotency-Key in the
// transaction that records the execution. An asynchronous execution is stored with
// its answer; otherwise the result will be the answer. It is nil without a key.
func storeKey(ctx context.Context, isAsync bool) func(context.Context, pgx.Tx, execution.Execution) error {
	key, ok := httpapi.IdempotencyKey(ctx)
	if !ok {
		return nil
	}
	return func(ctx context.Context, tx pgx.Tx, e execution.Execution) error {
		if !isAsync {
			return key.TakeForExecutionTx(ctx, tx, e.ID)
		}
		text, err := httpapi.EncodeJSON(executionAccepted(&e))
		if err != nil {
			return err
		}
		return key.TakeTx(ctx, tx, idempotency.Answer{Status: http.StatusAccepted, Body: text})
	}
}

func executionAccepted(e *execution.Execution) *ExecutionAccepted {
	return &ExecutionAccepted{ExecutionID: e.ID.String(), Status: string(e.Status), CreatedAt: stamp(e.CreatedAt)}
}

// executionRequest returns the request with all parameters except the input.
func (s *Server) executionRequest(ctx context.Context, in *executeInput) (execution.Request, error) {
	p := httpapi.Principal(ctx)
	r := execution.Request{
		TenantID: p.TenantID, PrincipalID: p.ClientID.String(), IsTest: in.Test || p.IsSandbox,
		BorrowerID: queries.Optional(in.BorrowerID), BillableID: queries.Optional(in.BillableID),
	}
	var err error
	if r.Tags, err = parseTags(in.Tags); err != nil {
		return r, err
	}
	if in.RescoreOf != "" {
		r.RescoreOf, err = s.rescored(ctx, in.RescoreOf)
	}
	return r, err
}

// rescored parses the parameter rescore-of: the id of an execution of the tenant.
func (s *Server) rescored(ctx context.Context, text string) (*uuid.UUID, error) {
	id, err := httpapi.ParseID(text, "execution")
	exists := false
	if err == nil {
		exists, err = queries.New().ExecutionExists(ctx, s.config.Pool, queries.ExecutionExistsParams{TenantID: httpapi.Principal(ctx).TenantID, ID: id})
		if err != nil {
			return nil, err
		}
	}
	if !exists {
		return nil, fault.InvalidRequest(fault.Detail{Field: "rescore-of", Message: "must be the id of an execution of the tenant"})
	}
	return &id, nil
}

// nameWholeBody sets the field of details about the input as a whole.
func nameWholeBody(details []fault.Detail) {
	for i := range details {
		if details[i].Field == "" {
			details[i].Field = httpapi.WholeBody
		}
	}
}

// parseTags parses the parameter tags, a comma-separated list.
func parseTags(text string) ([]string, error) {
	var tags []string
	for tag := range strings.SplitSeq(text, ",") {
		tag = strings.TrimSpace(tag)
		if tag == "" || slices.Contains(tags, tag) {
			continue
		}
		tags = append(tags, tag)
		if len(tags) > tagsMax || utf8.RuneCountInString(tag) > tagTextMax {
			return nil, fault.InvalidRequest(fault.Detail{
				Field: "tags", Message: "must have at most " + strconv.Itoa(tagsMax) + " tags of at most " + strconv.Itoa(tagTextMax) + " characters",
			})
		}
	}
	return tags, nil
}

// preference is the content of a Prefer header (RFC 7240).
type preference struct {
	async bool
	wait  time.Duration // 0 means no limit
}

// parsePrefer parses the header. It ignores unknown and repeated preferences
// (RFC 7240, 2).
func parsePrefer(header string) (preference, error) {
	var p preference
	for part := range strings.SplitSeq(header, ",") {
		part, _, _ = strings.Cut(part, ";") // parameters are ignored
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		switch strings.ToLower(strings.TrimSpace(name)) {
		case "respond-async":
			p.async = true
		case "wait":
			if p.wait > 0 {
				continue
			}
			seconds, err := strconv.Atoi(strings.Trim(strings.TrimSpace(value), `"`))
			if err != nil || seconds < 1 || seconds > waitSecondsMax {
				return p, fault.InvalidRequest(fault.Detail{Field: "Prefer", Message: "wait must be a whole number of seconds from 1 to 60"})
			}
			p.wait = time.Duration(seconds) * time.Second
		}
	}
	return p, nil
}

func (p preference) applied() string {
	switch {
	case p.async:
		return "respond-async"
	case p.wait > 0:
		return "wait=" + strconv.Itoa(int(p.wait.Seconds()))
	default:
		return ""
	}
}

// executionResult returns the answer for a result.
func (s *Server) executionResult(ctx context.Context, id uuid.UUID, r *execution.Result) (ExecutionResult, error) {
	files, notices, err := s.resultFiles(ctx, id, r.Attachments)
	return ExecutionResult{
		ExecutionID: id.String(), IsSuccess: r.IsSuccess, StatusCode: r.StatusCode,
		Output: RawObject(r.Output), CustomOutput: RawJSON(r.CustomOutput),
		Attachments: files, Notes: r.Notes, Notices: executionNotices(slices.Concat(r.Notices, notices)),
		ErrorMessage: r.ErrorMessage, ErrorSubCode: string(r.ErrorSubCode),
	}, err
}

func executionNotices(notices []workflow.Notice) []ExecutionNotice {
	answer := make([]ExecutionNotice, len(notices))
	for i, n := range notices {
		answer[i] = ExecutionNotice{
			Code: n.Code, Level: string(n.Level), Message: n.Message, TaskID: n.TaskID, Source: n.Source, CreatedAt: stamp(n.CreatedAt),
		}
	}
	return answer
}
