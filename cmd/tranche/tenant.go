package main

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"text/tabwriter"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"tranche/internal/identity"
	"tranche/internal/postgres"
)

// tenantCommands are the commands for tenants.
type tenantCommands struct {
	Create tenantCreateCommand `cmd:"" help:"Create a tenant."`
	List   tenantListCommand   `cmd:"" help:"List the tenants."`
	Limits tenantLimitsCommand `cmd:"" help:"Show or set the rate limits of a tenant."`
	Revoke tenantRevokeCommand `cmd:"" help:"Revoke a tenant with all its clients."`
}

// tenantCreateCommand creates a tenant.
type tenantCreateCommand struct {
	Slug string `arg:"" help:"Name of the tenant in tokens, logs and commands: lower-case letters, digits and hyphens."`
	outputFlags
	databaseFlags
}

// Run creates the tenant.
func (c *tenantCreateCommand) Run(ctx context.Context, out *console, log *slog.Logger) error {
	return c.withPool(ctx, out, log, func(pool *pgxpool.Pool) error {
		var tenant identity.Tenant
		err := postgres.InTx(ctx, pool, func(tx pgx.Tx) (err error) {
			tenant, err = identity.CreateTenant(ctx, tx, c.Slug)
			return err
		})
		if err != nil {
			return err
		}
		return c.print(out, tenantOutput{TenantID: tenant.ID.String(), Slug: tenant.Slug}, func() {
			fmt.Fprintf(out.Out, "tenant %s created (%s)\n", tenant.Slug, tenant.ID)
		})
	})
}

type tenantOutput struct {
	TenantID string `json:"tenantId"`
	Slug     string `json:"slug"`
}

// tenantListCommand lists the tenants.
type tenantListCommand struct {
	outputFlags
	databaseFlags
}

type listedTenant struct {
	tenantOutput
	IsRevoked bool `json:"isRevoked"`
}

// Run lists the tenants.
func (c *tenantListCommand) Run(ctx context.Context, out *console, log *slog.Logger) error {
	return c.withPool(ctx, out, log, func(pool *pgxpool.Pool) error {
		tenants, err := identity.Tenants(ctx, pool)
		if err != nil {
			return err
		}
		listed := make([]listedTenant, len(tenants))
		for i, tenant := range tenants {
			listed[i] = listedTenant{tenantOutput{TenantID: tenant.ID.String(), Slug: tenant.Slug}, tenant.RevokedAt != nil}
		}
		return c.print(out, listed, func() {
			table := tabwriter.NewWriter(out.Out, 0, 0, 2, ' ', 0)
			for _, tenant := range listed {
				state := "live"
				if tenant.IsRevoked {
					state = "revoked"
				}
				fmt.Fprintf(table, "%s\t%s\t%s\n", tenant.TenantID, tenant.Slug, state)
			}
			_ = table.Flush()
		})
	})
}

// tenantLimitsCommand shows and changes the rate limits of a tenant.
type tenantLimitsCommand struct {
	Slug string            `arg:"" help:"Slug of the tenant."`
	Set  map[string]string `name:"set" env:"TRANCHE_TENANT_LIMITS" mapsep:"," placeholder:"CATEGORY=N" help:"Requests per minute (a number or unlimited) in a category: management, single, batch, polling or authorizations. May be repeated."`
	outputFlags
	databaseFlags

	limits []identity.Limit
}

// Help returns the long help of the command.
func (*tenantLimitsCommand) Help() string {
	return "A limit counts the requests of any 60 seconds, over all replicas together. Without --set, the limits are only shown."
}

// AfterApply parses the limits, so that a mistake is reported as a wrong command line.
func (c *tenantLimitsCommand) AfterApply() error {
	for _, category := range slices.Sorted(maps.Keys(c.Set)) {
		limit, err := identity.ParseLimit(category, c.Set[category])
		if err != nil {
			return fmt.Errorf("--set %s: %w", category, err)
		}
		c.limits = append(c.limits, limit)
	}
	return nil
}

// Run sets the given limits and prints all limits.
func (c *tenantLimitsCommand) Run(ctx context.Context, out *console, log *slog.Logger) error {
	return c.withPool(ctx, out, log, func(pool *pgxpool.Pool) error {
		tenant, err := identity.FindTenant(ctx, pool, c.Slug)
		if err != nil {
			return err
		}
		err = postgres.InTx(ctx, pool, func(tx pgx.Tx) error {
			return identity.SetLimits(ctx, tx, tenant.ID, c.limits)
		})
		if err != nil {
			return err
		}
		limits, err := identity.Limits(ctx, pool, tenant.ID)
		if err != nil {
			return err
		}
		return c.printLimits(out, limits)
	})
}

func (c *tenantLimitsCommand) printLimits(out *console, limits []identity.Limit) error {
	perMinute := map[string]any{}
	for _, limit := range limits {
		perMinute[string(limit.Category)] = limit.PerMinute
		if limit.PerMinute == identity.Unlimited {
			perMinute[string(limit.Category)] = limit.String()
		}
	}
	return c.print(out, perMinute, func() {
		table := tabwriter.NewWriter(out.Out, 0, 0, 2, ' ', 0)
		for _, limit := range limits {
			fmt.Fprintf(table, "%s\t%s\n", limit.Category, limit)
		}
		_ = table.Flush()
	})
}

// tenantRevokeCommand revokes a tenant.
type tenantRevokeCommand struct {
	Slug string `arg:"" help:"Slug of the tenant."`
	outputFlags
	databaseFlags
}

// Help returns the long help of the command.
func (*tenantRevokeCommand) Help() string {
	return "Within 5 seconds the tokens of the tenant's clients are no longer accepted. The tenant's data stay and running work continues. This cannot be undone."
}

// Run revokes the tenant.
func (c *tenantRevokeCommand) Run(ctx context.Context, out *console, log *slog.Logger) error {
	return c.withPool(ctx, out, log, func(pool *pgxpool.Pool) error {
		tenant, err := identity.FindTenant(ctx, pool, c.Slug)
		if err != nil {
			return err
		}
		if err := postgres.InTx(ctx, pool, func(tx pgx.Tx) error { return identity.RevokeTenant(ctx, tx, tenant) }); err != nil {
			return err
		}
		return c.print(out, tenantOutput{TenantID: tenant.ID.String(), Slug: tenant.Slug}, func() {
			fmt.Fprintf(out.Out, "tenant %s revoked\n", tenant.Slug)
		})
	})
}
