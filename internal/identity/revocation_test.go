package identity_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"tranche/internal/fault"
	"tranche/internal/identity"
	"tranche/internal/pgtest"
)

func (b *bundle) inTx(t *testing.T, work func(pgx.Tx) error) {
	t.Helper()
	require.NoError(t, pgx.BeginFunc(t.Context(), b.pool, work))
}

// What is revoked ends on every replica within 5 s, also on one that has
// verified the token before; other clients and tenants go on.
func TestRevocation(t *testing.T) {
	t.Parallel()
	for name, revoke := range map[string]func(*bundle, pgx.Tx) error{
		"client": func(b *bundle, tx pgx.Tx) error {
			client, err := identity.FindClient(t.Context(), tx, b.credentials.ClientID.String())
			if err != nil {
				return err
			}
			return identity.RevokeClient(t.Context(), tx, client)
		},
		"tenant": func(b *bundle, tx pgx.Tx) error { return identity.RevokeTenant(t.Context(), tx, b.tenant) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			other, err := identity.CreateTenant(t.Context(), b.pool, "other")
			require.NoError(t, err)
			stranger := b.createClient(t, identity.NewClient{Tenant: other, Name: "other", Scopes: identity.Scopes()})
			strangers, err := b.service.IssueToken(t.Context(), stranger.ClientID.String(), stranger.Secret, address)
			require.NoError(t, err)
			token := b.token(t)
			replicas := []*identity.Service{b.service, b.replica(t), b.replica(t)}
			for _, replica := range replicas {
				_, err := replica.Verify(t.Context(), token.AccessToken)
				require.NoError(t, err)
			}
			b.inTx(t, func(tx pgx.Tx) error { return revoke(b, tx) })
			b.inTx(t, func(tx pgx.Tx) error { return revoke(b, tx) }) // twice is once
			require.Equal(t, []string{name + ".revoke"}, b.actions(t, name+".revoke"))

			b.now = b.now.Add(5 * time.Second)
			for _, replica := range append(replicas, b.replica(t)) {
				_, err := replica.Verify(t.Context(), token.AccessToken)
				require.ErrorIs(t, err, fault.Unauthorized)
				_, err = replica.Verify(t.Context(), strangers.AccessToken)
				require.NoError(t, err)
			}
			_, err = b.refresh(t, token.RefreshToken)
			require.ErrorIs(t, err, fault.Unauthorized)
			_, err = b.service.IssueToken(t.Context(), b.credentials.ClientID.String(), b.credentials.Secret, address)
			require.ErrorIs(t, err, fault.Unauthorized)
		})
	}
}

// A revocation is remembered for as long as there may be tokens that it ends.
func TestRevocationsAreRemembered(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.now = time.Now() // the database's clock says when somebody was revoked
	token := b.token(t).AccessToken
	for _, revokedAt := range []string{"now()", "now() - interval '1 hour'"} {
		pgtest.Exec(t, b.pool, `UPDATE clients SET revoked_at = `+revokedAt)
		for range 2 {
			b.now = b.now.Add(5 * time.Second)
			_, err := b.service.Verify(t.Context(), token)
			require.ErrorIs(t, err, fault.Unauthorized)
		}
	}
}

// A revocation whose transaction took minutes is taken up too.
func TestRevocationThatCommitsLate(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t).AccessToken
	_, err := b.service.Verify(t.Context(), token)
	require.NoError(t, err)
	pgtest.RevokeClients(t, b.pool, b.tenant.ID, 4*time.Minute)
	b.now = b.now.Add(5 * time.Second)
	_, err = b.service.Verify(t.Context(), token)
	require.ErrorIs(t, err, fault.Unauthorized)
}

// A replica that cannot ask says so instead of trusting what it knew.
func TestStaleRevocationsRefuseTokens(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t).AccessToken
	b.pool.Close()
	b.now = b.now.Add(3 * time.Second)
	_, err := b.service.Verify(t.Context(), token)
	require.NoError(t, err)
	b.now = b.now.Add(time.Second)
	_, err = b.service.Verify(t.Context(), token)
	require.ErrorIs(t, err, fault.Unavailable)
}

// Who meets a reading that began for others and fails has one of its own.
func TestFailedReloadOfAnotherRequest(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t).AccessToken
	_, err := b.service.Verify(t.Context(), token)
	require.NoError(t, err)
	tx, err := b.pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	pgtest.Exec(t, tx, `LOCK TABLE tenant_limits`)
	b.now = b.now.Add(3 * time.Second)
	_, err = b.service.Verify(t.Context(), token) // begins to read, and does not wait
	require.NoError(t, err)
	b.now = b.now.Add(time.Second)
	verified := make(chan error, 1)
	go func() {
		_, err := b.service.Verify(t.Context(), token)
		verified <- err
	}()
	readers := map[int]bool{}
	require.Eventually(t, func() bool {
		var pid *int
		require.NoError(t, b.pool.QueryRow(t.Context(), `SELECT max(pid) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&pid))
		if pid != nil {
			readers[*pid] = true
		}
		return len(readers) == 2
	}, 10*time.Second, 10*time.Millisecond)
	require.NoError(t, tx.Rollback(t.Context()))
	require.NoError(t, <-verified)
}

func TestRotateSecret(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.credentials.ClientID.String()
	rotate := func(alone bool) (made identity.Credentials) {
		b.inTx(t, func(tx pgx.Tx) error {
			client, err := identity.FindClient(t.Context(), tx, id)
			require.NoError(t, err)
			made, err = identity.RotateSecret(t.Context(), tx, client, alone)
			return err
		})
		return made
	}
	works := func(secrets ...string) (working []bool) {
		for _, secret := range secrets {
			_, err := b.service.IssueToken(t.Context(), id, secret, address)
			working = append(working, err == nil)
		}
		return working
	}
	other := b.createClient(t, identity.NewClient{Tenant: b.tenant, Name: "another", Scopes: identity.RoleDeveloper.Scopes()})
	first := b.credentials.Secret
	second := rotate(false).Secret
	require.Equal(t, []bool{true, true}, works(first, second))
	third := rotate(false).Secret
	require.Equal(t, []bool{false, true, true}, works(first, second, third), "two live at most")
	fourth := rotate(true).Secret
	require.Equal(t, []bool{false, false, true}, works(second, third, fourth))
	require.Len(t, b.actions(t, "client.rotate"), 3)
	_, err := b.service.IssueToken(t.Context(), other.ClientID.String(), other.Secret, address)
	require.NoError(t, err, "another client's secret stays")

	b.inTx(t, func(tx pgx.Tx) error {
		client, err := identity.FindClient(t.Context(), tx, id)
		require.NoError(t, err)
		require.NoError(t, identity.RevokeClient(t.Context(), tx, client))
		client, err = identity.FindClient(t.Context(), tx, id)
		require.NoError(t, err)
		require.NotNil(t, client.RevokedAt)
		_, err = identity.RotateSecret(t.Context(), tx, client, false)
		require.ErrorIs(t, err, fault.Conflict)

		require.NoError(t, identity.RevokeTenant(t.Context(), tx, b.tenant))
		client, err = identity.FindClient(t.Context(), tx, other.ClientID.String())
		require.NoError(t, err)
		_, err = identity.RotateSecret(t.Context(), tx, client, false)
		require.ErrorIs(t, err, fault.Conflict, "its tenant is revoked")
		return nil
	})
	for _, unknown := range []string{"acme", "0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11"} {
		_, err := identity.FindClient(t.Context(), b.pool, unknown)
		require.ErrorIs(t, err, fault.NotFound)
	}
}

// keyOf is the id of the key that signed a token.
func keyOf(t *testing.T, token string) string {
	t.Helper()
	signed, err := jose.ParseSignedCompact(token, []jose.SignatureAlgorithm{jose.ES256})
	require.NoError(t, err)
	return signed.Signatures[0].Header.KeyID
}

func (b *bundle) agedKeys(t *testing.T, by time.Duration) {
	t.Helper()
	pgtest.Exec(t, b.pool, `UPDATE signing_keys SET created_at = created_at - $1::interval, retired_at = retired_at - $1::interval`, by)
	b.now = b.now.Add(5 * time.Second)
	_, err := b.service.Admit(t.Context(), b.principal(), identity.LimitSingle) // whatever comes first loads the keys
	require.NoError(t, err)
}

// A new key is published before it signs; the old one verifies until its last
// token has expired.
func TestRotateKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.agedKeys(t, time.Hour)
	before := b.token(t).AccessToken
	old := keyOf(t, before)
	var made string
	b.inTx(t, func(tx pgx.Tx) (err error) {
		made, err = identity.RotateKey(t.Context(), tx, b.master)
		return err
	})
	published := func() (ids []string) {
		var set jose.JSONWebKeySet
		require.NoError(t, json.Unmarshal(b.keySet(t, b.service), &set))
		for _, key := range set.Keys {
			ids = append(ids, key.KeyID)
		}
		return ids
	}
	b.agedKeys(t, 0)
	require.Equal(t, []string{made, old}, published())
	require.Equal(t, old, keyOf(t, b.token(t).AccessToken), "others may not have the new key yet")
	b.agedKeys(t, 5*time.Minute)
	require.Equal(t, made, keyOf(t, b.token(t).AccessToken))
	require.Equal(t, made, keyOf(t, must(b.replica(t).IssueToken(t.Context(), b.credentials.ClientID.String(), b.credentials.Secret, address)).AccessToken))
	_, err := b.service.Verify(t.Context(), before)
	require.NoError(t, err)

	var next string // whose making gives the first no longer life
	b.inTx(t, func(tx pgx.Tx) (err error) {
		next, err = identity.RotateKey(t.Context(), tx, b.master)
		return err
	})
	b.agedKeys(t, 25*time.Hour)
	require.Equal(t, []string{next, made, old}, published())
	b.agedKeys(t, time.Minute)
	require.Equal(t, []string{next, made}, published())
	_, err = b.service.Verify(t.Context(), before)
	require.ErrorIs(t, err, fault.Unauthorized, "remembered tokens end with their key")
}

// A process that nobody called for long neither publishes nor signs with what
// the keys were then.
func TestIdleProcessLoadsNewKeys(t *testing.T) {
	t.Parallel()
	b := setup(t)
	idle := []*identity.Service{b.replica(t), b.replica(t), b.replica(t)}
	login := b.token(t)
	var made string
	b.inTx(t, func(tx pgx.Tx) (err error) {
		made, err = identity.ReplaceKeys(t.Context(), tx, b.master)
		return err
	})
	b.now = b.now.Add(5 * time.Second)
	require.Contains(t, string(b.keySet(t, idle[0])), made)
	require.Equal(t, made, keyOf(t, must(idle[1].IssueToken(t.Context(), b.credentials.ClientID.String(), b.credentials.Secret, address)).AccessToken))
	require.Equal(t, made, keyOf(t, must(idle[2].RefreshToken(t.Context(), login.RefreshToken, address)).AccessToken))

	b.pool.Close()
	b.now = b.now.Add(5 * time.Second)
	_, err := idle[0].KeySet(t.Context())
	require.ErrorIs(t, err, fault.Unavailable)
}

func TestReplaceKeys(t *testing.T) {
	t.Parallel()
	b := setup(t)
	login := b.token(t)
	_, err := b.service.Verify(t.Context(), login.AccessToken)
	require.NoError(t, err)
	b.inTx(t, func(tx pgx.Tx) error {
		_, err := identity.ReplaceKeys(t.Context(), tx, b.master)
		return err
	})
	b.now = b.now.Add(5 * time.Second)
	_, err = b.service.Verify(t.Context(), login.AccessToken)
	require.ErrorIs(t, err, fault.Unauthorized)
	next, err := b.refresh(t, login.RefreshToken)
	require.NoError(t, err)
	_, err = b.service.Verify(t.Context(), next.AccessToken)
	require.NoError(t, err)
}
