package storage

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"tranche/internal/postgres"
	"tranche/queries"
)

// Delete removes an attachment and its bytes, on db, which may be a transaction
// that does more. One that is part of a package cannot be removed; one that does
// not exist is no error.
func (s *Store) Delete(ctx context.Context, db queries.DBTX, tenantID, id uuid.UUID) error {
	if err := s.q.AttachmentDelete(ctx, db, queries.AttachmentDeleteParams{TenantID: tenantID, ID: id}); err != nil {
		return postgres.Translate(fmt.Errorf("delete attachment %s: %w", id, err))
	}
	return nil
}
