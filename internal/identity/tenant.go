package identity

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"tranche/internal/audit"
	"tranche/internal/fault"
	"tranche/internal/postgres"
	"tranche/queries"
)

// slugForm is the form of a tenant's slug. The table has the same check.
var slugForm = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

// Tenant is a customer of the service. Tenants are isolated from each other.
type Tenant struct {
	ID        uuid.UUID
	Slug      string
	CreatedAt time.Time
	RevokedAt *time.Time
}

// CreateTenant creates a tenant. It returns fault.Invalid for a slug of the wrong form
// and fault.Conflict for an existing slug.
func CreateTenant(ctx context.Context, db queries.DBTX, slug string) (Tenant, error) {
	if !slugForm.MatchString(slug) {
		return Tenant{}, fault.New(fault.Invalid,
			"a tenant's slug must have 1 to 63 lower-case letters, digits and hyphens and must not begin with a hyphen")
	}
	id, err := uuid.NewV7()
	if err != nil {
		return Tenant{}, err
	}
	err = queries.New().SysTenantInsert(ctx, db, queries.SysTenantInsertParams{ID: id, Slug: slug})
	if postgres.Violates(err, "tenants_slug_key") {
		return Tenant{}, fault.Wrap(err, fault.Conflict, "a tenant %s already exists", slug)
	}
	if err != nil {
		return Tenant{}, fmt.Errorf("insert tenant %s: %w", slug, postgres.Translate(err))
	}
	if err := audit.RecordTx(ctx, db, id, audit.TenantCreate, id.String()); err != nil {
		return Tenant{}, err
	}
	return FindTenant(ctx, db, slug)
}

// RevokeTenant revokes all clients of a tenant. All processes refuse them within 5 s.
// The tenant's data remains and its running work continues. Revoking a revoked tenant
// does nothing.
func RevokeTenant(ctx context.Context, tx pgx.Tx, tenant Tenant) error {
	ended, err := queries.New().SysTenantRevoke(ctx, tx, tenant.ID)
	if err != nil {
		return fmt.Errorf("revoke tenant %s: %w", tenant.Slug, err)
	}
	if ended == 0 {
		return nil
	}
	return audit.RecordTx(ctx, tx, tenant.ID, audit.TenantRevoke, tenant.ID.String())
}

// Tenants returns all tenants, including revoked ones, ordered by slug.
func Tenants(ctx context.Context, db queries.DBTX) ([]Tenant, error) {
	rows, err := queries.New().SysTenantList(ctx, db)
	if err != nil {
		return nil, fmt.Errorf("list tenants: %w", postgres.Translate(err))
	}
	tenants := make([]Tenant, len(rows))
	for i, row := range rows {
		tenants[i] = Tenant(row)
	}
	return tenants, nil
}

// FindTenant returns the tenant with a slug, or fault.NotFound.
func FindTenant(ctx context.Context, db queries.DBTX, slug string) (Tenant, error) {
	row, err := queries.New().SysTenantGetBySlug(ctx, db, slug)
	if errors.Is(err, pgx.ErrNoRows) {
		return Tenant{}, fault.Wrap(err, fault.NotFound, "there is no tenant with this slug")
	}
	if err != nil {
		return Tenant{}, fmt.Errorf("look up tenant %s: %w", slug, postgres.Translate(err))
	}
	return Tenant(row), nil
}
