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

// BatchItem is an item of a batch in a list.
type BatchItem struct {
	ItemIndex      int        `json:"itemIndex" doc:"The position of the item in the batch, starting at 0." example:"41"`
	ExecutionID    string     `json:"executionId" doc:"The id of the item's execution. The operations of executions return more about it." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11"`
	SourceFileName string     `json:"sourceFileName,omitempty" doc:"The name of the file that contains the item. Absent for items of the request body." example:"applications.csv"`
	RowNumber      int        `json:"rowNumber,omitempty" doc:"The row in that file. The header is row 1. Absent for items of the request body." example:"43"`
	BorrowerID     string     `json:"borrowerId,omitempty" doc:"The borrower's id." example:"B-1001"`
	Status         string     `json:"status" enum:"pending,running,completed,failed,cancelled,timeout" doc:"The current status." example:"failed"`
	SourceFailed   bool       `json:"sourceFailed" doc:"true if the item completed although a data source failed." example:"false"`
	StatusCode     int        `json:"statusCode,omitempty" doc:"The status code of the result. Absent until the item has ended." example:"422"`
	ErrorMessage   string     `json:"errorMessage,omitempty" doc:"The reason of the failure." example:"applications.csv, row 43: income: must be a number such as 1234.56"`
	Attempt        int        `json:"attempt" doc:"The number of the attempt. It starts at 1 and increases with every retry." example:"1"`
	StartedAt      *Timestamp `json:"startedAt,omitempty" doc:"The time at which this attempt started. Absent before that."`
	CompletedAt    *Timestamp `json:"completedAt,omitempty" doc:"The time at which it ended. Absent before that."`
}

type (
	batchItemsInput struct {
		ID string `path:"batchId" doc:"The id of the batch." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11"`
		httpapi.PageInput
		PerPage int    `query:"per-page" minimum:"1" maximum:"100" default:"10" doc:"The number of items on a page."`
		Status  string `query:"status" enum:"pending,running,completed,failed,cancelled,timeout" doc:"Returns only items with this status."`
	}
	batchItemsOutput struct {
		Body struct {
			Data       []BatchItem        `json:"data" doc:"The items of the page."`
			Pagination httpapi.Pagination `json:"pagination" doc:"The position of the page in the list."`
		}
	}
)

func batchItemRoutes(s *Server) {
	httpapi.Register(s.http, httpapi.Operation{
		ID: "listBatchItems", Method: http.MethodGet, Path: "/v1/execution-batches/{batchId}/items", Tag: "Batches",
		Summary: "List the items of a batch",
		Description: "**[ext]** Returns the items in the order of their sources, each with the row from which it was read.\n\n" +
			"All items are listed after they have ended. Some are listed earlier: an item that makes several calls, from its second call on; " +
			"an item of a workflow that uses the current time or runs the latest version of another workflow, from its first call on; and an " +
			"item of a workflow that waits, from the start.",
		Scope: identity.ScopeBatchesRead, Category: identity.LimitPolling,
		ResponseExample: `{"data":[{"itemIndex":41,"executionId":"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11","sourceFileName":"applications.csv","rowNumber":43,"borrowerId":"B-1001","status":"failed","sourceFailed":false,"statusCode":422,"errorMessage":"applications.csv, row 43: income: must be a number such as 1234.56","attempt":1,"completedAt":"2026-11-21T02:09:25.123Z"}],"pagination":{"page":1,"perPage":10,"total":1,"totalPages":1}}`,
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
