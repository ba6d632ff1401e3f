package identity

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"tranche/internal/audit"
	"tranche/internal/fault"
	"tranche/internal/postgres"
	"tranche/queries"
)

const (
	clientNameCharsMax = 128
	secretBytes        = 32
	// secretsLiveMax lets a client change its secret without downtime.
	secretsLiveMax = 2
	// Secret scanners and people recognise the prefixes.
	clientSecretPrefix = "tranche_secret_"
	refreshTokenPrefix = "tranche_refresh_"
)

// NewClient describes a client to create.
type NewClient struct {
	Tenant    Tenant
	Name      string
	Scopes    []Scope
	IsSandbox bool // all executions of the client are tests
}

// Credentials are returned once, when a client or a secret is created. The service
// stores only a hash of the secret.
type Credentials struct {
	ClientID uuid.UUID
	Secret   string
}

// CreateClient creates a client with its first secret. It returns fault.Conflict for a
// revoked tenant, and fault.Invalid for a bad name or no scope.
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
	if err := audit.RecordTx(ctx, tx, client.Tenant.ID, audit.ClientCreate, clientID.String()); err != nil {
		return Credentials{}, err
	}
	secret, err := addSecret(ctx, tx, client.Tenant.ID, clientID)
	return Credentials{ClientID: clientID, Secret: secret}, err
}

// Client is a program of a tenant that can present credentials.
type Client struct {
	ID         uuid.UUID
	TenantID   uuid.UUID
	TenantSlug string
	Name       string
	Scopes     []string
	IsSandbox  bool
	RevokedAt  *time.Time
	// TenantRevokedAt is when its tenant was revoked, which revokes the client too.
	TenantRevokedAt *time.Time
}

// FindClient returns the client with an id, or fault.NotFound.
func FindClient(ctx context.Context, db queries.DBTX, clientID string) (Client, error) {
	id, err := uuid.Parse(clientID)
	if err != nil || id.String() != clientID {
		return Client{}, fault.New(fault.NotFound, "there is no client with this id")
	}
	row, err := queries.New().SysClientGet(ctx, db, id)
	if errors.Is(err, pgx.ErrNoRows) {
		return Client{}, fault.Wrap(err, fault.NotFound, "there is no client with this id")
	}
	if err != nil {
		return Client{}, fmt.Errorf("look up client %s: %w", id, postgres.Translate(err))
	}
	return Client(row), nil
}

// Clients returns the clients of a tenant in order of creation.
func Clients(ctx context.Context, db queries.DBTX, tenantID uuid.UUID) ([]Client, error) {
	rows, err := queries.New().ClientList(ctx, db, tenantID)
	if err != nil {
		return nil, fmt.Errorf("list clients of tenant %s: %w", tenantID, postgres.Translate(err))
	}
	clients := make([]Client, len(rows))
	for i, row := range rows {
		clients[i] = Client(row)
	}
	return clients, nil
}

// RevokeClient revokes a client with its secrets and refresh tokens. All processes
// refuse its access tokens within 5 s. Revoking a revoked client does nothing.
func RevokeClient(ctx context.Context, tx pgx.Tx, client Client) error {
	ended, err := queries.New().ClientRevoke(ctx, tx, queries.ClientRevokeParams{TenantID: client.TenantID, ID: client.ID})
	if err != nil {
		return fmt.Errorf("revoke client %s: %w", client.ID, err)
	}
	if ended == 0 {
		return nil
	}
	return audit.RecordTx(ctx, tx, client.TenantID, audit.ClientRevoke, client.ID.String())
}

// RotateSecret creates a new secret of a client and returns it. The previous secret
// stays valid until the next rotation; if alone is set, it becomes invalid at once.
// Tokens do not change. It returns fault.Conflict if the client or its tenant is revoked.
func RotateSecret(ctx context.Context, tx pgx.Tx, client Client, alone bool) (Credentials, error) {
	switch {
	case client.RevokedAt != nil:
		return Credentials{}, fault.New(fault.Conflict, "the client is revoked")
	case client.TenantRevokedAt != nil:
		return Credentials{}, errTenantRevoked(client.TenantSlug)
	}
	if err := queries.New().ClientLock(ctx, tx, queries.ClientLockParams{TenantID: client.TenantID, ID: client.ID}); err != nil {
		return Credentials{}, fmt.Errorf("lock client %s: %w", client.ID, err)
	}
	secret, err := addSecret(ctx, tx, client.TenantID, client.ID)
	if err != nil {
		return Credentials{}, err
	}
	keep := int32(secretsLiveMax)
	if alone {
		keep = 1
	}
	err = queries.New().ClientSecretRevokeOlder(ctx, tx, queries.ClientSecretRevokeOlderParams{
		TenantID: client.TenantID, ClientID: client.ID, Keep: keep,
	})
	if err != nil {
		return Credentials{}, fmt.Errorf("revoke the older secrets of client %s: %w", client.ID, err)
	}
	return Credentials{ClientID: client.ID, Secret: secret},
		audit.RecordTx(ctx, tx, client.TenantID, audit.ClientRotate, client.ID.String())
}

func errTenantRevoked(slug string) error {
	return fault.New(fault.Conflict, "tenant %s is revoked", slug)
}

func (c NewClient) check() error {
	switch {
	case c.Tenant.RevokedAt != nil:
		return errTenantRevoked(c.Tenant.Slug)
	case len(c.Scopes) == 0:
		return fault.New(fault.Invalid, "a client must have a role or at least one scope")
	case c.Name == "" || utf8.RuneCountInString(c.Name) > clientNameCharsMax ||
		!utf8.ValidString(c.Name) || strings.ContainsFunc(c.Name, unicode.IsControl):
		return fault.New(fault.Invalid, "a client's name must have 1 to %d printable characters", clientNameCharsMax)
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

// newSecret returns a prefix and 256 random bits. They cannot be guessed, so a plain
// SHA-256 hash is safe to store.
func newSecret(prefix string) string {
	random := make([]byte, secretBytes)
	_, _ = rand.Read(random) // it never fails; it ends the process instead
	return prefix + base64.RawURLEncoding.EncodeToString(random)
}
