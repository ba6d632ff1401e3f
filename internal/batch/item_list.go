package batch

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"tranche/internal/postgres"
	"tranche/queries"
)

// Item is an item of a batch as lists show it.
type Item struct {
	Index       int32
	ExecutionID uuid.UUID
	FileName    *string // of the source; nil for items of the request
	Row         *int32  // of the source, header = 1; nil for items of the request
	BorrowerID  *string
	Status      string
	// SourceFailed says that the item completed though a data source failed.
	SourceFailed bool
	StatusCode   *int32
	ErrorMessage string
	Attempt      int
	StartedAt    *time.Time
	CompletedAt  *time.Time
}

const (
	// itemsWalkedMax is how many items a batch has at most of which those of a status
	// are found by looking through all of them.
	itemsWalkedMax = 10_000
	// itemClockSlack is how far the clocks from which the items' ids have their times may
	// be from that of the batch.
	itemClockSlack = 24 * time.Hour
)

// Items returns the items of a batch within a window, whose ids are those of their
// executions, in their order, and how many match in all. An empty status does not
// narrow them.
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
	if status != "" && batch.Total > itemsWalkedMax {
		rows, total, err = s.itemsOfStatus(ctx, batch, list, window.CountMax)
	} else {
		rows, total, err = s.itemsWalked(ctx, list, window.CountMax)
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

// itemsWalked finds items by going through those of the batch.
func (s *Service) itemsWalked(ctx context.Context, list queries.BatchItemListParams, countMax int) ([]queries.BatchItemListRow, int, error) {
	rows, err := s.q.BatchItemList(ctx, s.Pool, list)
	if err != nil {
		return nil, 0, err
	}
	total, err := s.q.BatchItemCount(ctx, s.Pool, queries.BatchItemCountParams{
		TenantID: list.TenantID, BatchID: list.BatchID, Status: list.Status, CountMax: int64(countMax),
	})
	return rows, int(total), err
}

// itemsOfStatus finds the items of a large batch that have a status. Where they are
// few, going through all of the batch would pass over a million others; where they
// are not, a page of them is soon found.
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
