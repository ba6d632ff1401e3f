package consent

import (
	"context"
	"encoding/hex"
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

// Attempt signs an authorization with a code. It first counts the attempt and appends its
// evidence, and commits. Only then does it compare the code. So at most maxAttempts
// concurrent attempts are compared, one of them signs, and a crash never restores an
// attempt. Errors:
//   - fault.Invalid: wrong or expired code
//   - fault.Conflict: the code has no attempts left, was used or is superseded, or the
//     authorization is signed or expired
//   - fault.NotFound: unknown authorization or password
func (s *Service) Attempt(ctx context.Context, tenantID, authorizationID, otpID uuid.UUID, actor Actor, code string) error {
	counted, err := s.count(ctx, tenantID, authorizationID, otpID, actor)
	if errors.Is(err, pgx.ErrNoRows) {
		return s.whyClosed(ctx, s.Pool, tenantID, authorizationID, otpID)
	}
	if err != nil {
		return err
	}
	if !s.isCode(counted.CodeHash, tenantID, authorizationID, otpID, code) {
		return s.reject(ctx, tenantID, authorizationID, otpID, counted)
	}
	return postgres.InTx(ctx, s.Pool, func(tx pgx.Tx) error {
		return s.signTx(ctx, tx, tenantID, authorizationID, otpID, actor)
	})
}

// count counts an attempt at an open password, or returns pgx.ErrNoRows. An attempt at a
// closed password is not compared and not recorded, so that guessing cannot grow the
// chain.
func (s *Service) count(ctx context.Context, tenantID, authorizationID, otpID uuid.UUID, actor Actor) (counted queries.OTPAttemptRow, err error) {
	err = postgres.InTx(ctx, s.Pool, func(tx pgx.Tx) error {
		counted, err = s.q.OTPAttempt(ctx, tx, queries.OTPAttemptParams{TenantID: tenantID, ID: otpID, AuthorizationID: authorizationID})
		if err != nil {
			return fmt.Errorf("count an attempt at %s: %w", otpID, err)
		}
		return s.appendTx(ctx, tx, tenantID, authorizationID, KindCodeAttempted, map[string]any{
			"otpId": otpID.String(), "attempt": counted.Attempts, "maxAttempts": counted.AttemptsMax, "by": actor.content(),
		})
	})
	return counted, err
}

// whyClosed returns the error for a password that is not open.
func (s *Service) whyClosed(ctx context.Context, db queries.DBTX, tenantID, authorizationID, otpID uuid.UUID) error {
	state, err := s.q.OTPGetState(ctx, db, queries.OTPGetStateParams{TenantID: tenantID, ID: otpID, AuthorizationID: authorizationID})
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return s.errUnknownPassword(ctx, db, tenantID, authorizationID)
	case err != nil:
		return fmt.Errorf("read the state of %s: %w", otpID, postgres.Translate(err))
	case state.VerifiedAt != nil:
		return fault.New(fault.Conflict, "the one-time password has been used")
	case state.AuthorizedAt != nil:
		return fault.New(fault.Conflict, "the authorization is already signed")
	case state.SupersededAt != nil:
		return fault.New(fault.Conflict, "the one-time password has been superseded; request another one")
	case state.IsAuthorizationExpired:
		return errAuthorizationExpired()
	case state.Attempts >= state.AttemptsMax:
		return fault.New(fault.Conflict, "this one-time password has no attempts left; request another one")
	default:
		return fault.New(fault.Invalid, "the one-time password has expired; request another one")
	}
}

// errUnknownPassword returns the error for an unknown authorization or password.
func (s *Service) errUnknownPassword(ctx context.Context, db queries.DBTX, tenantID, authorizationID uuid.UUID) error {
	if _, err := s.get(ctx, db, tenantID, authorizationID); err != nil {
		return err
	}
	return fault.New(fault.NotFound, "there is no such one-time password")
}

// reject records a wrong code and returns an error with the number of attempts left.
func (s *Service) reject(ctx context.Context, tenantID, authorizationID, otpID uuid.UUID, counted queries.OTPAttemptRow) error {
	err := postgres.InTx(ctx, s.Pool, func(tx pgx.Tx) error {
		if _, err := s.lock(ctx, tx, tenantID, authorizationID); err != nil {
			return err
		}
		return s.appendTx(ctx, tx, tenantID, authorizationID, KindCodeRejected, map[string]any{"otpId": otpID.String(), "attempt": counted.Attempts})
	})
	if err != nil {
		return err
	}
	switch left := counted.AttemptsMax - counted.Attempts; left {
	case 0:
		return fault.New(fault.Invalid, "the code is wrong; no attempts are left, request another code")
	case 1:
		return fault.New(fault.Invalid, "the code is wrong; 1 attempt is left")
	default:
		return fault.New(fault.Invalid, "the code is wrong; %d attempts are left", left)
	}
}

// signTx marks the password used and signs the authorization.
func (s *Service) signTx(ctx context.Context, tx pgx.Tx, tenantID, authorizationID, otpID uuid.UUID, actor Actor) error {
	a, err := s.lock(ctx, tx, tenantID, authorizationID)
	if err != nil {
		return err
	}
	if a.authorizedAt != nil || a.isExpired {
		return s.whyClosed(ctx, tx, tenantID, authorizationID, otpID)
	}
	used, err := s.q.OTPVerify(ctx, tx, queries.OTPVerifyParams{TenantID: tenantID, ID: otpID})
	if errors.Is(err, pgx.ErrNoRows) {
		return s.whyClosed(ctx, tx, tenantID, authorizationID, otpID)
	}
	if err != nil {
		return fmt.Errorf("use %s: %w", otpID, err)
	}
	at, err := s.q.AuthorizationSign(ctx, tx, queries.AuthorizationSignParams{TenantID: tenantID, ID: authorizationID})
	if err != nil {
		return fmt.Errorf("sign authorization %s: %w", authorizationID, err)
	}
	attached, err := s.closeAttachmentsTx(ctx, tx, tenantID, authorizationID)
	if err != nil {
		return err
	}
	if err := audit.RecordTx(ctx, tx, tenantID, audit.ConsentSign, authorizationID.String()); err != nil {
		return err
	}
	return s.appendTx(ctx, tx, tenantID, authorizationID, KindSigned, map[string]any{
		"otpId": otpID.String(), "authorizedAt": moment(at), "attempt": used.Attempts,
		"contactMethod": used.ContactMethod, "contact": used.ContactMasked, "contactHash": hex.EncodeToString(used.ContactHash),
		"templateHash": hex.EncodeToString(used.TemplateHash), "sentAt": momentOrNil(used.SentAt),
		"provider": queries.Value(used.Provider), "providerMessageId": queries.Value(used.ProviderMessageID),
		"authorization": a.evidence(), "attachments": attached, "by": actor.content(),
	})
}

func momentOrNil(t *time.Time) any {
	if t == nil {
		return nil
	}
	return moment(*t)
}

// Signature is a completed signing.
type Signature struct {
	OTPID             uuid.UUID
	ContactMethod     string
	Contact           string // masked
	TemplateID        string
	ClientID          uuid.UUID
	RequestedAt       time.Time
	SentAt            *time.Time // nil: the provider has not responded
	Provider          string
	ProviderMessageID string
	Attempts          int
	SignedAt          time.Time
}

// Signatures returns the signature of an authorization, or none.
func (s *Service) Signatures(ctx context.Context, tenantID, authorizationID uuid.UUID) ([]Signature, error) {
	if _, err := s.Get(ctx, tenantID, authorizationID); err != nil {
		return nil, err
	}
	rows, err := s.q.SignatureList(ctx, s.Pool, queries.SignatureListParams{TenantID: tenantID, AuthorizationID: authorizationID})
	if err != nil {
		return nil, readError(err, "list the signatures of authorization %s", authorizationID)
	}
	signatures := make([]Signature, len(rows))
	for i, row := range rows {
		signatures[i] = Signature{
			OTPID: row.ID, ContactMethod: row.ContactMethod, Contact: row.ContactMasked, TemplateID: row.TemplateID, ClientID: row.ClientID,
			RequestedAt: row.CreatedAt, SentAt: row.SentAt, Provider: queries.Value(row.Provider), ProviderMessageID: queries.Value(row.ProviderMessageID),
			Attempts: int(row.Attempts), SignedAt: *row.VerifiedAt,
		}
	}
	return signatures, nil
}
