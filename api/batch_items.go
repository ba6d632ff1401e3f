package api

import (
	"context"
	"net/http"

	"github.com/google/uuid"

	batches "tranche/internal/batch"
	"tranche/internal/httpapi"
	"tranche/internal/identity"
	"tranche/queries"
)

// BatchItem is an item of a batch as lists show it.
type BatchItem struct {
	ItemIndex      int        `json:"itemIndex" doc:"The item's place among all, from 0." example:"41"`
	ExecutionID    string     `json:"executionId" doc:"Its execution, of which the Executions API tells more." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11"`
	SourceFileName string     `json:"sourceFileName,omitempty" doc:"The file it was read from; absent for items of the request." example:"applications.csv"`
	RowNumber      int        `json:"rowNumber,omitempty" doc:"Its row there, the header being the first; absent for items of the request." example:"43"`
	BorrowerID     string     `json:"borrowerId,omitempty" doc:"Whom it is about." example:"B-1001"`
	Status         string     `json:"status" enum:"pending,running,completed,failed,cancelled,timeout" doc:"Its status." example:"failed"`
	SourceFailed   bool       `json:"sourceFailed" doc:"Whether it completed though a data source failed." example:"false"`
	StatusCode     int        `json:"statusCode,omitempty" doc:"The result's; absent until it has ended." example:"422"`
	ErrorMessage   string     `json:"errorMessage,omitempty" doc:"Why it failed." example:"applications.csv, row 43: income: is not a number as in 1234.56"`
	Attempt        int        `json:"attempt" doc:"1, and one more for each retry." example:"1"`
	StartedAt      *Timestamp `json:"startedAt,omitempty" doc:"When this attempt was started; absent before."`
	CompletedAt    *Timestamp `json:"completedAt,omitempty" doc:"When it ended; absent before."`
}

type (
	batchItemsInput struct {
		ID string `path:"batchId" doc:"The batch's id." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11"`
		httpapi.PageInput
		PerPage int    `query:"per-page" minimum:"1" maximum:"100" default:"10" doc:"How many items a page has."`
		Status  string `query:"status" enum:"pending,running,completed,failed,cancelled,timeout" doc:"Only items of this status."`
	}
	batchItemsOutput struct {
		Body struct {
			Data       []BatchItem        `json:"data" doc:"The items of the page."`
			Pagination httpapi.Pagination `json:"pagination" doc:"Which part of the list this is."`
		}
	}
)

func batchItemRoutes(s *Server) {
	httpapi.Register(s.http, httpapi.Operation{
		ID: "listBatchItems", Method: http.MethodGet, Path: "/v1/execution-batches/{batchId}/items", Tag: "Batches",
		Summary:     "List the items of a batch",
		Description: "**[ext]** The items in the order of their sources, each with the row it was read from. Items are listed once they have ended; before that, those that make more than one call from their second on, those of a workflow that asks for the time or runs the latest version of another from their first on, and those of a workflow that waits from the start.",
		Scope:       identity.ScopeBatchesRead, Category: identity.LimitPolling,
		ResponseExample: `{"data":[{"itemIndex":41,"executionId":"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11","sourceFileName":"applications.csv","rowNumber":43,"borrowerId":"B-1001","status":"failed","sourceFailed":false,"statusCode":422,"errorMessage":"applications.csv, row 43: income: is not a number as in 1234.56","attempt":1,"completedAt":"2026-11-21T02:09:25.123Z"}],"pagination":{"page":1,"perPage":10,"total":1,"totalPages":1}}`,
		Errors:          []int{http.StatusNotFound},
	}, s.listBatchItems)
}

func (s *Server) listBatchItems(ctx context.Context, in *batchItemsInput) (*batchItemsOutput, error) {
	id, err := httpapi.ParseID(in.ID, "batch")
	if err != nil {
		return nil, err
	}
	found, total, err := s.config.Batches.Items(ctx, httpapi.Principal(ctx).TenantID, id, in.Status, in.Window(in.PerPage))
	if err != nil {
		return nil, err
	}
	out := &batchItemsOutput{}
	found, out.Body.Pagination = httpapi.Paginate(&in.PageInput, in.PerPage, found, total, func(i batches.Item) uuid.UUID { return i.ExecutionID })
	out.Body.Data = make([]BatchItem, len(found))
	for i := range found {
		out.Body.Data[i] = batchItem(&found[i])
	}
	return out, nil
}

func batchItem(i *batches.Item) BatchItem {
	return BatchItem{
		ItemIndex: int(i.Index), ExecutionID: i.ExecutionID.String(), SourceFileName: queries.Value(i.FileName), RowNumber: int(queries.Value(i.Row)),
		BorrowerID: queries.Value(i.BorrowerID), Status: i.Status, SourceFailed: i.SourceFailed, StatusCode: int(queries.Value(i.StatusCode)),
		ErrorMessage: i.ErrorMessage, Attempt: i.Attempt, StartedAt: stampOrNil(i.StartedAt), CompletedAt: stampOrNil(i.CompletedAt),
	}
}
