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

// refreshGrace is how long after its use a refresh token still yields the same
// successor, so that a lost answer can be asked for again (decisions 2.3).
const refreshGrace = time.Minute

// RefreshToken exchanges a refresh token, presented from an address, for a new
// access token and the token's successor. Presented again within 60 s it gives
// the same successor; later use means that two hold it, and revokes the family
// with every access token of it. A token that is unknown, expired, revoked or
// used is fault.Unauthorized; too many tries are fault.RateLimited.
func (s *Service) RefreshToken(ctx context.Context, refresh, address string) (token Token, err error) {
	err = s.guardFailures(ctx, uuid.Nil, address, func() error {
		use, err := s.rotate(ctx, refresh)
		if err != nil {
			return err
		}
		token, err = s.answer(ctx, use.principal, use.family, use.successor)
		return err
	})
	return token, err
}

// refreshUse is what the use of a refresh token comes to.
type refreshUse struct {
	principal Principal
	family    uuid.UUID
	successor string
}

// rotate puts the successor in a token's place. What a second use revokes is
// committed, so it is no error of the transaction.
func (s *Service) rotate(ctx context.Context, refresh string) (*refreshUse, error) {
	var use *refreshUse
	ctx = postgres.AsSystem(ctx) // the token says whose it is
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

// rotateTx returns nil for a token that is no longer good for anything.
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
	if _, err := s.take(ctx, tx, row.ClientID, Limit{limitTokens, tokensPerMinute}); err != nil {
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

// revokeFamilyTx ends a family of which a used token was presented: either its
// holder or somebody else has stolen it.
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

// successorGiven returns the successor that a used token was given, which may
// have been under another master key than the first of now.
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

// successor is the refresh token that follows another: only who holds the
// server's key can compute it, and nothing needs to be kept for it.
func successor(key []byte, refresh string) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(refresh))
	return refreshTokenPrefix + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

func errWrongRefreshToken() error {
	return fault.New(fault.Unauthorized, "the refresh token is invalid, has expired or was used")
}
