package consent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"tranche/internal/postgres"
	"tranche/queries"
)

// Question asks for a consent of somebody to something.
type Question struct {
	Key           string
	IdentityKey   string
	IdentityValue string
	// BorrowerID, where set, leaves out authorizations that name another borrower.
	BorrowerID string
}

// Proof is the authorization that answers a Question.
type Proof struct {
	AuthorizationID uuid.UUID
	AuthorizedAt    time.Time
	ExpiresAt       time.Time
}

// Find returns the signed, unexpired authorization that answers a question, the
// one that holds longest of several; false where there is none.
func (s *Service) Find(ctx context.Context, tenantID uuid.UUID, q Question) (Proof, bool, error) {
	row, err := s.q.AuthorizationFindSigned(ctx, s.Pool, queries.AuthorizationFindSignedParams{
		TenantID: tenantID, Key: q.Key, IdentityKey: q.IdentityKey, IdentityValue: q.IdentityValue, BorrowerID: queries.Optional(q.BorrowerID),
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return Proof{}, false, nil
	}
	if err != nil {
		return Proof{}, false, fmt.Errorf("find an authorization: %w", postgres.Translate(err))
	}
	return Proof{AuthorizationID: row.ID, AuthorizedAt: *row.AuthorizedAt, ExpiresAt: row.ExpiresAt}, true, nil
}
