package consent_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"tranche/internal/consent"
	"tranche/internal/message"
	"tranche/internal/pgtest"
	"tranche/internal/secret"
)

// An expired message that cannot be wiped does not keep those after it.
func TestWipeExpiredSkipsFailures(t *testing.T) {
	t.Parallel()
	o := open(t, secret.GenerateKey())
	var codes []uuid.UUID
	for i := range 3 {
		id := o.create(t)
		otpID := o.ask(t, id)
		_, err := o.pool.Exec(t.Context(), `UPDATE one_time_passwords SET expires_at = now() - $1::interval WHERE id = $2`,
			time.Duration(10-i)*time.Minute, otpID)
		require.NoError(t, err)
		codes = append(codes, otpID)
	}
	pgtest.Exec(t, o.pool, `ALTER TABLE one_time_passwords ADD CHECK (message IS NOT NULL OR id <> '`+codes[0].String()+`')`)
	require.ErrorContains(t, o.WipeExpired(t.Context()), codes[0].String())
	var sealed []uuid.UUID
	require.NoError(t, o.pool.QueryRow(t.Context(), `SELECT array_agg(id) FROM one_time_passwords WHERE message IS NOT NULL`).Scan(&sealed))
	require.Equal(t, codes[:1], sealed)
}

// ask asks for a code that nobody delivers yet.
func (o *office) ask(t *testing.T, id uuid.UUID) uuid.UUID {
	t.Helper()
	otp, err := o.StartSigning(t.Context(), o.tenantID, id, o.actor, consent.SigningRequest{
		Channel: message.Email, Value: id.String() + "@example.com", TemplateID: consent.DefaultTemplate,
	})
	require.NoError(t, err)
	return otp.ID
}

// isSealed reports whether the message of a code is still kept.
func (o *office) isSealed(t *testing.T, otpID uuid.UUID) (is bool) {
	t.Helper()
	require.NoError(t, o.pool.QueryRow(t.Context(), `SELECT message IS NOT NULL FROM one_time_passwords WHERE id = $1`, otpID).Scan(&is))
	return is
}

// A message is wiped as soon as it is not needed: when it was sent, when another
// code takes the place of its own, or with its authorization.
func TestMessagesAreWiped(t *testing.T) {
	t.Parallel()
	o := open(t, secret.GenerateKey())
	id := o.create(t)
	first := o.ask(t, id)
	require.True(t, o.isSealed(t, first))
	pgtest.AgeOneTimePasswords(t, o.pool, o.tenantID, 61*time.Second)
	second := o.ask(t, id)
	require.False(t, o.isSealed(t, first), "superseded")
	require.NoError(t, o.Deliver(t.Context(), o.tenantID, second))
	require.False(t, o.isSealed(t, second), "sent")

	deleted := o.create(t)
	third := o.ask(t, deleted)
	require.NoError(t, o.Delete(t.Context(), o.tenantID, deleted, o.actor))
	require.False(t, o.isSealed(t, third), "deleted")
}

// meeting is a sender that answers when all who are expected have come.
type meeting struct{ expected *sync.WaitGroup }

func (m meeting) Send(_ context.Context, msg message.Message) (message.Receipt, error) {
	m.expected.Done()
	m.expected.Wait()
	return message.Receipt{Provider: "meeting", MessageID: msg.ID}, nil
}

// Two that deliver the same message at once, because a job was taken over, record
// one delivery.
func TestDeliveriesAtOnceAreRecordedOnce(t *testing.T) {
	t.Parallel()
	o := open(t, secret.GenerateKey())
	id := o.create(t)
	otpID := o.ask(t, id)
	expected := &sync.WaitGroup{}
	expected.Add(2)
	together := o.Config
	together.Senders = message.Senders{message.Email: meeting{expected}}
	consents := consent.New(together)
	var group sync.WaitGroup
	for range 2 {
		group.Go(func() {
			if err := consents.Deliver(t.Context(), o.tenantID, otpID); err != nil {
				t.Errorf("deliver: %v", err)
			}
		})
	}
	group.Wait()
	require.Equal(t, []consent.Kind{consent.KindCreated, consent.KindCodeRequested, consent.KindCodeSent}, o.kinds(t, id))
}

// hurried is a sender that notes by when it has to be done.
type hurried struct{ until *time.Time }

func (h hurried) Send(ctx context.Context, _ message.Message) (message.Receipt, error) {
	*h.until, _ = ctx.Deadline()
	return message.Receipt{Provider: "hurried"}, nil
}

// A message that is on its way when its code expires is broken off.
func TestSendingEndsWithTheCode(t *testing.T) {
	t.Parallel()
	o := open(t, secret.GenerateKey())
	otpID := o.ask(t, o.create(t))
	pgtest.ExpireOneTimePassword(t, o.pool, otpID, -30*time.Second)
	var until time.Time
	hurry := o.Config
	hurry.Senders = message.Senders{message.Email: hurried{&until}}
	require.NoError(t, consent.New(hurry).Deliver(t.Context(), o.tenantID, otpID))
	require.WithinRange(t, until, time.Now(), time.Now().Add(30*time.Second))
}
