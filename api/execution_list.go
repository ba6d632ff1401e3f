package api

import (
	"context"
	"encoding/hex"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"tranche/internal/catalog"
	"tranche/internal/fault"
	"tranche/internal/httpapi"
	"tranche/internal/identity"
	"tranche/internal/postgres"
	"tranche/queries"
)

// Execution is an execution in a list (contract A.2.6).
type Execution struct {
	ID              string          `json:"id" doc:"The unique id." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11"`
	PrincipalID     string          `json:"principalId" doc:"The id of the client that started the execution, or schedule: followed by the workflow's id." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a01"`
	WorkflowID      string          `json:"workflowId" doc:"The id of the executed workflow." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a10"`
	WorkflowAlias   string          `json:"workflowAlias" doc:"The alias of the workflow." example:"pre-qualification"`
	WorkflowVersion string          `json:"workflowVersion" doc:"The version of the workflow." example:"v1"`
	WorkflowType    string          `json:"workflowType,omitempty" doc:"The type of the workflow." example:"scoring"`
	BatchID         string          `json:"batchId,omitempty" deprecated:"true" doc:"The id of the batch to which the execution belongs. Use executionBatch instead."`
	BillableID      string          `json:"billableId,omitempty" doc:"The id for billing." example:"contract-7"`
	ExecutionBatch  *ExecutionBatch `json:"executionBatch,omitempty" doc:"The position in a batch. Absent if the execution does not belong to a batch."`
	BorrowerID      string          `json:"borrowerId,omitempty" doc:"The borrower's id." example:"B-1001"`
	Status          string          `json:"status" enum:"pending,running,completed,failed,cancelled,timeout" doc:"The current status." example:"completed"`
	IsSuccess       bool            `json:"isSuccess" doc:"true if the execution completed." example:"true"`
	IsBillable      bool            `json:"isBillable" doc:"true if the execution completed and is not a test." example:"true"`
	IsReScoring     bool            `json:"isReScoring" doc:"true if the execution re-evaluates another execution." example:"false"`
	IsTest          bool            `json:"isTest" doc:"**[ext]** true if the execution is a test." example:"false"`
	Tags            []string        `json:"tags" doc:"The tags of the request and of the end task."`
	CreatedAt       Timestamp       `json:"createdAt" doc:"The time of creation."`
}

// ExecutionBatch is the position of an execution in a batch (contract 5.8).
type ExecutionBatch struct {
	ExecutionBatchID string `json:"executionBatchId" doc:"The id of the batch." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a12"`
	Label            string `json:"label" doc:"A name for people." example:"November applications"`
	ItemIndex        int    `json:"itemIndex" doc:"The position of the item in the batch, starting at 0." example:"41"`
	SourceFileName   string `json:"sourceFileName,omitempty" doc:"The name of the file that contains the item. Absent for items of the request body." example:"applications.csv"`
	RowNumber        int    `json:"rowNumber,omitempty" doc:"The row in that file. The header is row 1. Absent for items of the request body." example:"43"`
	Attempt          int    `json:"attempt" doc:"The number of the batch's attempt, starting at 1." example:"1"`
}

// ExecutionList is a page of executions.
type ExecutionList struct {
	Data       []Execution        `json:"data" doc:"The executions of the page."`
	Pagination httpapi.Pagination `json:"pagination" doc:"The position of the page in the list."`
}

type (
	executionListInput struct {
		httpapi.PageInput
		PerPage         int    `query:"per-page" minimum:"1" maximum:"100" default:"10" doc:"The number of executions on a page."`
		BillableID      string `query:"billable-id" maxLength:"255" doc:"Returns only executions with this id for billing."`
		BorrowerID      string `query:"borrower-id" maxLength:"255" doc:"Returns only entries of this borrower."`
		WorkflowID      string `query:"workflow-id" maxLength:"64" doc:"Returns only executions of this workflow."`
		WorkflowVersion string `query:"workflow-version" maxLength:"16" doc:"Returns only executions of this workflow version." example:"v1"`
		WorkflowAlias   string `query:"workflow-alias" maxLength:"64" doc:"Returns only executions of workflows with this alias." example:"pre-qualification"`
		WorkflowType    string `query:"workflow-type" maxLength:"100" doc:"Returns only executions of workflows with this type."`
		Search          string `query:"search" maxLength:"255" doc:"Returns only executions whose id, borrowerId, billableId or workflowAlias begins with this text, whose workflowAlias contains it as a word, or that have it as a tag."`
		SortBy          string `query:"sort-by" enum:"createdAt" default:"createdAt" doc:"The sort order. Executions that were created in the same millisecond are sorted by id."`
		SortDirection   string `query:"sort-direction" enum:"asc,desc" default:"desc" doc:"The sort direction. desc returns the newest first."`
		Tags            string `query:"tags" maxLength:"4000" doc:"A comma-separated list of tags. Returns only executions that have all of them."`
		DateFrom        string `query:"date-from" maxLength:"64" doc:"Returns only executions that were created at this time or later. A date in UTC or an RFC 3339 date and time." example:"2026-11-01"`
		DateTo          string `query:"date-to" maxLength:"64" doc:"Returns only executions that were created at this time or earlier. A date includes the whole day." example:"2026-11-30"`
		Status          string `query:"status" enum:"pending,running,completed,failed,cancelled,timeout" doc:"Returns only executions with this status."`
		ExcludeTests    bool   `query:"exclude-tests" doc:"Excludes tests."`
		ExcludeBatches  bool   `query:"exclude-batch-executions" doc:"Excludes executions of batches."`
	}
	executionListOutput struct{ Body ExecutionList }
	executionGetOutput  struct{ Body Execution }
)

const executionExample = `{"id":"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11","principalId":"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a01","workflowId":"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a10","workflowAlias":"pre-qualification","workflowVersion":"v1","workflowType":"scoring","borrowerId":"B-1001","status":"completed","isSuccess":true,"isBillable":true,"isReScoring":false,"isTest":false,"tags":["web"],"createdAt":"2026-11-21T02:09:25.123Z"}`

func executionListRoutes(s *Server) {
	httpapi.Register(s.http, httpapi.Operation{
		ID: "listExecutions", Method: http.MethodGet, Path: "/v1/executions", Tag: "Executions",
		Summary: "List executions",
		Description: "Returns the executions of the tenant, newest first. You can combine filters; an execution must match all of them.\n\n" +
			"New executions shift the pages. With `cursor` **[ext]** you read all executions that existed when you began, without gaps or " +
			"duplicates.",
		Scope: identity.ScopeExecutionsRead, Category: identity.LimitPolling,
		ResponseExample: `{"data":[` + executionExample + `],"pagination":{"page":1,"perPage":10,"total":1,"totalPages":1}}`,
	}, s.listExecutions)
	httpapi.Register(s.http, httpapi.Operation{
		ID: "getExecution", Method: http.MethodGet, Path: "/v1/executions/{executionId}", Tag: "Executions",
		Summary:     "Get an execution",
		Description: "Returns an execution as in the list of executions.",
		Scope:       identity.ScopeExecutionsRead, Category: identity.LimitPolling,
		ResponseExample: executionExample,
		Errors:          []int{http.StatusNotFound},
	}, s.getExecution)
}

func (s *Server) listExecutions(ctx context.Context, in *executionListInput) (*executionListOutput, error) {
	p, matchable, err := s.executionListParams(ctx, in)
	if err != nil {
		return nil, err
	}
	var rows []queries.ExecutionGetRow
	var total int
	if matchable {
		if rows, total, err = queries.New().ExecutionList(ctx, s.config.Pool, p); err != nil {
			return nil, postgres.Translate(err)
		}
	}
	rows, page := httpapi.Paginate(&in.PageInput, in.PerPage, rows, total, func(row queries.ExecutionGetRow) uuid.UUID { return row.ID })
	out := &executionListOutput{Body: ExecutionList{Data: make([]Execution, len(rows)), Pagination: page}}
	for i := range rows {
		out.Body.Data[i] = executionRecord(&rows[i])
	}
	return out, nil
}

func (s *Server) getExecution(ctx context.Context, in *executionInput) (*executionGetOutput, error) {
	id, err := executionID(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	row, err := queries.New().ExecutionGet(ctx, queries.OnPartition(s.config.Pool, id), queries.ExecutionGetParams{TenantID: httpapi.Principal(ctx).TenantID, ID: id})
	if err != nil {
		return nil, executionReadError(err)
	}
	return &executionGetOutput{Body: executionRecord(&row)}, nil
}

// executionListParams parses the filters. matchable is false if they name a workflow that
// does not exist.
func (s *Server) executionListParams(ctx context.Context, in *executionListInput) (p queries.ExecutionListParams, matchable bool, err error) {
	p = queries.ExecutionListParams{
		TenantID: httpapi.Principal(ctx).TenantID, BillableID: in.BillableID, BorrowerID: in.BorrowerID, Status: in.Status,
		ExcludeTests: in.ExcludeTests, ExcludeBatches: in.ExcludeBatches, Ascending: in.SortDirection == "asc",
		Window: in.Window(in.PerPage),
	}
	if p.Tags, err = parseTags(in.Tags); err != nil {
		return p, false, err
	}
	if err = parseDates(in, &p); err != nil {
		return p, false, err
	}
	if p.WorkflowIDs, matchable, err = s.workflowsOf(ctx, in); err != nil || !matchable {
		return p, false, err
	}
	if in.Search != "" {
		p.Search, err = s.executionSearch(ctx, in.Search)
	}
	return p, true, err
}

// parseDates parses date-from and date-to.
func parseDates(in *executionListInput, p *queries.ExecutionListParams) error {
	var details []fault.Detail
	for _, bound := range []struct {
		field, text       string
		wholeDay, instant time.Duration // added to a date or to a time
		to                *time.Time
	}{
		{"date-from", in.DateFrom, 0, 0, &p.CreatedFrom},
		{"date-to", in.DateTo, 24 * time.Hour, time.Microsecond, &p.CreatedBefore}, // the resolution of the database is a microsecond
	} {
		if bound.text == "" {
			continue
		}
		if day, err := time.Parse(time.DateOnly, bound.text); err == nil {
			*bound.to = day.Add(bound.wholeDay)
		} else if moment, err := httpapi.ParseTime(bound.text); err == nil {
			*bound.to = moment.UTC().Add(bound.instant)
		} else {
			details = append(details, fault.Detail{Field: bound.field, Message: "must be a date such as 2026-11-21 or an RFC 3339 date and time such as 2026-11-21T02:09:25Z"})
		}
	}
	if len(details) > 0 {
		return fault.InvalidRequest(details...)
	}
	return nil
}

// workflowsOf returns the ids of the workflows that the filters name, because the alias,
// version and type of an execution are those of its workflow. Nil means any workflow.
// matchable is false if there is no such workflow.
func (s *Server) workflowsOf(ctx context.Context, in *executionListInput) (ids []uuid.UUID, matchable bool, err error) {
	if in.WorkflowID == "" && in.WorkflowAlias == "" && in.WorkflowVersion == "" && in.WorkflowType == "" {
		return nil, true, nil
	}
	filter := queries.WorkflowListIDsParams{
		TenantID: httpapi.Principal(ctx).TenantID, Alias: queries.Optional(in.WorkflowAlias), Type: queries.Optional(in.WorkflowType),
	}
	if in.WorkflowID != "" {
		id, err := httpapi.ParseID(in.WorkflowID, "workflow")
		if err != nil {
			return nil, false, nil //nolint:nilerr // an id of the wrong form is like an unknown one
		}
		filter.ID = &id
	}
	if in.WorkflowVersion != "" {
		version, ok := catalog.ParseVersion(in.WorkflowVersion)
		if !ok {
			return nil, false, nil
		}
		filter.Version = new(int32(version))
	}
	ids, err = queries.New().WorkflowListIDs(ctx, s.config.Pool, filter)
	return ids, len(ids) > 0, postgres.Translate(err)
}

// executionSearch returns the conditions for a search text.
func (s *Server) executionSearch(ctx context.Context, text string) (*queries.ExecutionSearch, error) {
	search := &queries.ExecutionSearch{Text: text}
	search.FirstID, search.LastID = idsBeginning(text)
	var err error
	search.WorkflowIDs, err = queries.New().WorkflowListIDs(ctx, s.config.Pool, queries.WorkflowListIDsParams{
		TenantID: httpapi.Principal(ctx).TenantID, Search: new(strings.ToLower(text)),
	})
	return search, postgres.Translate(err)
}

// idsBeginning returns the first and the last id whose text begins with prefix. Both are
// uuid.Nil if there is none.
func idsBeginning(prefix string) (first, last uuid.UUID) {
	const least, greatest = "00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"
	prefix = strings.ToLower(prefix)
	if len(prefix) > len(least) {
		return uuid.Nil, uuid.Nil
	}
	var ends [2]uuid.UUID
	for i, rest := range []string{least, greatest} {
		text := prefix + rest[len(prefix):]
		digits, err := hex.DecodeString(strings.ReplaceAll(text, "-", ""))
		if err != nil || len(digits) != len(first) {
			return uuid.Nil, uuid.Nil
		}
		copy(ends[i][:], digits)
		if ends[i].String() != text {
			return uuid.Nil, uuid.Nil
		}
	}
	return ends[0], ends[1]
}

func executionRecord(row *queries.ExecutionGetRow) Execution {
	e := Execution{
		ID: row.ID.String(), PrincipalID: row.PrincipalID, WorkflowID: row.WorkflowID.String(), WorkflowAlias: row.WorkflowAlias,
		WorkflowVersion: catalog.VersionName(int(row.WorkflowVersion)), WorkflowType: queries.Value(row.WorkflowType),
		BatchID: idOrEmpty(row.BatchID), BillableID: queries.Value(row.BillableID), BorrowerID: queries.Value(row.BorrowerID),
		Status: row.Status, IsSuccess: row.IsSuccess, IsBillable: row.IsSuccess && !row.IsTest, IsReScoring: row.RescoreOf != nil,
		IsTest: row.IsTest, Tags: row.Tags, CreatedAt: stamp(queries.CreatedAt(row.ID)),
	}
	if row.BatchID != nil {
		e.ExecutionBatch = &ExecutionBatch{
			ExecutionBatchID: e.BatchID, Label: queries.Value(row.BatchLabel), ItemIndex: int(queries.Value(row.ItemIndex)),
			SourceFileName: queries.Value(row.SourceFileName), RowNumber: int(queries.Value(row.RowNumber)), Attempt: int(queries.Value(row.BatchAttempt)),
		}
	}
	return e
}
