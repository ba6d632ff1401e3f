package api

import (
	"context"
	"net/http"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	batches "tranche/internal/batch"
	"tranche/internal/catalog"
	"tranche/internal/fault"
	"tranche/internal/httpapi"
	"tranche/internal/identity"
)

// executeBatchBodyMax is the limit of the bodies of batches in bytes.
const executeBatchBodyMax = 20 << 20

// BatchRequest is the body of execute-batch (contract A.4.4).
type BatchRequest struct {
	Label               string      `json:"label,omitempty" maxLength:"200" doc:"A name for people. Defaults to the alias of the workflow." example:"November applications"`
	Description         string      `json:"description,omitempty" maxLength:"2000" doc:"A description of the batch."`
	AttachmentFileNames []string    `json:"attachmentFileNames,omitempty" maxItems:"100" doc:"The fileName values of uploaded files that contain items."`
	WorkflowInput       *BatchInput `json:"workflowInput,omitempty" doc:"Items, input that all items share, and packages of items."`
}

// BatchInput is the workflowInput of a batch.
type BatchInput struct {
	Items         []JSONObject `json:"items,omitempty" doc:"The inputs of the items. An input that does not match the workflow's inputSchema is recorded as a failed item."`
	CustomInput   *JSONObject  `json:"customInput,omitempty" doc:"An object that the expressions of every item can read as custom."`
	RawPackageIDs []string     `json:"rawPackageIds,omitempty" maxItems:"100" doc:"The ids of packages of items. A raw package contributes its files, an output package its failed items."`
}

// BatchStarted is an accepted batch.
type BatchStarted struct {
	ExecutionBatchID string    `json:"executionBatchId" doc:"The id of the batch." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11"`
	WorkflowID       string    `json:"workflowId" doc:"The id of the executed workflow." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a10"`
	WorkflowAlias    string    `json:"workflowAlias" doc:"The alias of the workflow." example:"pre-qualification"`
	WorkflowVersion  string    `json:"workflowVersion" doc:"The version of the workflow." example:"v1"`
	ExecutedAt       Timestamp `json:"executedAt" doc:"The time at which the batch was accepted."`
	RawPackageID     string    `json:"rawPackageId,omitempty" doc:"**[ext]** The id of the package of the uploaded files. Absent if there are no files." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a12"`
}

// BatchRecord is a batch (contract A.2.10).
type BatchRecord struct {
	ExecutionBatchID string            `json:"executionBatchId" doc:"The id of the batch." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11"`
	WorkflowID       string            `json:"workflowId" doc:"The id of the executed workflow." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a10"`
	WorkflowAlias    string            `json:"workflowAlias" doc:"The alias of the workflow." example:"pre-qualification"`
	WorkflowVersion  string            `json:"workflowVersion" doc:"The version of the workflow." example:"v1"`
	Label            string            `json:"label" doc:"A name for people." example:"November applications"`
	Description      string            `json:"description,omitempty" doc:"**[ext]** The description of the batch."`
	Status           string            `json:"status" enum:"pending,pre_processing,pre_processing_complete,pre_processing_failed,processing,post_processing,post_processing_failed,complete,paused,cancelled" doc:"The current status. complete, cancelled and the statuses that end in _failed are final." example:"complete"`
	State            BatchState        `json:"state" doc:"The progress of the batch."`
	Outputs          BatchOutputs      `json:"outputs" doc:"The results of the phases of the batch."`
	RawPackageID     string            `json:"rawPackageId,omitempty" doc:"**[ext]** The id of the package of the uploaded files. Absent if there are no files."`
	Notices          []ExecutionNotice `json:"notices" doc:"**[ext]** Problems of the batch. TARGET_UNREACHABLE: no connection to the host in source is possible; items that need it wait and are retried. OUTPUT_FAILED: the output could not be written."`
	Attempt          int               `json:"attempt" doc:"**[ext]** The number of the attempt. It starts at 1 and increases with every retry." example:"1"`
	CancelRequested  *Timestamp        `json:"cancelRequestedAt,omitempty" doc:"**[ext]** The time at which cancellation was requested. Absent if it was not requested, and after the status has become cancelled."`
	CreatedAt        Timestamp         `json:"createdAt" doc:"The time at which it was accepted."`
	UpdatedAt        Timestamp         `json:"updatedAt" doc:"The time of the last change."`
}

// BatchState is the progress of a batch.
type BatchState struct {
	Summary BatchSummary `json:"batchItemsExecutionsSummary" doc:"The number of items by outcome. total is always the sum of completed, failed and pending."`
}

// BatchSummary counts items.
type BatchSummary struct {
	Total               int `json:"total" doc:"The number of items that have been read." example:"2000"`
	Completed           int `json:"completed" doc:"The number of items whose execution completed." example:"1961"`
	Failed              int `json:"failed" doc:"The number of items whose execution failed or whose input does not match the inputSchema." example:"39"`
	Pending             int `json:"pending" doc:"The number of items that have not ended." example:"0"`
	UnsuccessfulSources int `json:"unsuccessfulSources" doc:"The number of completed items for which a data source failed." example:"4"`
}

// BatchOutputs are the results of the phases of a batch.
type BatchOutputs struct {
	PreProcessing  BatchPreProcessingOutput  `json:"wBatchPreProcessingOutput" doc:"The result of reading and validating the items."`
	PostProcessing BatchPostProcessingOutput `json:"wBatchPostProcessingOutput" doc:"The result of writing the output package."`
}

// BatchPreProcessingOutput is the result of reading the items.
type BatchPreProcessingOutput struct {
	Result              string `json:"result" doc:"pending, valid, partially_valid, or failed: followed by the reason." example:"partially_valid"`
	ValidatedItemsCount int    `json:"validatedItemsCount" doc:"The number of items whose input matches the workflow's inputSchema." example:"1970"`
}

// BatchPostProcessingOutput is the result of writing the output.
type BatchPostProcessingOutput struct {
	ProcessedOutputPackageID *string  `json:"processedOutputPackageId" nullable:"true" doc:"The id of the output package of this attempt, or null until the package is complete." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a13"`
	EarlierOutputPackageIDs  []string `json:"earlierOutputPackageIds,omitempty" doc:"**[ext]** The ids of the output packages of earlier attempts, oldest first."`
}

type (
	executeBatchInput struct {
		Alias   string `path:"alias" doc:"The alias of the workflow." example:"pre-qualification"`
		Version string `path:"version" doc:"The version of the workflow. latest **[ext]** stands for the highest active version." example:"v1"`
		Body    BatchRequest
	}
	batchInput struct {
		ID string `path:"batchId" doc:"The id of the batch." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11"`
	}
	batchOutput struct{ Body BatchRecord }

	batchListInput struct {
		httpapi.PageInput
		PerPage       int    `query:"per-page" minimum:"1" maximum:"100" default:"10" doc:"The number of batches on a page."`
		Status        string `query:"status" enum:"pending,pre_processing,pre_processing_complete,pre_processing_failed,processing,post_processing,post_processing_failed,complete,paused,cancelled" doc:"Returns only batches with this status."`
		WorkflowAlias string `query:"workflow-alias" maxLength:"64" doc:"Returns only batches of the workflow with this alias, in any version."`
	}
	batchListOutput struct {
		Body struct {
			Data       []BatchRecord      `json:"data" doc:"The batches of the page."`
			Pagination httpapi.Pagination `json:"pagination" doc:"The position of the page in the list."`
		}
	}
)

const batchExample = `{"executionBatchId":"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11","workflowId":"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a10","workflowAlias":"pre-qualification","workflowVersion":"v1","label":"November applications","status":"complete","state":{"batchItemsExecutionsSummary":{"total":2000,"completed":1961,"failed":39,"pending":0,"unsuccessfulSources":4}},"outputs":{"wBatchPreProcessingOutput":{"result":"partially_valid","validatedItemsCount":1970},"wBatchPostProcessingOutput":{"processedOutputPackageId":"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a13"}},"notices":[],"attempt":1,"createdAt":"2026-11-21T02:09:25.123Z","updatedAt":"2026-11-21T02:09:31.904Z"}`

func batchRoutes(s *Server) {
	httpapi.RegisterIdempotent(s.http, httpapi.Operation{
		ID: "executeBatch", Method: http.MethodPost, Path: "/v1/workflows/{alias}/{version}/execute-batch", Tag: "Batches",
		Summary: "Execute a workflow for many items",
		Description: "Starts a batch. Its items come from `workflowInput.items`, then from the files in their order, then from the packages. At least " +
			"one of these sources is required. Each item becomes an execution of its own. Items that do not match the `inputSchema` fail, and " +
			"all others continue. Poll the batch until its status is final.",
		Scope: identity.ScopeBatchesRun, Category: identity.LimitBatch, BodyMax: executeBatchBodyMax, Status: http.StatusAccepted,
		RequestExample:  `{"label":"November applications","attachmentFileNames":["0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11.csv"],"workflowInput":{"customInput":{"campaign":"november"}}}`,
		ResponseExample: `{"executionBatchId":"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11","workflowId":"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a10","workflowAlias":"pre-qualification","workflowVersion":"v1","executedAt":"2026-11-21T02:09:25.123Z","rawPackageId":"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a12"}`,
		Errors:          []int{http.StatusNotFound, http.StatusConflict, http.StatusUnprocessableEntity},
	}, httpapi.KeyConflicts{OtherRequest: fault.Unprocessable, InProgress: fault.Conflict}, s.executeBatch, httpapi.Replay)
	httpapi.Register(s.http, httpapi.Operation{
		ID: "getBatch", Method: http.MethodGet, Path: "/v1/execution-batches/{batchId}", Tag: "Batches",
		Summary:     "Get a batch",
		Description: "Returns the status of a batch, the number of items by outcome, and the ids of its output packages.",
		Scope:       identity.ScopeBatchesRead, Category: identity.LimitPolling,
		ResponseExample: batchExample,
		Errors:          []int{http.StatusNotFound},
	}, s.getBatch)
	httpapi.Register(s.http, httpapi.Operation{
		ID: "listBatches", Method: http.MethodGet, Path: "/v1/execution-batches", Tag: "Batches",
		Summary:     "List batches",
		Description: "**[ext]** Returns the batches of the tenant, newest first.",
		Scope:       identity.ScopeBatchesRead, Category: identity.LimitPolling,
		ResponseExample: `{"data":[` + batchExample + `],"pagination":{"page":1,"perPage":10,"total":1,"totalPages":1}}`,
	}, s.listBatches)
	batchItemRoutes(s)
	batchControlRoutes(s)
}

func (s *Server) executeBatch(ctx context.Context, in *executeBatchInput) (*httpapi.Answer[BatchStarted], error) {
	request := batchSources(ctx, in.Body.AttachmentFileNames, in.Body.WorkflowInput)
	request.Alias, request.Version, request.Label, request.Description = in.Alias, in.Version, in.Body.Label, in.Body.Description
	request.Recorded = func(ctx context.Context, tx pgx.Tx, started *batches.Started) error {
		return httpapi.KeepTx(ctx, tx, http.StatusAccepted, batchStarted(started))
	}
	started, err := s.config.Batches.Start(ctx, *request)
	if err != nil {
		return nil, err
	}
	return httpapi.NewAnswer(batchStarted(started)), nil
}

// batchSources returns a request with the sources of a body.
func batchSources(ctx context.Context, files []string, input *BatchInput) *batches.Request {
	p := httpapi.Principal(ctx)
	request := &batches.Request{TenantID: p.TenantID, PrincipalID: p.ClientID.String(), IsTest: p.IsSandbox, Files: files}
	if input == nil {
		return request
	}
	request.Packages = input.RawPackageIDs
	for _, item := range input.Items {
		request.Items = append(request.Items, item.Members)
	}
	if input.CustomInput != nil {
		request.CustomInput = input.CustomInput.Members
	}
	return request
}

func batchStarted(started *batches.Started) BatchStarted {
	return BatchStarted{
		ExecutionBatchID: started.ID.String(), WorkflowID: started.Workflow.ID.String(), WorkflowAlias: started.Workflow.Alias,
		WorkflowVersion: catalog.VersionName(started.Workflow.Version), ExecutedAt: stamp(started.ExecutedAt),
		RawPackageID: idOrEmpty(started.RawPackageID),
	}
}

func (s *Server) getBatch(ctx context.Context, in *batchInput) (*batchOutput, error) {
	id, err := httpapi.ParseID(in.ID, "batch")
	if err != nil {
		return nil, err
	}
	b, err := s.config.Batches.Get(ctx, httpapi.Principal(ctx).TenantID, id)
	if err != nil {
		return nil, err
	}
	return &batchOutput{Body: batchRecord(b)}, nil
}

func (s *Server) listBatches(ctx context.Context, in *batchListInput) (*batchListOutput, error) {
	filter := batches.Filter{Status: batches.Status(in.Status), WorkflowAlias: in.WorkflowAlias}
	found, total, err := s.config.Batches.List(ctx, httpapi.Principal(ctx).TenantID, filter, in.Window(in.PerPage))
	if err != nil {
		return nil, err
	}
	out := &batchListOutput{}
	found, out.Body.Pagination = httpapi.Paginate(&in.PageInput, in.PerPage, found, total, func(b *batches.Batch) uuid.UUID { return b.ID })
	out.Body.Data = make([]BatchRecord, len(found))
	for i, b := range found {
		out.Body.Data[i] = batchRecord(b)
	}
	return out, nil
}

func batchRecord(b *batches.Batch) BatchRecord {
	r := BatchRecord{
		ExecutionBatchID: b.ID.String(), WorkflowID: b.WorkflowID.String(), WorkflowAlias: b.WorkflowAlias,
		WorkflowVersion: catalog.VersionName(b.WorkflowVersion), Label: b.Label, Description: b.Description, Status: string(b.Status),
		State: BatchState{Summary: BatchSummary{
			Total: b.Total, Completed: b.Completed, Failed: b.Failed, Pending: b.Pending(), UnsuccessfulSources: b.SourceFailed,
		}},
		Outputs: BatchOutputs{
			PreProcessing: BatchPreProcessingOutput{Result: b.PreProcessingResult, ValidatedItemsCount: b.ValidatedItems},
		},
		RawPackageID: idOrEmpty(b.RawPackageID), Notices: executionNotices(b.Notices), Attempt: b.Attempt,
		CreatedAt: stamp(b.CreatedAt), UpdatedAt: stamp(b.UpdatedAt),
	}
	if b.Status != batches.StatusCancelled {
		r.CancelRequested = stampOrNil(b.CancelRequestedAt)
	}
	for _, id := range b.EarlierPackageIDs {
		r.Outputs.PostProcessing.EarlierOutputPackageIDs = append(r.Outputs.PostProcessing.EarlierOutputPackageIDs, id.String())
	}
	if b.OutputPackageID != nil {
		r.Outputs.PostProcessing.ProcessedOutputPackageID = new(b.OutputPackageID.String())
	}
	return r
}

func idOrEmpty(id *uuid.UUID) string {
	if id == nil {
		return ""
	}
	return id.String()
}
