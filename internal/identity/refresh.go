package identity

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"tranche/internal/audit"
	"tranche/internal/fault"
	"tranche/internal/postgres"
	"tranche/queries"
)

// refreshGrace is how long a used refresh token still returns the same successor. A
// client that lost the response can ask again (contract 2.3).
const refreshGrace = time.Minute

// RefreshToken exchanges a refresh token for a new access token and a successor of the
// refresh token. The same token returns the same successor for 60 s after its first use.
// A later use means that the token was stolen; it revokes the family with all its access
// tokens. An unknown, expired, revoked or used token is fault.Unauthorized. Too many
// attempts are fault.RateLimited.
func (s *Service) RefreshToken(ctx context.Context, refresh, address string) (token Token, err error) {
	err = s.guardFailures(ctx, uuid.Nil, address, func() error {
		use, err := s.rotate(ctx, refresh)
		if err != nil {
			return err
		}
		token, err = s.respond(ctx, use.principal, use.family, use.successor)
		return err
	})
	return token, err
}

// refreshUse is the result of using a refresh token.
type refreshUse struct {
	principal Principal
	family    uuid.UUID
	successor string
}

// rotate replaces a token by its successor. If a second use revokes the family, the
// transaction must commit, so rotateTx returns no error then.
func (s *Service) rotate(ctx context.Context, refresh string) (*refreshUse, error) {
	var use *refreshUse
	ctx = postgres.AsSystem(ctx) // the tenant is known after the token is read
	err := postgres.InTx(ctx, s.pool, func(tx pgx.Tx) (err error) {
		use, err = s.rotateTx(ctx, tx, refresh)
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case use == nil:
		return nil, errWrongRefreshToken()
	default:
		return use, nil
	}
}

// rotateTx returns nil for a token that can no longer be used.
func (s *Service) rotateTx(ctx context.Context, tx pgx.Tx, refresh string) (*refreshUse, error) {
	hash := hashOf(refresh)
	row, err := queries.New().SysRefreshTokenGetForUpdate(ctx, tx, queries.SysRefreshTokenGetForUpdateParams{
		TokenHash: hash, GraceSeconds: refreshGrace.Seconds(),
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look up a refresh token: %w", err)
	}
	if row.IsOver {
		return nil, nil
	}
	if row.IsReused {
		return nil, s.revokeFamilyTx(ctx, tx, row)
	}
	if _, err := s.acquire(ctx, tx, row.ClientID, Limit{limitTokens, tokensPerMinute}); err != nil {
		return nil, err
	}
	use := &refreshUse{family: row.FamilyID, principal: Principal{
		TenantID: row.TenantID, TenantSlug: row.TenantSlug, ClientID: row.ClientID,
		Scopes: scopesOf(row.Scopes), IsSandbox: row.IsSandbox,
	}}
	if row.IsUsed {
		use.successor, err = s.successorGiven(ctx, tx, row, refresh)
		return use, err
	}
	use.successor = successor(s.successorKeys[0], refresh)
	err = queries.New().RefreshTokenRotate(ctx, tx, queries.RefreshTokenRotateParams{
		TenantID: row.TenantID, TokenHash: hash, SuccessorHash: hashOf(use.successor), IdleSeconds: refreshTokenIdleTTL.Seconds(),
	})
	if err != nil {
		return nil, fmt.Errorf("rotate a refresh token of client %s: %w", row.ClientID, err)
	}
	return use, nil
}

// revokeFamilyTx revokes a family after one of its used tokens was presented again. The
// token or its successor has been stolen.
func (s *Service) revokeFamilyTx(ctx context.Context, tx pgx.Tx, row queries.SysRefreshTokenGetForUpdateRow) error {
	ended, err := queries.New().RefreshTokenFamilyRevoke(ctx, tx, queries.RefreshTokenFamilyRevokeParams{TenantID: row.TenantID, ID: row.FamilyID})
	if err != nil {
		return fmt.Errorf("revoke token family %s: %w", row.FamilyID, err)
	}
	if ended == 0 {
		return nil
	}
	return audit.RecordTx(audit.WithOrigin(ctx, row.ClientID.String(), ""), tx, row.TenantID, audit.FamilyRevoke, row.FamilyID.String())
}

// successorGiven returns the successor that a used token already has. It may have been
// derived from another master key.
func (s *Service) successorGiven(ctx context.Context, tx pgx.Tx, row queries.SysRefreshTokenGetForUpdateRow, refresh string) (string, error) {
	for _, key := range s.successorKeys {
		given := successor(key, refresh)
		exists, err := queries.New().RefreshTokenExists(ctx, tx, queries.RefreshTokenExistsParams{
			TenantID: row.TenantID, FamilyID: row.FamilyID, TokenHash: hashOf(given),
		})
		if err != nil {
			return "", fmt.Errorf("look up the successor of a refresh token: %w", err)
		}
		if exists {
			return given, nil
		}
	}
	return "", errWrongRefreshToken()
}

// successor derives the refresh token that follows another one. Only a process with the
// key can compute it, so the successor itself need not be stored.
func successor(key []byte, refresh string) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(refresh))
	return refreshTokenPrefix + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

func errWrongRefreshToken() error {
	return fault.New(fault.Unauthorized, "the refresh token is invalid, has expired or was used")
}
