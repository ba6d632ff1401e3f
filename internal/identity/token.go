package identity

import (
	"bytes"
	"context"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/json" // refuses duplicate names, unlike encoding/json
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"tranche/internal/fault"
	"tranche/internal/postgres"
	"tranche/queries"
)

// Lifetimes of tokens (contract 2.2, 2.3).
const (
	accessTokenTTL        = 86400 * time.Second
	refreshTokenIdleTTL   = 7 * 24 * time.Hour
	refreshTokenFamilyTTL = 30 * 24 * time.Hour
	// clockLeeway is the greatest difference between the clocks of replicas.
	clockLeeway = 30 * time.Second
	// accessTokenBytesMax limits the tokens that Verify parses. The service's own have
	// about 900 bytes.
	accessTokenBytesMax = 4096
)

// Token is the response of the token endpoint. It has the fields of both shapes of
// contract A.5 (contract 2.1).
type Token struct {
	AccessToken  string
	RefreshToken string
	ExpiresIn    time.Duration
	ExpiresAt    time.Time // of the access token
}

// claims are the claims of RFC 9068, and three private ones: the tenant, the sandbox and
// the family of refresh tokens. A family is revoked as a whole.
type claims struct {
	Issuer     string           `json:"iss"`
	Audience   jwt.Audience     `json:"aud"`
	Subject    uuid.UUID        `json:"sub"`
	ClientID   uuid.UUID        `json:"client_id"`
	Tenant     uuid.UUID        `json:"tenant"`
	TenantSlug string           `json:"tenant_slug"`
	Sandbox    bool             `json:"sandbox,omitempty"`
	Scope      string           `json:"scope"`
	Family     uuid.UUID        `json:"family"`
	IssuedAt   *jwt.NumericDate `json:"iat"`
	NotBefore  *jwt.NumericDate `json:"nbf"`
	Expiry     *jwt.NumericDate `json:"exp"`
	ID         uuid.UUID        `json:"jti"`
}

// IssueToken exchanges a client's id and secret for an access token and a refresh token.
// Wrong credentials, a revoked client and a revoked tenant return the same
// fault.Unauthorized. Too many attempts of the client, or too many failures from the
// address, return fault.RateLimited.
func (s *Service) IssueToken(ctx context.Context, clientID, secret, address string) (token Token, err error) {
	id, err := uuid.Parse(clientID)
	if err != nil || id.String() != clientID { // an id has only one valid spelling
		return Token{}, errWrongCredentials()
	}
	ctx = postgres.AsSystem(ctx) // the tenant is known after the client is read
	err = s.guard(ctx, id, address, func() error {
		principal, err := s.login(ctx, id, secret)
		if err != nil {
			return err
		}
		token, err = s.beginFamily(ctx, principal)
		return err
	})
	return token, err
}

// login compares the secret with every live secret of the client. For an unknown client
// it compares with zeros, so that both cases take the same time.
func (s *Service) login(ctx context.Context, id uuid.UUID, secret string) (Principal, error) {
	client, err := queries.New().SysClientGetForLogin(ctx, s.pool, id)
	if errors.Is(err, pgx.ErrNoRows) {
		client.SecretHashes, client.IsRevoked = [][]byte{make([]byte, sha256.Size)}, true
	} else if err != nil {
		return Principal{}, fmt.Errorf("look up client %s: %w", id, postgres.Translate(err))
	}
	presented, match := sha256.Sum256([]byte(secret)), 0
	for _, hash := range client.SecretHashes {
		match |= subtle.ConstantTimeCompare(hash, presented[:])
	}
	if match != 1 || client.IsRevoked {
		return Principal{}, errWrongCredentials()
	}
	return Principal{
		TenantID: client.TenantID, TenantSlug: client.TenantSlug, ClientID: id,
		Scopes: scopesOf(client.Scopes), IsSandbox: client.IsSandbox,
	}, nil
}

func scopesOf(names []string) []Scope {
	scopes := make([]Scope, len(names))
	for i, name := range names {
		scopes[i] = Scope(name)
	}
	return scopes
}

// beginFamily returns the first tokens of a login. Tokens from later refreshes belong to
// the same family.
func (s *Service) beginFamily(ctx context.Context, p Principal) (Token, error) {
	family, err := uuid.NewV7()
	if err != nil {
		return Token{}, err
	}
	ctx = postgres.WithTenant(ctx, p.TenantID)
	refresh := newSecret(refreshTokenPrefix)
	err = queries.New().RefreshTokenInsertFamily(ctx, s.pool, queries.RefreshTokenInsertFamilyParams{
		TokenHash: hashOf(refresh), FamilyID: family, TenantID: p.TenantID, ClientID: p.ClientID,
		IdleSeconds: refreshTokenIdleTTL.Seconds(), FamilySeconds: refreshTokenFamilyTTL.Seconds(),
	})
	if err != nil {
		return Token{}, fmt.Errorf("record a refresh token for client %s: %w", p.ClientID, postgres.Translate(err))
	}
	return s.respond(ctx, p, family, refresh)
}

// respond signs an access token and returns it with the refresh token. It first reloads
// the signing keys if the process was idle.
func (s *Service) respond(ctx context.Context, p Principal, family uuid.UUID, refresh string) (Token, error) {
	if _, err := s.watch.get(ctx); err != nil {
		return Token{}, err
	}
	access, expiresAt, err := s.sign(p, family)
	if err != nil {
		return Token{}, fmt.Errorf("sign an access token for client %s: %w", p.ClientID, err)
	}
	return Token{AccessToken: access, RefreshToken: refresh, ExpiresIn: accessTokenTTL, ExpiresAt: expiresAt}, nil
}

func hashOf(token string) []byte {
	hash := sha256.Sum256([]byte(token))
	return hash[:]
}

func (s *Service) sign(p Principal, family uuid.UUID) (token string, expiresAt time.Time, err error) {
	now := s.clock().UTC().Truncate(time.Second)
	expiresAt = now.Add(accessTokenTTL)
	id, err := uuid.NewV7()
	if err != nil {
		return "", time.Time{}, err
	}
	scopes := make([]string, len(p.Scopes))
	for i, scope := range p.Scopes {
		scopes[i] = string(scope)
	}
	token, err = jwt.Signed(s.keys.current.Load().signer).Claims(claims{
		Issuer: s.issuer, Audience: jwt.Audience{s.issuer},
		Subject: p.ClientID, ClientID: p.ClientID, Tenant: p.TenantID, TenantSlug: p.TenantSlug,
		Sandbox: p.IsSandbox, Scope: strings.Join(scopes, " "), Family: family,
		IssuedAt: jwt.NewNumericDate(now), NotBefore: jwt.NewNumericDate(now), Expiry: jwt.NewNumericDate(expiresAt),
		ID: id,
	}).Serialize()
	if err != nil {
		return "", time.Time{}, err
	}
	return canonical(token), expiresAt, nil
}

// Verify returns the principal of an access token. It returns fault.Unauthorized unless
// this service signed the token, the token is valid now, and its client, tenant and
// family are not revoked. It queries the database only for unknown keys, and for
// revocations every few seconds.
func (s *Service) Verify(ctx context.Context, token string) (Principal, error) {
	if len(token) > accessTokenBytesMax {
		return Principal{}, errWrongToken()
	}
	hash := sha256.Sum256([]byte(token))
	c, ok := s.verified.get(hash)
	if !ok {
		var err error
		if c, err = s.read(ctx, token); err != nil {
			return Principal{}, err
		}
	}
	now := s.clock()
	if now.Add(clockLeeway).Before(c.notBefore) || !now.Add(-clockLeeway).Before(c.expiresAt) {
		return Principal{}, errWrongToken()
	}
	current, err := s.watch.get(ctx)
	if err != nil {
		return Principal{}, err
	}
	if s.keys.current.Load().public[c.keyID] == nil || current.isRevoked(c.principal.ClientID, c.principal.TenantID, c.family) {
		return Principal{}, errWrongToken()
	}
	if !ok {
		s.verified.put(hash, c)
	}
	return c.principal, nil
}

// read makes all checks of a token that do not depend on the time.
func (s *Service) read(ctx context.Context, token string) (verifiedToken, error) {
	refused := errWrongToken()
	if !isCanonical(token) {
		return verifiedToken{}, refused
	}
	signed, err := jose.ParseSignedCompact(token, []jose.SignatureAlgorithm{signatureAlgorithm})
	if err != nil {
		return verifiedToken{}, refused
	}
	// Only kid and typ of the header are used; jwk, jku, x5c and x5u are ignored. A
	// token with crit is refused (RFC 7515, 4.1.11).
	header := signed.Signatures[0].Header
	if _, isCritical := header.ExtraHeaders["crit"]; isCritical || header.ExtraHeaders[jose.HeaderType] != tokenType {
		return verifiedToken{}, refused
	}
	public, err := s.keys.find(ctx, header.KeyID)
	if err != nil {
		return verifiedToken{}, err
	}
	if public == nil {
		return verifiedToken{}, refused
	}
	payload, err := signed.Verify(public)
	if err != nil {
		return verifiedToken{}, refused
	}
	var c claims
	if err := json.Unmarshal(payload, &c); err != nil || !s.accepts(c) {
		return verifiedToken{}, refused
	}
	principal := Principal{TenantID: c.Tenant, TenantSlug: c.TenantSlug, ClientID: c.ClientID, IsSandbox: c.Sandbox}
	for scope := range strings.FieldsSeq(c.Scope) {
		principal.Scopes = append(principal.Scopes, Scope(scope))
	}
	return verifiedToken{principal: principal, family: c.Family, keyID: header.KeyID, notBefore: c.NotBefore.Time(), expiresAt: c.Expiry.Time()}, nil
}

func (s *Service) accepts(c claims) bool {
	return c.Issuer == s.issuer && slices.Contains(c.Audience, s.issuer) &&
		c.ClientID != uuid.Nil && c.Subject == c.ClientID && c.Tenant != uuid.Nil && c.Family != uuid.Nil && c.ID != uuid.Nil &&
		c.IssuedAt != nil && c.NotBefore != nil && c.Expiry != nil
}

func errWrongCredentials() error {
	return fault.New(fault.Unauthorized, "the client id or the secret is wrong")
}

func errWrongToken() error {
	return fault.New(fault.Unauthorized, "the access token is invalid or has expired")
}

// signatureBytes is the length of an ES256 signature, which is r and s (RFC 7518, 3.4).
const signatureBytes = 64

// canonical returns a new token in its only accepted spelling: it uses the lower of the
// two valid values of s.
func canonical(token string) string {
	end := strings.LastIndexByte(token, '.') + 1
	signature, err := base64.RawURLEncoding.DecodeString(token[end:])
	if err != nil || len(signature) != signatureBytes {
		return token // Verify refuses it too
	}
	return token[:end] + base64.RawURLEncoding.EncodeToString(lowS(signature))
}

// isCanonical reports whether a token has three parts in strict base64url and the
// signature that canonical returns. So each token has only one accepted spelling.
func isCanonical(token string) bool {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return false
	}
	var signature []byte
	for _, part := range parts {
		decoded, err := base64.RawURLEncoding.Strict().DecodeString(part)
		if err != nil || part == "" || strings.ContainsAny(part, "\r\n") {
			return false
		}
		signature = decoded
	}
	return len(signature) == signatureBytes && bytes.Equal(signature, lowS(signature))
}

// lowS returns a signature with the lower of s and n-s. Both verify.
func lowS(signature []byte) []byte {
	s := new(big.Int).SetBytes(signature[signatureBytes/2:])
	other := new(big.Int).Sub(elliptic.P256().Params().N, s)
	if other.Cmp(s) >= 0 {
		return signature
	}
	low := slices.Clone(signature)
	other.FillBytes(low[signatureBytes/2:])
	return low
}

// verifiedTokensMax limits the memory of the cache to about 3 MB.
const verifiedTokensMax = 10_000

// verifiedToken is a token with a valid signature and valid claims.
type verifiedToken struct {
	principal Principal
	family    uuid.UUID
	keyID     string
	notBefore time.Time
	expiresAt time.Time
}

// verifiedTokens caches tokens by hash, because verifying a signature takes a hundred
// times as long as a lookup. Expiry is checked at every use. A full cache is cleared.
type verifiedTokens struct {
	mu     sync.RWMutex
	tokens map[[sha256.Size]byte]verifiedToken
}

func newVerifiedTokens() *verifiedTokens {
	return &verifiedTokens{tokens: map[[sha256.Size]byte]verifiedToken{}}
}

func (v *verifiedTokens) get(hash [sha256.Size]byte) (verifiedToken, bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	token, ok := v.tokens[hash]
	return token, ok
}

func (v *verifiedTokens) put(hash [sha256.Size]byte, token verifiedToken) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.tokens) >= verifiedTokensMax {
		clear(v.tokens)
	}
	v.tokens[hash] = token
}
