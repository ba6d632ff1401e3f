package consent_test

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"tranche/internal/consent"
	"tranche/internal/fault"
	"tranche/internal/message"
	"tranche/internal/pgtest"
	"tranche/internal/secret"
)

// code asks for a code, has it delivered and reads it.
func (o *office) code(t *testing.T, id uuid.UUID) (otpID uuid.UUID, code string) {
	t.Helper()
	otp, err := o.StartSigning(t.Context(), o.tenantID, id, o.actor, consent.SigningRequest{
		Channel: message.Email, Value: id.String() + "@example.com", TemplateID: consent.DefaultTemplate,
	})
	require.NoError(t, err)
	require.NoError(t, o.Deliver(t.Context(), o.tenantID, otp.ID))
	letter, err := os.ReadFile(filepath.Join(o.mailbox, otp.ID.String()+".email.eml"))
	require.NoError(t, err)
	found := regexp.MustCompile(`(?m)^([0-9]{6})\r?$`).FindSubmatch(letter)
	require.NotNil(t, found, "%s", letter)
	return otp.ID, string(found[1])
}

func (o *office) sign(t *testing.T, id uuid.UUID) {
	t.Helper()
	otpID, code := o.code(t, id)
	require.NoError(t, o.Attempt(t.Context(), o.tenantID, id, otpID, o.actor, code))
}

func wrong(code string) string {
	digit := '0' + (code[0]-'0'+1)%10
	return string(digit) + code[1:]
}

func (o *office) kinds(t *testing.T, id uuid.UUID) (kinds []consent.Kind) {
	t.Helper()
	e, err := o.Evidence(t.Context(), o.tenantID, id)
	require.NoError(t, err)
	require.True(t, e.Intact)
	for _, r := range e.Records {
		kinds = append(kinds, r.Kind)
	}
	return kinds
}

// hold locks an authorization, so that a signer waits for the end of the transaction.
func (o *office) hold(t *testing.T, id uuid.UUID) pgx.Tx {
	t.Helper()
	tx, err := o.pool.Begin(t.Context())
	require.NoError(t, err)
	pgtest.Exec(t, tx, `SELECT FROM authorizations WHERE id = $1 FOR UPDATE`, id)
	return tx
}

// awaitAttempt waits until the first attempt at a code has been counted.
func (o *office) awaitAttempt(t *testing.T, otpID uuid.UUID) {
	t.Helper()
	require.Eventually(t, func() bool {
		var attempts int
		err := o.pool.QueryRow(t.Context(), `SELECT attempts FROM one_time_passwords WHERE id = $1`, otpID).Scan(&attempts)
		return err == nil && attempts == 1
	}, 20*time.Second, 5*time.Millisecond)
}

// The evidence contains each counted attempt, even if the process ends before it records the
// result of the attempt.
func TestAttemptCountsBeforeItCompares(t *testing.T) {
	t.Parallel()
	for name, present := range map[string]func(code string) string{
		"wrong": wrong,
		"right": func(code string) string { return code },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := open(t, secret.GenerateKey())
			id := o.create(t)
			otpID, code := o.code(t, id)
			tx := o.hold(t, id)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- o.Attempt(ctx, o.tenantID, id, otpID, o.actor, present(code)) }()
			o.awaitAttempt(t, otpID)
			cancel()
			require.Error(t, <-ended)
			require.NoError(t, tx.Rollback(t.Context()))

			want := []consent.Kind{consent.KindCreated, consent.KindCodeRequested, consent.KindCodeSent, consent.KindCodeAttempted}
			require.Equal(t, want, o.kinds(t, id))
			require.NoError(t, o.Attempt(t.Context(), o.tenantID, id, otpID, o.actor, code))
			require.Equal(t, append(want, consent.KindCodeAttempted, consent.KindSigned), o.kinds(t, id))
			require.Nil(t, o.verify(t).Broken)
		})
	}
}

// A code that ends between its comparison and its use does not sign.
func TestCodeClosedDuringItsAttempt(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		end string
		err error
	}{
		"superseded":            {`UPDATE one_time_passwords SET superseded_at = now() WHERE authorization_id = $1`, fault.Conflict},
		"used":                  {`UPDATE one_time_passwords SET verified_at = now() WHERE authorization_id = $1`, fault.Conflict},
		"expired":               {`UPDATE one_time_passwords SET expires_at = now() WHERE authorization_id = $1`, fault.Invalid},
		"authorization signed":  {`UPDATE authorizations SET authorized_at = now() WHERE id = $1`, fault.Conflict},
		"authorization expired": {`UPDATE authorizations SET expires_at = now() WHERE id = $1`, fault.Conflict},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := open(t, secret.GenerateKey())
			id := o.create(t)
			otpID, code := o.code(t, id)
			tx := o.hold(t, id)
			ended := make(chan error, 1)
			go func() { ended <- o.Attempt(t.Context(), o.tenantID, id, otpID, o.actor, code) }()
			o.awaitAttempt(t, otpID)
			pgtest.Exec(t, tx, tc.end, id)
			require.NoError(t, tx.Commit(t.Context()))
			require.ErrorIs(t, <-ended, tc.err)
			require.NotContains(t, o.kinds(t, id), consent.KindSigned)
		})
	}
}

// A code is good for its own password and under the service's own key only: what is
// kept of it says nothing elsewhere.
func TestCodesAreBound(t *testing.T) {
	t.Parallel()
	o := open(t, secret.GenerateKey())
	id := o.create(t)
	first, old := o.code(t, id)
	pgtest.AgeOneTimePasswords(t, o.pool, o.tenantID, 61*time.Second)
	second, code := o.code(t, id)

	foreign := o.Config
	var err error
	foreign.Keys, err = secret.ParseKeys(secret.GenerateKey())
	require.NoError(t, err)
	require.ErrorIs(t, consent.New(foreign).Attempt(t.Context(), o.tenantID, id, second, o.actor, code), fault.Invalid)

	pgtest.Exec(t, o.pool, `UPDATE one_time_passwords SET code_hash = (SELECT code_hash FROM one_time_passwords WHERE id = $1)`, first)
	require.ErrorIs(t, o.Attempt(t.Context(), o.tenantID, id, second, o.actor, old), fault.Invalid)
}

// What is refused before it is compared leaves no trace in the chain: nobody
// can make it grow by trying.
func TestAttemptAtClosedCodeIsNotRecorded(t *testing.T) {
	t.Parallel()
	o := open(t, secret.GenerateKey())
	id := o.create(t)
	otpID, code := o.code(t, id)
	pgtest.Exec(t, o.pool, `UPDATE one_time_passwords SET expires_at = now()`)
	before := o.kinds(t, id)
	for range 3 {
		require.ErrorIs(t, o.Attempt(t.Context(), o.tenantID, id, otpID, o.actor, code), fault.Invalid)
	}
	require.Equal(t, before, o.kinds(t, id))
	attempts := pgtest.Value[int](t, o.pool, `SELECT attempts FROM one_time_passwords`)
	require.Zero(t, attempts, "what is closed does not count")
}

// commits counts the transactions that a pool commits.
type commits struct{ n atomic.Int32 }

// TraceQueryStart implements pgx.QueryTracer.
func (c *commits) TraceQueryStart(ctx context.Context, _ *pgx.Conn, query pgx.TraceQueryStartData) context.Context {
	if query.SQL == "commit" {
		c.n.Add(1)
	}
	return ctx
}

// TraceQueryEnd implements pgx.QueryTracer.
func (*commits) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// An attempt costs two transactions, a refused one none.
func TestAttemptIsTwoTransactions(t *testing.T) {
	t.Parallel()
	o := open(t, secret.GenerateKey())
	id := o.create(t)
	otpID, code := o.code(t, id)
	counter := &commits{}
	config := o.pool.Config()
	config.ConnConfig.Tracer = counter
	traced, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(traced.Close)
	quiet := o.Config
	quiet.Pool = traced
	consents := consent.New(quiet)
	for _, tc := range []struct {
		code    string
		err     error
		commits int32
	}{{wrong(code), fault.Invalid, 2}, {code, nil, 2}, {code, fault.Conflict, 0}} {
		counter.n.Store(0)
		require.ErrorIs(t, consents.Attempt(t.Context(), o.tenantID, id, otpID, o.actor, tc.code), tc.err)
		require.Equal(t, tc.commits, counter.n.Load())
	}
}
