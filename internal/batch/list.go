package batch

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"tranche/internal/postgres"
	"tranche/queries"
)

// Filter narrows a list; empty members do not.
type Filter struct {
	Status        Status
	WorkflowAlias string
}

// Window says which part of a list to read, newest first.
type Window struct {
	// Before is the id that the part comes after; uuid.Nil begins at the newest.
	Before uuid.UUID
	Offset int
	Limit  int
}

// List returns the batches of the tenant within a window, and how many match
// in all, counted up to countMax.
func (s *Service) List(ctx context.Context, tenantID uuid.UUID, filter Filter, window Window, countMax int) ([]*Batch, int, error) {
	list := queries.BatchListParams{
		TenantID: tenantID, Status: optional(string(filter.Status)), WorkflowAlias: optional(filter.WorkflowAlias),
		RowLimit: int32(window.Limit), RowOffset: int32(window.Offset),
	}
	if window.Before != uuid.Nil {
		list.Before = &window.Before
	}
	rows, err := s.q.BatchList(ctx, s.Pool, list)
	if err != nil {
		return nil, 0, postgres.Translate(fmt.Errorf("list batches: %w", err))
	}
	total, err := s.q.BatchCount(ctx, s.Pool, queries.BatchCountParams{
		TenantID: tenantID, Status: list.Status, WorkflowAlias: list.WorkflowAlias, CountMax: int64(countMax),
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

func optional(text string) *string {
	if text == "" {
		return nil
	}
	return &text
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
