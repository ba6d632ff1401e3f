package api

import (
	"context"
	"net/http"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	batches "tranche/internal/batch"
	"tranche/internal/fault"
	"tranche/internal/httpapi"
	"tranche/internal/identity"
)

// BatchRetryRequest is the body of a batch's retry (section 4.4).
type BatchRetryRequest struct {
	RetryMode           string      `json:"retryMode" enum:"pre_processing,post_processing,failed_items,unsuccessful_sources_items,failed_and_unsuccessful_sources_items" doc:"What to repeat: reading the items; writing the output; the items that failed or were cancelled; the completed ones of which a data source failed; or both groups of items." example:"failed_items"`
	UsePreviousInputs   *bool       `json:"usePreviousInputs,omitempty" default:"true" doc:"false with retryMode pre_processing and a new source of items: the files, items, packages and customInput given here replace all of the earlier ones."`
	AttachmentFileNames []string    `json:"attachmentFileNames,omitempty" maxItems:"100" doc:"Stored names of uploaded files of items."`
	WorkflowInput       *BatchInput `json:"workflowInput,omitempty" doc:"Items, what they share, and packages of items."`
}

// BatchRetried is a retry that was accepted (decisions 6.9).
type BatchRetried struct {
	ExecutionBatchID string `json:"executionBatchId" doc:"The batch's id, the same as before." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11"`
	RetryMode        string `json:"retryMode" doc:"What is repeated." example:"failed_items"`
	Attempt          int    `json:"attempt" doc:"Which attempt of the batch this is." example:"2"`
	ItemsToRetry     int    `json:"itemsToRetry" doc:"How many items run again; 0 where a stage is repeated. Those whose input does not match are counted and fail again." example:"39"`
	Status           string `json:"status" enum:"pending,processing,post_processing" doc:"Where the batch stands now." example:"processing"`
}

type (
	batchRetryInput struct {
		ID   string `path:"batchId" doc:"The batch's id." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11"`
		Body BatchRetryRequest
	}
)

func batchControlRoutes(s *Server) {
	httpapi.RegisterIdempotent(s.http, httpapi.Operation{
		ID: "retryBatch", Method: http.MethodPost, Path: "/v1/execution-batches/{batchId}/retry", Tag: "Batches",
		Summary: "Retry a batch",
		Description: "Gives a batch that has ended another attempt under the same id. pre_processing is possible from pre_processing_failed, post_processing from complete and post_processing_failed, " +
			"the modes of items from complete, cancelled and post_processing_failed. Items that run again keep their executions, which get another attempt: completed tasks keep their results. " +
			"pre_processing reads the items anew, of which none has run: they get executions of their own, and those of the items that were refused before are gone. " +
			"A batch that was cancelled before all of its items were read can not be retried. " +
			"The output package of the earlier attempt stays readable.",
		Scope: identity.ScopeBatchesRun, Category: identity.LimitBatch, BodyMax: executeBatchBodyMax, Status: http.StatusAccepted,
		RequestExample:  `{"retryMode":"failed_items","usePreviousInputs":true}`,
		ResponseExample: `{"executionBatchId":"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11","retryMode":"failed_items","attempt":2,"itemsToRetry":39,"status":"processing"}`,
		Errors:          []int{http.StatusNotFound, http.StatusConflict},
	}, httpapi.KeyConflicts{OtherRequest: fault.Unprocessable, InProgress: fault.Conflict}, s.retryBatch, httpapi.Replay)
	for _, o := range []struct {
		id, verb, summary, description string
		do                             func(ctx context.Context, tenantID, id uuid.UUID) error
	}{
		{"pauseBatch", "pause", "Pause a batch", "Items that run go on and no more begin, until the batch is resumed.", s.config.Batches.Pause},
		{"resumeBatch", "resume", "Resume a batch", "A paused batch goes on in the phase it left.", s.config.Batches.Resume},
		{"cancelBatch", "cancel", "Cancel a batch", "Ends a batch that has not ended: items that have not begun or wait are cancelled, and count as failed; those that run end by themselves. " +
			"The output of all is still written. The status becomes cancelled when nothing is pending and the output is there; until then cancelRequestedAt **[ext]** tells. To ask again changes nothing.", s.config.Batches.Cancel},
	} {
		httpapi.Register(s.http, httpapi.Operation{
			ID: o.id, Method: http.MethodPost, Path: "/v1/execution-batches/{batchId}/" + o.verb, Tag: "Batches",
			Summary: o.summary, Description: "**[ext]** " + o.description,
			Scope: identity.ScopeBatchesRun, Category: identity.LimitBatch, ResponseExample: batchExample,
			Errors: []int{http.StatusNotFound, http.StatusConflict},
		}, s.controlBatch(o.do))
	}
}

// controlBatch does something to a batch and answers its record.
func (s *Server) controlBatch(do func(ctx context.Context, tenantID, id uuid.UUID) error) func(context.Context, *batchInput) (*batchOutput, error) {
	return func(ctx context.Context, in *batchInput) (*batchOutput, error) {
		id, err := httpapi.ParseID(in.ID, "batch")
		if err != nil {
			return nil, err
		}
		if err := s.checkSandboxBatch(ctx, id); err != nil {
			return nil, err
		}
		if err := do(ctx, httpapi.Principal(ctx).TenantID, id); err != nil {
			return nil, err
		}
		return s.getBatch(ctx, in)
	}
}

func (s *Server) retryBatch(ctx context.Context, in *batchRetryInput) (*httpapi.Answer[BatchRetried], error) {
	id, err := httpapi.ParseID(in.ID, "batch")
	if err != nil {
		return nil, err
	}
	sources, err := retrySources(ctx, &in.Body)
	if err != nil {
		return nil, err
	}
	if err := s.checkSandboxBatch(ctx, id); err != nil {
		return nil, err
	}
	mode := batches.RetryMode(in.Body.RetryMode)
	retried, err := s.config.Batches.Retry(ctx, batches.RetryRequest{
		TenantID: httpapi.Principal(ctx).TenantID, ID: id, Mode: mode, Sources: sources,
		Recorded: func(ctx context.Context, tx pgx.Tx, r *batches.Retried) error {
			return httpapi.KeepTx(ctx, tx, http.StatusAccepted, batchRetried(id, mode, r))
		},
	})
	if err != nil {
		return nil, err
	}
	return httpapi.NewAnswer(batchRetried(id, mode, retried)), nil
}

// retrySources are the sources that replace those of the batch; nil where they
// stay (decisions 6.9).
func retrySources(ctx context.Context, body *BatchRetryRequest) (*batches.Request, error) {
	sources := batchSources(ctx, body.AttachmentFileNames, body.WorkflowInput)
	usePrevious := body.UsePreviousInputs == nil || *body.UsePreviousInputs
	hasNew := sources.HasSources() || sources.CustomInput != nil
	switch {
	case usePrevious && hasNew:
		return nil, fault.InvalidRequest(fault.Detail{Field: "usePreviousInputs", Message: "must be false where new inputs are given"})
	case usePrevious:
		return nil, nil
	case !sources.HasSources():
		return nil, fault.InvalidRequest(fault.Detail{Field: "usePreviousInputs", Message: "must be true where no new source of items is given"})
	default:
		return sources, nil
	}
}

func batchRetried(id uuid.UUID, mode batches.RetryMode, r *batches.Retried) BatchRetried {
	return BatchRetried{
		ExecutionBatchID: id.String(), RetryMode: string(mode), Attempt: r.Attempt, ItemsToRetry: r.ItemsToRetry, Status: string(r.Status),
	}
}
