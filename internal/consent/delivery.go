package consent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"tranche/internal/fault"
	"tranche/internal/message"
	"tranche/internal/postgres"
	"tranche/internal/secret"
	"tranche/queries"
)

// Deliver sends the message of a one-time password if the password is open and valid.
// Otherwise it wipes the message. After an error the job tries again, at most until the
// password expires. If a provider responds late or this process dies, the message can be
// sent twice. It has the same id both times, so that the provider can detect this.
func (s *Service) Deliver(ctx context.Context, tenantID, otpID uuid.UUID) error {
	row, err := s.q.OTPGetForDelivery(ctx, s.Pool, queries.OTPGetForDeliveryParams{TenantID: tenantID, ID: otpID})
	if errors.Is(err, pgx.ErrNoRows) {
		return nil // sent, superseded, used or deleted
	}
	if err != nil {
		return fmt.Errorf("read code %s: %w", otpID, postgres.Translate(err))
	}
	d := delivery{tenantID: tenantID, otpID: otpID, authorizationID: row.AuthorizationID, method: row.ContactMethod, contact: row.ContactMasked}
	valid := time.Duration(row.ValidSeconds * float64(time.Second))
	if valid <= 0 {
		return s.abandon(ctx, d, expiredUnsent)
	}
	text, err := s.Keys.Open(row.Message, passwordTable, tenantID.String(), otpID.String())
	if errors.Is(err, secret.ErrUnknownKey) { // during a key rotation another process may have the key
		return fmt.Errorf("open the message of code %s: %w", otpID, err)
	}
	if err != nil {
		return s.abandon(ctx, d, "the sealed message is corrupt")
	}
	var letter sealedMessage
	if err := json.Unmarshal(text, &letter); err != nil {
		return s.abandon(ctx, d, "the message cannot be read")
	}
	sending, cancel := context.WithTimeout(ctx, valid) // never send an expired code
	defer cancel()
	receipt, err := s.Senders.Send(sending, message.Message{
		ID: otpID.String(), Channel: message.Channel(row.ContactMethod), To: letter.To, Subject: letter.Subject, Text: letter.Text,
	})
	if refused, ok := errors.AsType[*message.Error](err); ok && refused.Permanent {
		return s.abandon(ctx, d, refused.Reason)
	}
	if err != nil {
		s.Log.WarnContext(ctx, "a code could not be sent; trying again", "otpId", otpID.String(), "error", err)
		return err
	}
	return s.recordSent(ctx, d, receipt)
}

// expiredUnsent is the reason for wiping a message after its code expired.
const expiredUnsent = "the code expired before it could be sent"

// unsentPage is the most expired messages that one sweep wipes.
const unsentPage = 1000

// WipeExpired wipes messages of expired codes. They exist if the job of a delivery was
// discarded. A message that cannot be wiped does not block the others.
func (s *Service) WipeExpired(ctx context.Context) error {
	rows, err := s.q.SysOTPListUnsent(ctx, s.Pool, unsentPage)
	if err != nil {
		return fmt.Errorf("list expired messages: %w", postgres.Translate(err))
	}
	var failures []error
	for _, row := range rows {
		if ctx.Err() != nil {
			return errors.Join(append(failures, ctx.Err())...)
		}
		err := s.abandon(ctx, delivery{
			tenantID: row.TenantID, otpID: row.ID, authorizationID: row.AuthorizationID, method: row.ContactMethod, contact: row.ContactMasked,
		}, expiredUnsent)
		if err != nil {
			failures = append(failures, fmt.Errorf("wipe the message of code %s: %w", row.ID, err))
		}
	}
	return errors.Join(failures...)
}

// delivery is the delivery of one message.
type delivery struct {
	tenantID, otpID, authorizationID uuid.UUID
	method, contact                  string
}

func (d delivery) content() map[string]any {
	return map[string]any{"otpId": d.otpID.String(), "contactMethod": d.method, "contact": d.contact}
}

// recordSent wipes the message and records the provider's receipt.
func (s *Service) recordSent(ctx context.Context, d delivery, receipt message.Receipt) error {
	return s.conclude(ctx, d, func(tx pgx.Tx) (Kind, map[string]any, error) {
		at, err := s.q.OTPSetSent(ctx, tx, queries.OTPSetSentParams{
			TenantID: d.tenantID, ID: d.otpID, Provider: &receipt.Provider, ProviderMessageID: queries.Optional(receipt.MessageID),
		})
		content := d.content()
		content["sentAt"], content["provider"], content["providerMessageId"] = moment(at), receipt.Provider, receipt.MessageID
		return KindCodeSent, content, err
	})
}

// abandon wipes a message that will not be sent.
func (s *Service) abandon(ctx context.Context, d delivery, reason string) error {
	s.Log.WarnContext(ctx, "a code was not sent", "otpId", d.otpID.String(), "reason", reason)
	return s.conclude(ctx, d, func(tx pgx.Tx) (Kind, map[string]any, error) {
		rows, err := s.q.OTPSetFailed(ctx, tx, queries.OTPSetFailedParams{TenantID: d.tenantID, ID: d.otpID})
		if err == nil && rows == 0 {
			err = pgx.ErrNoRows
		}
		content := d.content()
		content["reason"] = reason
		return KindDeliveryFailed, content, err
	})
}

// conclude records the end of a delivery. It does nothing if another run of the job has
// recorded it. It also does nothing if the authorization was deleted, because the record
// would contain personal data.
func (s *Service) conclude(ctx context.Context, d delivery, write func(pgx.Tx) (Kind, map[string]any, error)) error {
	err := postgres.InTx(ctx, s.Pool, func(tx pgx.Tx) error {
		if _, err := s.lock(ctx, tx, d.tenantID, d.authorizationID); err != nil {
			return err
		}
		kind, content, err := write(tx)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("record the delivery of code %s: %w", d.otpID, err)
		}
		return s.appendTx(ctx, tx, d.tenantID, d.authorizationID, kind, content)
	})
	if errors.Is(err, fault.NotFound) {
		return nil
	}
	return err
}
