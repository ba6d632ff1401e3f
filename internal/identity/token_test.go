package identity_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"tranche/internal/fault"
	"tranche/internal/identity"
	"tranche/internal/pgtest"
	"tranche/internal/secret"
)

const (
	issuer  = "https://tranche.example"
	address = "192.0.2.1"
)

type bundle struct {
	pool        *pgxpool.Pool
	master      *secret.Keyring
	now         time.Time
	service     *identity.Service
	tenant      identity.Tenant
	credentials identity.Credentials
}

// setup returns a service with one tenant and one developer's client, and a
// clock that stands still unless the test moves it.
func setup(t *testing.T) *bundle {
	t.Helper()
	b := &bundle{pool: pgtest.Pool(t), now: time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)}
	var err error
	b.master, err = secret.ParseKeys(secret.GenerateKey())
	require.NoError(t, err)
	b.service = b.replica(t)
	b.tenant, err = identity.CreateTenant(t.Context(), b.pool, "acme")
	require.NoError(t, err)
	b.credentials = b.createClient(t, identity.NewClient{
		Tenant: b.tenant, Name: "back office", Scopes: identity.RoleDeveloper.Scopes(), IsSandbox: true,
	})
	return b
}

// replica returns another service on the same database.
func (b *bundle) replica(t *testing.T) *identity.Service {
	t.Helper()
	service, err := identity.New(t.Context(), b.pool, identity.Config{
		Issuer: issuer, Keys: b.master, Clock: func() time.Time { return b.now },
	})
	require.NoError(t, err)
	return service
}

func (b *bundle) createClient(t *testing.T, client identity.NewClient) identity.Credentials {
	t.Helper()
	var credentials identity.Credentials
	require.NoError(t, pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) (err error) {
		credentials, err = identity.CreateClient(t.Context(), tx, client)
		return err
	}))
	return credentials
}

func (b *bundle) token(t *testing.T) identity.Token {
	t.Helper()
	token, err := b.service.IssueToken(t.Context(), b.credentials.ClientID.String(), b.credentials.Secret, address)
	require.NoError(t, err)
	return token
}

// signingKey opens the service's key, as only a holder of the master key can.
func (b *bundle) signingKey(t *testing.T) (id string, private *ecdsa.PrivateKey) {
	t.Helper()
	var sealed []byte
	require.NoError(t, b.pool.QueryRow(t.Context(), `SELECT id, private_key FROM signing_keys`).Scan(&id, &sealed))
	der, err := b.master.Open(sealed, "signing_keys", id)
	require.NoError(t, err)
	parsed, err := x509.ParsePKCS8PrivateKey(der)
	require.NoError(t, err)
	private, ok := parsed.(*ecdsa.PrivateKey)
	require.True(t, ok)
	return id, private
}

func (b *bundle) keySet(t *testing.T, service *identity.Service) []byte {
	t.Helper()
	document, err := service.KeySet(t.Context())
	require.NoError(t, err)
	return document
}

func payload(t *testing.T, token string) map[string]any {
	t.Helper()
	text, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	require.NoError(t, err)
	var claims map[string]any
	require.NoError(t, json.Unmarshal(text, &claims))
	return claims
}

func TestIssueToken(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t)

	require.Equal(t, 24*time.Hour, token.ExpiresIn)
	require.Equal(t, b.now.Add(24*time.Hour), token.ExpiresAt)
	claims := payload(t, token.AccessToken)
	for _, id := range []string{"jti", "family"} {
		require.NotEmpty(t, claims[id])
		delete(claims, id)
	}
	at := float64(b.now.Unix())
	require.Empty(t, cmp.Diff(map[string]any{
		"iss": issuer, "aud": issuer,
		"sub": b.credentials.ClientID.String(), "client_id": b.credentials.ClientID.String(),
		"tenant": b.tenant.ID.String(), "tenant_slug": "acme", "sandbox": true,
		"scope": "workflows:read workflows:write workflows:publish executions:run executions:read executions:data " +
			"batches:run batches:read schedules:write secrets:write templates:write",
		"iat": at, "nbf": at, "exp": at + 86400,
	}, claims))

	principal, err := b.service.Verify(t.Context(), token.AccessToken)
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(identity.Principal{
		TenantID: b.tenant.ID, TenantSlug: "acme", ClientID: b.credentials.ClientID,
		Scopes: identity.RoleDeveloper.Scopes(), IsSandbox: true,
	}, principal))
	require.True(t, principal.Has(identity.ScopeWorkflowsPublish))
	require.False(t, principal.Has(identity.ScopeAuditRead))
}

func TestSecretsAreKeptAsHashesOnly(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t)
	require.Regexp(t, `^tranche_secret_[A-Za-z0-9_-]{43}$`, b.credentials.Secret)
	require.Regexp(t, `^tranche_refresh_[A-Za-z0-9_-]{43}$`, token.RefreshToken)

	hash := sha256.Sum256([]byte(b.credentials.Secret))
	kept := pgtest.Value[[]byte](t, b.pool, `SELECT secret_hash FROM client_secrets`)
	require.Equal(t, hash[:], kept)

	hash = sha256.Sum256([]byte(token.RefreshToken))
	var idle, absolute time.Duration
	require.NoError(t, b.pool.QueryRow(t.Context(), `
		SELECT token_hash, t.expires_at - t.created_at, f.expires_at - f.created_at
		FROM refresh_tokens t JOIN refresh_token_families f ON f.id = t.family_id`).Scan(&kept, &idle, &absolute))
	require.Equal(t, hash[:], kept)
	require.Equal(t, 7*24*time.Hour, idle)
	require.Equal(t, 30*24*time.Hour, absolute)
}

func TestIssueTokenRefuses(t *testing.T) {
	t.Parallel()
	b := setup(t)
	other := b.createClient(t, identity.NewClient{Tenant: b.tenant, Name: "other", Scopes: identity.Scopes()})
	id := b.credentials.ClientID.String()
	cases := map[string][2]string{
		"wrong secret":            {id, b.credentials.Secret + "x"},
		"no secret":               {id, ""},
		"another client's secret": {id, other.Secret},
		"unknown client":          {uuid.NewString(), b.credentials.Secret},
		"malformed client":        {"acme", b.credentials.Secret},
		"in braces":               {"{" + id + "}", b.credentials.Secret},
		"as a URN":                {"urn:uuid:" + id, b.credentials.Secret},
		"in capitals":             {strings.ToUpper(id), b.credentials.Secret},
		"hash as the secret":      {id, string(make([]byte, sha256.Size))},
	}
	for name, c := range cases {
		_, err := b.service.IssueToken(t.Context(), c[0], c[1], address)
		require.ErrorIs(t, err, fault.Unauthorized, name)
		require.Equal(t, "the client id or the secret is wrong", err.Error(), name)
	}
	for _, revoke := range []string{
		`UPDATE client_secrets SET revoked_at = now()`,
		`UPDATE clients SET revoked_at = now()`,
		`UPDATE tenants SET revoked_at = now()`,
	} {
		b.token(t)
		pgtest.Exec(t, b.pool, revoke)
		_, err := b.service.IssueToken(t.Context(), id, b.credentials.Secret, address)
		require.ErrorIs(t, err, fault.Unauthorized, revoke)
		pgtest.Exec(t, b.pool, strings.Replace(revoke, "now()", "NULL", 1))
	}
}

// forge signs claims, changed by edit, with any key and header.
func forge(t *testing.T, key any, algorithm jose.SignatureAlgorithm, header map[jose.HeaderKey]any, claims map[string]any) string {
	t.Helper()
	options := &jose.SignerOptions{}
	for name, value := range header {
		options = options.WithHeader(name, value)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: key}, options)
	require.NoError(t, err)
	token, err := jwt.Signed(signer).Claims(claims).Serialize()
	require.NoError(t, err)
	if algorithm != jose.ES256 {
		return token
	}
	end := strings.LastIndexByte(token, '.') + 1
	return token[:end] + encode(lowS(must(base64.RawURLEncoding.DecodeString(token[end:]))))
}

func TestVerifyRefusesForgeries(t *testing.T) {
	t.Parallel()
	b := setup(t)
	good := b.token(t).AccessToken
	kid, private := b.signingKey(t)
	foreign, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	public, err := x509.MarshalPKIXPublicKey(&private.PublicKey)
	require.NoError(t, err)

	header := func(edit map[jose.HeaderKey]any) map[jose.HeaderKey]any {
		h := map[jose.HeaderKey]any{"typ": "at+jwt", "kid": kid}
		maps.Copy(h, edit)
		return h
	}
	with := func(edit map[string]any) string {
		claims := payload(t, good)
		for name, value := range edit {
			claims[name] = value
			if value == nil {
				delete(claims, name)
			}
		}
		return forge(t, private, jose.ES256, header(nil), claims)
	}
	_, err = b.service.Verify(t.Context(), with(nil))
	require.NoError(t, err, "the forger's tools work")

	parts := strings.Split(good, ".")
	none := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none","typ":"at+jwt","kid":"` + kid + `"}`))
	flip := func(part int) string {
		changed := append([]string(nil), parts...)
		last := len(changed[part]) / 2
		letter := "A"
		if changed[part][last] == 'A' {
			letter = "B"
		}
		changed[part] = changed[part][:last] + letter + changed[part][last+1:]
		return strings.Join(changed, ".")
	}
	now := b.now.Unix()
	cases := map[string]string{
		"empty":                     "",
		"not a token":               "Bearer",
		"alg none":                  none + "." + parts[1] + ".",
		"alg none, old signature":   none + "." + parts[1] + "." + parts[2],
		"HS256 with the key as DER": forge(t, public, jose.HS256, header(nil), payload(t, good)),
		"ES384":                     forge(t, must(ecdsa.GenerateKey(elliptic.P384(), rand.Reader)), jose.ES384, header(nil), payload(t, good)),
		"other key":                 forge(t, foreign, jose.ES256, header(nil), payload(t, good)),
		"other key, own jwk": forge(t, jose.JSONWebKey{Key: foreign, KeyID: kid}, jose.ES256,
			header(map[jose.HeaderKey]any{"jwk": jose.JSONWebKey{Key: &foreign.PublicKey}}), payload(t, good)),
		"foreign kid":         forge(t, private, jose.ES256, header(map[jose.HeaderKey]any{"kid": "foreign"}), payload(t, good)),
		"no kid":              forge(t, private, jose.ES256, map[jose.HeaderKey]any{"typ": "at+jwt"}, payload(t, good)),
		"wrong typ":           forge(t, private, jose.ES256, header(map[jose.HeaderKey]any{"typ": "JWT"}), payload(t, good)),
		"no typ":              forge(t, private, jose.ES256, map[jose.HeaderKey]any{"kid": kid}, payload(t, good)),
		"unknown crit":        forge(t, private, jose.ES256, header(map[jose.HeaderKey]any{"crit": []string{"x"}, "x": 1}), payload(t, good)),
		"wrong iss":           with(map[string]any{"iss": "https://other.example"}),
		"no iss":              with(map[string]any{"iss": nil}),
		"wrong aud":           with(map[string]any{"aud": []string{"https://other.example"}}),
		"no aud":              with(map[string]any{"aud": nil}),
		"expired":             with(map[string]any{"exp": now - 31}),
		"no exp":              with(map[string]any{"exp": nil}),
		"not yet valid":       with(map[string]any{"nbf": now + 31}),
		"no nbf":              with(map[string]any{"nbf": nil}),
		"no tenant":           with(map[string]any{"tenant": nil}),
		"tenant not an id":    with(map[string]any{"tenant": "acme"}),
		"no client":           with(map[string]any{"client_id": nil}),
		"sub another client":  with(map[string]any{"sub": uuid.NewString()}),
		"no jti":              with(map[string]any{"jti": nil}),
		"no family":           with(map[string]any{"family": nil}),
		"header tampered":     flip(0),
		"claims tampered":     flip(1),
		"signature tampered":  flip(2),
		"no signature":        parts[0] + "." + parts[1] + ".",
		"signature cut":       good[:len(good)-1],
		"cut in half":         good[:len(good)/2],
		"two parts":           parts[0] + "." + parts[1],
		"four parts":          good + "." + parts[2],
		"trailing line break": good + "\n",
		"line break within":   good[:20] + "\n" + good[20:],
		"padded":              good + "==",
		"too long":            good + strings.Repeat("A", 5000),
	}
	// The last letter of a signature of 64 bytes has four bits to spare.
	if last := good[len(good)-1]; strings.IndexByte("AQgw", last) >= 0 {
		cases["stray bits"] = good[:len(good)-1] + string(last+1)
	}
	for name, token := range cases {
		_, err := b.service.Verify(t.Context(), token)
		require.ErrorIs(t, err, fault.Unauthorized, name)
		require.Equal(t, "the access token is invalid or has expired", err.Error(), name)
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func TestVerifyChecksTheTime(t *testing.T) {
	t.Parallel()
	b := setup(t)
	issued := b.now
	token := b.token(t).AccessToken
	for _, c := range []struct {
		after time.Duration
		valid bool
	}{
		{0, true},
		{-30 * time.Second, true},
		{-31 * time.Second, false},
		{24*time.Hour + 29*time.Second, true},
		{24*time.Hour + 30*time.Second, false},
		{12 * time.Hour, true},
	} {
		b.now = issued.Add(c.after)
		// The first has not seen the token before, the second has.
		for _, service := range []*identity.Service{b.replica(t), b.service} {
			_, err := service.Verify(t.Context(), token)
			require.Equal(t, c.valid, err == nil, c.after)
		}
	}
}

func TestVerifyAsksNoDatabase(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tokens := []string{b.token(t).AccessToken, b.token(t).AccessToken}
	b.pool.Close()
	for range 3 {
		for _, token := range tokens {
			_, err := b.service.Verify(t.Context(), token)
			require.NoError(t, err)
		}
	}
	// Only a key that is not known yet needs the database, once a second.
	foreign := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	token := forge(t, foreign, jose.ES256, map[jose.HeaderKey]any{"typ": "at+jwt", "kid": "new"}, payload(t, tokens[0]))
	_, err := b.service.Verify(t.Context(), token)
	require.Error(t, err)
	require.NotErrorIs(t, err, fault.Unauthorized, "it could not be told")
	_, err = b.service.Verify(t.Context(), token)
	require.ErrorIs(t, err, fault.Unauthorized)
}

func TestReplicasShareKeys(t *testing.T) {
	t.Parallel()
	b := setup(t)
	services := make([]*identity.Service, 10)
	var wait sync.WaitGroup
	for i := range services {
		wait.Go(func() { services[i] = b.replica(t) })
	}
	wait.Wait()
	count := pgtest.Count(t, b.pool, "signing_keys", "")
	require.Equal(t, 1, count)

	token := b.token(t).AccessToken
	for _, service := range services {
		_, err := service.Verify(t.Context(), token)
		require.NoError(t, err)
	}
}

func TestVerifyFindsNewKeys(t *testing.T) {
	t.Parallel()
	b := setup(t)
	old := b.token(t).AccessToken
	pgtest.Exec(t, b.pool, `UPDATE signing_keys SET retired_at = now()`)
	newer := b.replica(t)
	token, err := newer.IssueToken(t.Context(), b.credentials.ClientID.String(), b.credentials.Secret, address)
	require.NoError(t, err)

	_, err = b.service.Verify(t.Context(), token.AccessToken)
	require.NoError(t, err, "a key of another process")
	_, err = newer.Verify(t.Context(), old)
	require.NoError(t, err, "a retired key still verifies")

	var set jose.JSONWebKeySet
	require.NoError(t, json.Unmarshal(b.keySet(t, newer), &set))
	require.Len(t, set.Keys, 2)
	pgtest.Exec(t, b.pool, `UPDATE signing_keys SET retired_at = now() - interval '26 hours' WHERE retired_at IS NOT NULL`)
	_, err = b.replica(t).Verify(t.Context(), old)
	require.ErrorIs(t, err, fault.Unauthorized)
}

func TestKeysNeedTheirMasterKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	other, err := secret.ParseKeys(secret.GenerateKey())
	require.NoError(t, err)
	start := func() error {
		_, err := identity.New(t.Context(), b.pool, identity.Config{Issuer: issuer, Keys: other, Clock: time.Now})
		return err
	}
	require.ErrorIs(t, start(), secret.ErrUnknownKey)

	other = b.master
	require.NoError(t, start())
	pgtest.Exec(t, b.pool, `INSERT INTO signing_keys (id, private_key) SELECT 'copy', private_key FROM signing_keys`)
	require.ErrorIs(t, start(), secret.ErrBroken, "a sealed key belongs to its row")
}

func TestKeySet(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t).AccessToken
	require.NotContains(t, string(b.keySet(t, b.service)), `"d"`, "no private part")

	var set jose.JSONWebKeySet
	require.NoError(t, json.Unmarshal(b.keySet(t, b.service), &set))
	require.Len(t, set.Keys, 1)
	require.Equal(t, "ES256", set.Keys[0].Algorithm)
	require.Equal(t, "sig", set.Keys[0].Use)
	parsed, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.ES256})
	require.NoError(t, err)
	require.NoError(t, parsed.Claims(set, &jwt.Claims{}), "a client can verify with it")
}

func BenchmarkVerify(b *testing.B) {
	pool := pgtest.Pool(b)
	master := must(secret.ParseKeys(secret.GenerateKey()))
	ctx := context.Background()
	service := must(identity.New(ctx, pool, identity.Config{Issuer: issuer, Keys: master, Clock: time.Now}))
	tenant := must(identity.CreateTenant(ctx, pool, "acme"))
	var credentials identity.Credentials
	require.NoError(b, pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) (err error) {
		credentials, err = identity.CreateClient(ctx, tx, identity.NewClient{Tenant: tenant, Name: "bench", Scopes: identity.Scopes()})
		return err
	}))
	token := must(service.IssueToken(ctx, credentials.ClientID.String(), credentials.Secret, address)).AccessToken
	for b.Loop() {
		if _, err := service.Verify(ctx, token); err != nil {
			b.Fatal(err)
		}
	}
}
