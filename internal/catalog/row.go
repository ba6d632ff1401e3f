package catalog

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"tranche/internal/postgres"
	"tranche/queries"
)

// readError translates the error of a read; a row that is not there is an
// unknown workflow.
func readError(err error, format string, args ...any) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return errUnknown()
	}
	return fmt.Errorf(format+": %w", append(args, postgres.Translate(err))...)
}

func fromRow(row queries.Workflow) *Workflow {
	return &Workflow{
		Content: Content{
			Name:           row.Name,
			Description:    row.Description,
			Type:           queries.Value(row.Type),
			ExecutionMode:  queries.Value(row.ExecutionMode),
			TimeoutSeconds: int(queries.Value(row.TimeoutSeconds)),
			InputSchema:    json.RawMessage(row.InputSchema),
			Tasks:          json.RawMessage(row.Tasks),
			Edges:          json.RawMessage(row.Edges),
		},
		ID:            row.ID,
		TenantID:      row.TenantID,
		Alias:         row.Alias,
		Version:       int(row.Version),
		Status:        Status(row.Status),
		ParentVersion: int(queries.Value(row.ParentVersion)),
		Revision:      int(row.Revision),
		CreatedAt:     row.CreatedAt,
		UpdatedAt:     row.UpdatedAt,
		PublishedAt:   row.PublishedAt,
		ArchivedAt:    row.ArchivedAt,
	}
}

func fromListRow(row queries.WorkflowListRow) *Workflow {
	return &Workflow{
		Content:       Content{Name: row.Name, Description: row.Description, Type: queries.Value(row.Type)},
		ID:            row.ID,
		TenantID:      row.TenantID,
		Alias:         row.Alias,
		Version:       int(row.Version),
		Status:        Status(row.Status),
		ParentVersion: int(queries.Value(row.ParentVersion)),
		CreatedAt:     row.CreatedAt,
		UpdatedAt:     row.UpdatedAt,
		PublishedAt:   row.PublishedAt,
		ArchivedAt:    row.ArchivedAt,
	}
}
