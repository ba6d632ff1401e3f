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

// List returns the batches of the tenant within a window, newest first, and how many
// match in all.
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
