package batch

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"tranche/internal/postgres"
	"tranche/queries"
)

// Filter narrows a list; empty members do not.
type Filter struct {
	Status        Status
	WorkflowAlias string
}

// List returns the batches of the tenant within a window, newest first, and how many match
// in total.
func (s *Service) List(ctx context.Context, tenantID uuid.UUID, filter Filter, window queries.Window) ([]*Batch, int, error) {
	list := queries.BatchListParams{
		TenantID: tenantID, Status: queries.Optional(string(filter.Status)), WorkflowAlias: queries.Optional(filter.WorkflowAlias),
		Before: window.After, RowLimit: int32(window.Limit), RowOffset: int32(window.Offset),
	}
	rows, err := s.q.BatchList(ctx, queries.CustomPlan(s.Pool), list)
	if err != nil {
		return nil, 0, postgres.Translate(fmt.Errorf("list batches: %w", err))
	}
	total, err := s.q.BatchCount(ctx, queries.CustomPlan(s.Pool), queries.BatchCountParams{
		TenantID: tenantID, Status: list.Status, WorkflowAlias: list.WorkflowAlias, CountMax: int64(window.CountMax),
	})
	if err != nil {
		return nil, 0, postgres.Translate(fmt.Errorf("count batches: %w", err))
	}
	found := make([]*Batch, len(rows))
	for i, row := range rows {
		same := queries.BatchGetRow(row)
		if found[i], err = fromRow(&same); err != nil {
			return nil, 0, err
		}
	}
	return found, int(total), nil
}

func fromRow(row *queries.BatchGetRow) (*Batch, error) {
	b := &Batch{
		ID: row.ID, WorkflowID: row.WorkflowID, WorkflowAlias: row.WorkflowAlias, WorkflowVersion: int(row.WorkflowVersion),
		Label: row.Label, Description: row.Description, IsTest: row.IsTest, Status: Status(row.Status), Attempt: int(row.Attempt),
		PreProcessingResult: row.PreProcessingResult, ValidatedItems: int(row.ValidatedItems),
		RawPackageID: row.RawPackageID, OutputPackageID: row.OutputPackageID, EarlierPackageIDs: row.EarlierPackageIds,
		Total: int(row.ItemsTotal), Completed: int(row.ItemsCompleted), Failed: int(row.ItemsFailed), SourceFailed: int(row.ItemsSourceFailed),
		CreatedAt: row.CreatedAt, UpdatedAt: row.UpdatedAt, CompletedAt: row.CompletedAt, CancelRequestedAt: row.CancelRequestedAt,
	}
	if err := json.Unmarshal(row.Notices, &b.Notices); err != nil {
		return nil, fmt.Errorf("read the notices of batch %s: %w", row.ID, err)
	}
	return b, nil
}

// Item is an item of a batch in a list.
type Item struct {
	Index       int32
	ExecutionID uuid.UUID
	FileName    *string // of the source; nil for items of the request
	Row         *int32  // of the source, header = 1; nil for items of the request
	BorrowerID  *string
	Status      string
	// SourceFailed means that the item completed although a data source failed.
	SourceFailed bool
	StatusCode   *int32
	ErrorMessage string
	Attempt      int
	StartedAt    *time.Time
	CompletedAt  *time.Time
}

const (
	// itemsScannedMax is up to how many items of a batch are scanned to find those of a
	// status.
	itemsScannedMax = 10_000
	// itemClockSlack is how much the clocks of the items' ids may differ from the clock of
	// the batch.
	itemClockSlack = 24 * time.Hour
)

// Items returns the items of a batch within a window, in their order, and how many match in
// total. The ids of the window are those of their executions. An empty status matches all.
func (s *Service) Items(ctx context.Context, tenantID, batchID uuid.UUID, status string, window queries.Window) ([]Item, int, error) {
	batch, err := s.Get(ctx, tenantID, batchID)
	if err != nil {
		return nil, 0, err
	}
	list := queries.BatchItemListParams{
		TenantID: tenantID, BatchID: batchID, Status: queries.Optional(status),
		After: window.After, RowLimit: int32(window.Limit), RowOffset: int32(window.Offset),
	}
	var rows []queries.BatchItemListRow
	var total int
	if status != "" && batch.Total > itemsScannedMax {
		rows, total, err = s.itemsOfStatus(ctx, batch, list, window.CountMax)
	} else {
		rows, total, err = s.itemsScanned(ctx, list, window.CountMax)
	}
	if err != nil {
		return nil, 0, postgres.Translate(fmt.Errorf("list the items of batch %s: %w", batchID, err))
	}
	items := make([]Item, len(rows))
	for i, row := range rows {
		items[i] = Item{
			Index: row.ItemIndex, ExecutionID: row.ID, FileName: row.SourceFileName, Row: row.RowNumber, BorrowerID: row.BorrowerID,
			Status: row.Status, SourceFailed: row.SourceFailed, StatusCode: row.StatusCode, ErrorMessage: row.ErrorMessage,
			Attempt: int(row.Attempt), StartedAt: row.StartedAt, CompletedAt: row.CompletedAt,
		}
	}
	return items, total, nil
}

// itemsScanned finds items by a scan of the batch's items.
func (s *Service) itemsScanned(ctx context.Context, list queries.BatchItemListParams, countMax int) ([]queries.BatchItemListRow, int, error) {
	rows, err := s.q.BatchItemList(ctx, s.Pool, list)
	if err != nil {
		return nil, 0, err
	}
	total, err := s.q.BatchItemCount(ctx, s.Pool, queries.BatchItemCountParams{
		TenantID: list.TenantID, BatchID: list.BatchID, Status: list.Status, CountMax: int64(countMax),
	})
	return rows, int(total), err
}

// itemsOfStatus finds the items of a large batch that have a status. If they are few, a scan
// of the batch would read a million others. If they are many, a scan finds a page soon.
func (s *Service) itemsOfStatus(ctx context.Context, batch *Batch, list queries.BatchItemListParams, countMax int) ([]queries.BatchItemListRow, int, error) {
	matching, err := s.q.BatchItemFindByStatus(ctx, s.Pool, queries.BatchItemFindByStatusParams{
		TenantID: list.TenantID, BatchID: list.BatchID, Status: *list.Status, WorkflowID: batch.WorkflowID, CountMax: int64(countMax),
		FirstID: queries.FirstIDAt(batch.CreatedAt.Add(-itemClockSlack)), LastID: queries.FirstIDAt(batch.UpdatedAt.Add(itemClockSlack)),
	})
	if err != nil {
		return nil, 0, err
	}
	total := int(matching.Total)
	if total >= countMax {
		rows, err := s.q.BatchItemList(ctx, s.Pool, list)
		return rows, total, err
	}
	found, err := s.q.BatchItemListByID(ctx, s.Pool, queries.BatchItemListByIDParams{
		TenantID: list.TenantID, Ids: matching.Found, After: list.After, RowLimit: list.RowLimit, RowOffset: list.RowOffset,
	})
	rows := make([]queries.BatchItemListRow, len(found))
	for i, row := range found {
		rows[i] = queries.BatchItemListRow(row)
	}
	return rows, total, err
}
