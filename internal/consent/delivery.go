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

// Deliver sends the message of a one-time password, if it is still wanted and
// valid; else it wipes it. An error asks for another try, which comes to an end
// at the latest when the password expires. A message may be sent twice when a
// provider answers late or this process dies: with the same id, so that the
// provider can tell.
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
		return s.giveUp(ctx, d, expiredUnsent)
	}
	text, err := s.Keys.Open(row.Message, passwordTable, tenantID.String(), otpID.String())
	if errors.Is(err, secret.ErrUnknownKey) { // another process may have it: keys are replaced in one after the other
		return fmt.Errorf("open the message of code %s: %w", otpID, err)
	}
	if err != nil {
		return s.giveUp(ctx, d, "the sealed message is broken")
	}
	var letter sealedMessage
	if err := json.Unmarshal(text, &letter); err != nil {
		return s.giveUp(ctx, d, "the message cannot be read")
	}
	sending, cancel := context.WithTimeout(ctx, valid) // never sent late
	defer cancel()
	receipt, err := s.Senders.Send(sending, message.Message{
		ID: otpID.String(), Channel: message.Channel(row.ContactMethod), To: letter.To, Subject: letter.Subject, Text: letter.Text,
	})
	if refused, ok := errors.AsType[*message.Error](err); ok && refused.Permanent {
		return s.giveUp(ctx, d, refused.Reason)
	}
	if err != nil {
		s.Log.WarnContext(ctx, "a code could not be sent and will be tried again", "otpId", otpID.String(), "error", err)
		return err
	}
	return s.recordSent(ctx, d, receipt)
}

// expiredUnsent is why a message is wiped that nothing else has wiped.
const expiredUnsent = "the code expired before it could be sent"

// unsentPage is how many expired messages one sweep wipes at most.
const unsentPage = 1000

// WipeExpired wipes the messages that outlived their code because no delivery
// came to its end: its job was discarded. One that cannot be wiped does not keep
// the others.
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
		err := s.giveUp(ctx, delivery{
			tenantID: row.TenantID, otpID: row.ID, authorizationID: row.AuthorizationID, method: row.ContactMethod, contact: row.ContactMasked,
		}, expiredUnsent)
		if err != nil {
			failures = append(failures, fmt.Errorf("wipe the message of code %s: %w", row.ID, err))
		}
	}
	return errors.Join(failures...)
}

// delivery is one message on its way.
type delivery struct {
	tenantID, otpID, authorizationID uuid.UUID
	method, contact                  string
}

func (d delivery) content() map[string]any {
	return map[string]any{"otpId": d.otpID.String(), "contactMethod": d.method, "contact": d.contact}
}

// recordSent wipes the message and keeps what the provider said.
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

// giveUp wipes a message that will not be sent.
func (s *Service) giveUp(ctx context.Context, d delivery, reason string) error {
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

// conclude records the end of a delivery, unless another run of the job did or
// the authorization was deleted meanwhile: nothing personal is written then.
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
