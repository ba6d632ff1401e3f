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

// BatchRetryRequest is the body of the retry of a batch (contract A.4.4).
type BatchRetryRequest struct {
	RetryMode           string      `json:"retryMode" enum:"pre_processing,post_processing,failed_items,unsuccessful_sources_items,failed_and_unsuccessful_sources_items" doc:"The part of the batch to repeat. pre_processing reads the items again. post_processing writes the output again. failed_items runs the items that failed or were cancelled. unsuccessful_sources_items runs the completed items for which a data source failed. failed_and_unsuccessful_sources_items runs both groups." example:"failed_items"`
	UsePreviousInputs   *bool       `json:"usePreviousInputs,omitempty" default:"true" doc:"Set it to false to replace the items. This requires the retryMode pre_processing and a new source of items. The files, items, packages and customInput of this request then replace all earlier ones."`
	AttachmentFileNames []string    `json:"attachmentFileNames,omitempty" maxItems:"100" doc:"The fileName values of uploaded files that contain items."`
	WorkflowInput       *BatchInput `json:"workflowInput,omitempty" doc:"Items, input that all items share, and packages of items."`
}

// BatchRetried is an accepted retry (contract 6.9).
type BatchRetried struct {
	ExecutionBatchID string `json:"executionBatchId" doc:"The id of the batch. A retry does not change it." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11"`
	RetryMode        string `json:"retryMode" doc:"The part of the batch that is repeated." example:"failed_items"`
	Attempt          int    `json:"attempt" doc:"The number of the new attempt." example:"2"`
	ItemsToRetry     int    `json:"itemsToRetry" doc:"The number of items that run again. 0 if a phase is repeated. Items whose input does not match the inputSchema are included and fail again." example:"39"`
	Status           string `json:"status" enum:"pending,processing,post_processing" doc:"The status of the batch now." example:"processing"`
}

type (
	batchRetryInput struct {
		ID   string `path:"batchId" doc:"The id of the batch." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11"`
		Body BatchRetryRequest
	}
)

func batchControlRoutes(s *Server) {
	httpapi.RegisterIdempotent(s.http, httpapi.Operation{
		ID: "retryBatch", Method: http.MethodPost, Path: "/v1/execution-batches/{batchId}/retry", Tag: "Batches",
		Summary: "Retry a batch",
		Description: "Starts another attempt of a batch that has ended. The batch keeps its id.\n\n" +
			"The mode `pre_processing` requires the status `pre_processing_failed`. The mode `post_processing` requires `complete` or " +
			"`post_processing_failed`. The modes that run items again require `complete`, `cancelled` or `post_processing_failed`. A batch " +
			"that was cancelled before all of its items were read cannot be retried.\n\n" +
			"Items that run again keep their executions, which get another attempt: completed tasks keep their results. `pre_processing` reads " +
			"all items again. None of them has run; they get new executions, and the executions of items that were rejected before are " +
			"deleted. The output package of the previous attempt stays available.",
		Scope: identity.ScopeBatchesRun, Category: identity.LimitBatch, BodyMax: executeBatchBodyMax, Status: http.StatusAccepted,
		RequestExample:  `{"retryMode":"failed_items","usePreviousInputs":true}`,
		ResponseExample: `{"executionBatchId":"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11","retryMode":"failed_items","attempt":2,"itemsToRetry":39,"status":"processing"}`,
		Errors:          []int{http.StatusNotFound, http.StatusConflict},
	}, httpapi.KeyConflicts{OtherRequest: fault.Unprocessable, InProgress: fault.Conflict}, s.retryBatch, httpapi.Replay)
	for _, o := range []struct {
		id, verb, summary, description string
		do                             func(ctx context.Context, tenantID, id uuid.UUID) error
	}{
		{"pauseBatch", "pause", "Pause a batch", "Items in progress continue, and no further items begin until the batch is resumed.", s.config.Batches.Pause},
		{"resumeBatch", "resume", "Resume a batch", "A paused batch continues in the phase in which it was paused.", s.config.Batches.Resume},
		{"cancelBatch", "cancel", "Cancel a batch", "Cancels a batch that has not ended. Items that have not begun or that wait are cancelled and count as failed. Items in progress run to their end. " +
			"The output of all items is still written. The status becomes `cancelled` when no item is pending and the output is complete; " +
			"until then `cancelRequestedAt` **[ext]** is present. A second request changes nothing.", s.config.Batches.Cancel},
	} {
		httpapi.Register(s.http, httpapi.Operation{
			ID: o.id, Method: http.MethodPost, Path: "/v1/execution-batches/{batchId}/" + o.verb, Tag: "Batches",
			Summary: o.summary, Description: "**[ext]** " + o.description,
			Scope: identity.ScopeBatchesRun, Category: identity.LimitBatch, ResponseExample: batchExample,
			Errors: []int{http.StatusNotFound, http.StatusConflict},
		}, s.controlBatch(o.do))
	}
}

// controlBatch returns the handler that changes a batch with do and answers its record.
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

// retrySources returns the sources that replace those of the batch, or nil if they stay
// (contract 6.9).
func retrySources(ctx context.Context, body *BatchRetryRequest) (*batches.Request, error) {
	sources := batchSources(ctx, body.AttachmentFileNames, body.WorkflowInput)
	usePrevious := body.UsePreviousInputs == nil || *body.UsePreviousInputs
	hasNew := sources.HasSources() || sources.CustomInput != nil
	switch {
	case usePrevious && hasNew:
		return nil, fault.InvalidRequest(fault.Detail{Field: "usePreviousInputs", Message: "must be false if the request has new inputs"})
	case usePrevious:
		return nil, nil
	case !sources.HasSources():
		return nil, fault.InvalidRequest(fault.Detail{Field: "usePreviousInputs", Message: "must be true if the request has no new source of items"})
	default:
		return sources, nil
	}
}

func batchRetried(id uuid.UUID, mode batches.RetryMode, r *batches.Retried) BatchRetried {
	return BatchRetried{
		ExecutionBatchID: id.String(), RetryMode: string(mode), Attempt: r.Attempt, ItemsToRetry: r.ItemsToRetry, Status: string(r.Status),
	}
}
