package identity_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"tranche/internal/fault"
	"tranche/internal/identity"
	"tranche/internal/pgtest"
	"tranche/internal/secret"
)

// agedTokens moves the uses and ends of refresh tokens into the past.
func (b *bundle) agedTokens(t *testing.T, by time.Duration) {
	t.Helper()
	for _, table := range []string{"refresh_tokens", "refresh_token_families"} {
		statement := `UPDATE ` + table + ` SET created_at = created_at - $1::interval, expires_at = expires_at - $1::interval`
		if table == "refresh_tokens" {
			statement += `, used_at = used_at - $1::interval`
		}
		pgtest.Exec(t, b.pool, statement, by)
	}
}

func (b *bundle) refresh(t *testing.T, token string) (identity.Token, error) {
	t.Helper()
	return b.service.RefreshToken(t.Context(), token, address)
}

func TestRefresh(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first := b.token(t)
	second, err := b.refresh(t, first.RefreshToken)
	require.NoError(t, err)
	require.NotEqual(t, first.RefreshToken, second.RefreshToken)
	require.Regexp(t, `^tranche_refresh_[A-Za-z0-9_-]{43}$`, second.RefreshToken)
	require.Equal(t, 24*time.Hour, second.ExpiresIn)
	require.Equal(t, payload(t, first.AccessToken)["family"], payload(t, second.AccessToken)["family"])
	for _, token := range []identity.Token{first, second} {
		principal, err := b.service.Verify(t.Context(), token.AccessToken)
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(identity.RoleDeveloper.Scopes(), principal.Scopes))
	}
	third, err := b.replica(t).RefreshToken(t.Context(), second.RefreshToken, address)
	require.NoError(t, err)
	require.NotContains(t, []string{first.RefreshToken, second.RefreshToken}, third.RefreshToken)

	kept := pgtest.Text(t, b.pool, `SELECT string_agg(encode(token_hash, 'escape'), ' ') FROM refresh_tokens`)
	require.NotContains(t, kept, strings.TrimPrefix(third.RefreshToken, "tranche_refresh_"))
}

// A lost answer can be asked for again for 60 s; after that a used token means
// that two hold it, and everything of the login ends.
func TestUsedTokenReturnsTheSameSuccessor(t *testing.T) {
	t.Parallel()
	b := setup(t)
	login := b.token(t)
	other := b.token(t)
	next, err := b.refresh(t, login.RefreshToken)
	require.NoError(t, err)
	b.agedTokens(t, 58*time.Second)
	again, err := b.refresh(t, login.RefreshToken)
	require.NoError(t, err)
	require.Equal(t, next.RefreshToken, again.RefreshToken)

	b.agedTokens(t, 3*time.Second)
	_, err = b.refresh(t, login.RefreshToken)
	require.ErrorIs(t, err, fault.Unauthorized)
	_, err = b.refresh(t, next.RefreshToken)
	require.ErrorIs(t, err, fault.Unauthorized, "the family is revoked")
	b.now = b.now.Add(5 * time.Second)
	for _, access := range []string{login.AccessToken, next.AccessToken, again.AccessToken} {
		_, err = b.service.Verify(t.Context(), access)
		require.ErrorIs(t, err, fault.Unauthorized)
	}
	_, err = b.service.Verify(t.Context(), other.AccessToken)
	require.NoError(t, err, "another login goes on")
	_, err = b.refresh(t, other.RefreshToken)
	require.NoError(t, err)
	require.Equal(t, []string{"family.revoke"}, b.actions(t, "family."))
}

// The idle life of a token ends with its use, so that what holds of used tokens
// holds of old ones too.
func TestRefreshAgainAfterTheIdleLife(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const idle = 7 * 24 * time.Hour
	login := b.token(t)
	b.agedTokens(t, idle-30*time.Second)
	next, err := b.refresh(t, login.RefreshToken)
	require.NoError(t, err)
	b.agedTokens(t, 40*time.Second)
	again, err := b.refresh(t, login.RefreshToken)
	require.NoError(t, err, "a lost answer can be asked for again")
	require.Equal(t, next.RefreshToken, again.RefreshToken)

	b.agedTokens(t, idle-time.Hour)
	last, err := b.refresh(t, next.RefreshToken)
	require.NoError(t, err)
	_, err = b.refresh(t, login.RefreshToken)
	require.ErrorIs(t, err, fault.Unauthorized)
	_, err = b.refresh(t, last.RefreshToken)
	require.ErrorIs(t, err, fault.Unauthorized, "the family is revoked")
	require.Equal(t, []string{"family.revoke"}, b.actions(t, "family."))
}

// Twenty refreshes with one token at once, over replicas: all get the same.
func TestRefreshRace(t *testing.T) {
	t.Parallel()
	b := setup(t)
	login := b.token(t)
	replicas := []*identity.Service{b.service, b.replica(t), b.replica(t)}
	successors := make([]string, 20)
	var wait sync.WaitGroup
	for i := range successors {
		wait.Go(func() {
			token, err := replicas[i%3].RefreshToken(t.Context(), login.RefreshToken, address)
			if err == nil {
				successors[i] = token.RefreshToken
			}
		})
	}
	wait.Wait()
	for _, successor := range successors {
		require.Equal(t, successors[0], successor)
	}
	count := pgtest.Count(t, b.pool, "refresh_tokens", "")
	require.Equal(t, 2, count)
	_, err := b.refresh(t, successors[0])
	require.NoError(t, err)
}

func TestRefreshRefuses(t *testing.T) {
	t.Parallel()
	b := setup(t)
	login := b.token(t)
	for _, token := range []string{"", "x", login.AccessToken, login.RefreshToken + "x", b.credentials.Secret} {
		_, err := b.refresh(t, token)
		require.ErrorIs(t, err, fault.Unauthorized)
		require.Equal(t, "the refresh token is invalid, has expired or was used", err.Error())
	}
	for _, revoke := range []string{
		`UPDATE clients SET revoked_at = now()`,
		`UPDATE tenants SET revoked_at = now()`,
		`UPDATE refresh_token_families SET revoked_at = now()`,
	} {
		pgtest.Exec(t, b.pool, revoke)
		_, err := b.refresh(t, login.RefreshToken)
		require.ErrorIs(t, err, fault.Unauthorized, revoke)
		pgtest.Exec(t, b.pool, strings.Replace(revoke, "now()", "NULL", 1))
	}
	token, err := b.refresh(t, login.RefreshToken)
	require.NoError(t, err)
	for range 2 { // 8 failures so far
		_, err = b.refresh(t, "x")
		require.ErrorIs(t, err, fault.Unauthorized)
	}
	_, err = b.refresh(t, token.RefreshToken)
	require.ErrorIs(t, err, fault.RateLimited)
	_, err = b.service.RefreshToken(t.Context(), token.RefreshToken, "192.0.2.2")
	require.NoError(t, err)
}

// Refreshes count among the 60 tokens a minute of a client.
func TestRefreshesAreLimited(t *testing.T) {
	t.Parallel()
	b := setup(t)
	login := b.token(t)
	for range 59 {
		_, err := b.refresh(t, login.RefreshToken)
		require.NoError(t, err)
	}
	_, err := b.refresh(t, login.RefreshToken)
	require.ErrorIs(t, err, fault.RateLimited)
}

func TestRefreshTokensExpire(t *testing.T) {
	t.Parallel()
	b := setup(t)
	unused := b.token(t).RefreshToken
	b.agedTokens(t, 7*24*time.Hour)
	_, err := b.refresh(t, unused)
	require.ErrorIs(t, err, fault.Unauthorized, "idle for 7 days")

	token := b.token(t).RefreshToken
	for day := 0; day < 30; day += 6 { // never idle for long
		next, err := b.refresh(t, token)
		require.NoError(t, err, "day %d", day)
		token = next.RefreshToken
		b.agedTokens(t, 6*24*time.Hour)
	}
	_, err = b.refresh(t, token)
	require.ErrorIs(t, err, fault.Unauthorized, "30 days are the end of a login")

	b.agedTokens(t, 3*24*time.Hour)
	b.token(t)
	families := pgtest.Count(t, b.pool, "refresh_token_families", "")
	require.Equal(t, 1, families, "a login sweeps what ended")
}

// The successor stays the same when the master key is replaced meanwhile.
func TestRefreshUnderANewMasterKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	old := secret.GenerateKey()
	start := func(keys string) *identity.Service {
		master, err := secret.ParseKeys(keys)
		require.NoError(t, err)
		pgtest.Exec(t, b.pool, `DELETE FROM signing_keys`)
		service, err := identity.New(t.Context(), b.pool, identity.Config{Issuer: issuer, Keys: master, Clock: func() time.Time { return b.now }})
		require.NoError(t, err)
		return service
	}
	login := b.token(t)
	next, err := start(old).RefreshToken(t.Context(), login.RefreshToken, address)
	require.NoError(t, err)
	again, err := start(secret.GenerateKey()+","+old).RefreshToken(t.Context(), login.RefreshToken, address)
	require.NoError(t, err)
	require.Equal(t, next.RefreshToken, again.RefreshToken)
}

// actions are those recorded of the tenant that begin with a prefix.
func (b *bundle) actions(t *testing.T, prefix string) []string {
	t.Helper()
	rows, err := b.pool.Query(t.Context(), `SELECT action FROM audit_events WHERE tenant_id = $1 AND action LIKE $2 || '%' ORDER BY id`, b.tenant.ID, prefix)
	require.NoError(t, err)
	actions, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return actions
}
