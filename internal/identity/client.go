package identity

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"tranche/internal/fault"
	"tranche/queries"
)

const (
	clientNameCharsMax = 128
	secretBytes        = 32
	// The prefixes let secret scanners, and people, see what a text is.
	clientSecretPrefix = "tranche_secret_"
	refreshTokenPrefix = "tranche_refresh_"
)

// NewClient is what CreateClient makes a client of.
type NewClient struct {
	Tenant    Tenant
	Name      string
	Scopes    []Scope
	IsSandbox bool // its executions are all tests
}

// Credentials are shown once, when a client or a secret is made: only a hash
// of the secret is kept.
type Credentials struct {
	ClientID uuid.UUID
	Secret   string
}

// CreateClient makes a client with its first secret. A revoked tenant is
// fault.Conflict; no scope or a bad name is fault.Invalid.
func CreateClient(ctx context.Context, tx pgx.Tx, client NewClient) (Credentials, error) {
	if err := client.check(); err != nil {
		return Credentials{}, err
	}
	clientID, err := uuid.NewV7()
	if err != nil {
		return Credentials{}, err
	}
	params := queries.ClientInsertParams{
		ID: clientID, TenantID: client.Tenant.ID, Name: client.Name, IsSandbox: client.IsSandbox,
	}
	for _, scope := range client.Scopes {
		params.Scopes = append(params.Scopes, string(scope))
	}
	if err := queries.New().ClientInsert(ctx, tx, params); err != nil {
		return Credentials{}, fmt.Errorf("insert a client of tenant %s: %w", client.Tenant.Slug, err)
	}
	secret, err := addSecret(ctx, tx, client.Tenant.ID, clientID)
	return Credentials{ClientID: clientID, Secret: secret}, err
}

func (c NewClient) check() error {
	switch {
	case c.Tenant.RevokedAt != nil:
		return fault.New(fault.Conflict, "tenant %s is revoked", c.Tenant.Slug)
	case len(c.Scopes) == 0:
		return fault.New(fault.Invalid, "a client needs a role or at least one scope")
	case c.Name == "" || utf8.RuneCountInString(c.Name) > clientNameCharsMax ||
		!utf8.ValidString(c.Name) || strings.ContainsFunc(c.Name, unicode.IsControl):
		return fault.New(fault.Invalid, "a client's name is 1 to %d printable characters", clientNameCharsMax)
	default:
		return nil
	}
}

func addSecret(ctx context.Context, tx pgx.Tx, tenantID, clientID uuid.UUID) (string, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return "", err
	}
	secret := newSecret(clientSecretPrefix)
	hash := sha256.Sum256([]byte(secret))
	err = queries.New().ClientSecretInsert(ctx, tx, queries.ClientSecretInsertParams{
		ID: id, TenantID: tenantID, ClientID: clientID, SecretHash: hash[:],
	})
	if err != nil {
		return "", fmt.Errorf("insert a secret of client %s: %w", clientID, err)
	}
	return secret, nil
}

// newSecret returns a prefix and 256 random bits. So many cannot be guessed,
// so that a plain SHA-256 is enough to keep.
func newSecret(prefix string) string {
	random := make([]byte, secretBytes)
	_, _ = rand.Read(random) // crypto/rand.Read never fails: it ends the process instead
	return prefix + base64.RawURLEncoding.EncodeToString(random)
}
