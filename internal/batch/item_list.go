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

// Items returns the items of a batch within a window, in their order, and how
// many match in all, counted up to countMax. An empty status does not narrow
// them. The window's Before is the execution that they come after.
func (s *Service) Items(ctx context.Context, tenantID, batchID uuid.UUID, status string, window Window, countMax int) ([]Item, int, error) {
	if _, err := s.Get(ctx, tenantID, batchID); err != nil {
		return nil, 0, err
	}
	list := queries.BatchItemListParams{
		TenantID: tenantID, BatchID: batchID, Status: optional(status), RowLimit: int32(window.Limit), RowOffset: int32(window.Offset),
	}
	if window.Before != uuid.Nil {
		list.After = &window.Before
	}
	rows, err := s.q.BatchItemList(ctx, s.Pool, list)
	if err != nil {
		return nil, 0, postgres.Translate(fmt.Errorf("list the items of batch %s: %w", batchID, err))
	}
	total, err := s.q.BatchItemCount(ctx, s.Pool, queries.BatchItemCountParams{
		TenantID: tenantID, BatchID: batchID, Status: list.Status, CountMax: int64(countMax),
	})
	if err != nil {
		return nil, 0, postgres.Translate(fmt.Errorf("count the items of batch %s: %w", batchID, err))
	}
	items := make([]Item, len(rows))
	for i, row := range rows {
		items[i] = Item{
			Index: row.ItemIndex, ExecutionID: row.ID, FileName: row.SourceFileName, Row: row.RowNumber, BorrowerID: row.BorrowerID,
			Status: row.Status, SourceFailed: row.SourceFailed, StatusCode: row.StatusCode, ErrorMessage: row.ErrorMessage,
			Attempt: int(row.Attempt), StartedAt: row.StartedAt, CompletedAt: row.CompletedAt,
		}
	}
	return items, int(total), nil
}
