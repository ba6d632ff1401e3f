package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"tranche/internal/identity"
	"tranche/internal/postgres"
)

// clientCommands are the commands for API clients.
type clientCommands struct {
	Create clientCreateCommand `cmd:"" help:"Create a client and print its secret once."`
	List   clientListCommand   `cmd:"" help:"List the clients of a tenant."`
	Rotate clientRotateCommand `cmd:"" help:"Create a new secret for a client and print it once."`
	Revoke clientRevokeCommand `cmd:"" help:"Revoke a client with its secrets and tokens."`
}

// clientCreateCommand creates a client.
type clientCreateCommand struct {
	Tenant  string   `name:"tenant" env:"TRANCHE_CLIENT_TENANT" required:"" placeholder:"SLUG" help:"Slug of the client's tenant."`
	Role    string   `name:"role" env:"TRANCHE_CLIENT_ROLE" placeholder:"ROLE" help:"A named set of scopes: admin, developer, operator, integration or auditor."`
	Scope   []string `name:"scope" env:"TRANCHE_CLIENT_SCOPE" placeholder:"SCOPE" help:"A scope in addition to those of the role, for example workflows:read. May be repeated."`
	Sandbox bool     `name:"sandbox" env:"TRANCHE_CLIENT_SANDBOX" help:"The client may only create test executions."`
	Name    string   `name:"name" env:"TRANCHE_CLIENT_NAME" placeholder:"NAME" help:"Name of the client for people. By default, its role."`
	outputFlags
	databaseFlags

	scopes []identity.Scope
}

// Help returns the long help of the command.
func (*clientCreateCommand) Help() string {
	return "The secret is shown only once, because the database keeps only its hash."
}

// AfterApply parses role and scopes, so that a mistake is reported as a wrong command
// line.
func (c *clientCreateCommand) AfterApply() error {
	if c.Role == "" && len(c.Scope) == 0 {
		return errors.New("a client needs --role or --scope")
	}
	if c.Role != "" {
		role, err := identity.ParseRole(c.Role)
		if err != nil {
			return fmt.Errorf("--role: %w", err)
		}
		c.scopes = role.Scopes()
	}
	for _, name := range c.Scope {
		scope, err := identity.ParseScope(name)
		if err != nil {
			return fmt.Errorf("--scope: %w", err)
		}
		if !slices.Contains(c.scopes, scope) {
			c.scopes = append(c.scopes, scope)
		}
	}
	if c.Name == "" {
		c.Name = c.Role
	}
	if c.Name == "" {
		c.Name = "client"
	}
	return nil
}

// Run creates the client.
func (c *clientCreateCommand) Run(ctx context.Context, out *console, log *slog.Logger) error {
	return c.withPool(ctx, out, log, func(pool *pgxpool.Pool) error {
		tenant, err := identity.FindTenant(ctx, pool, c.Tenant)
		if err != nil {
			return err
		}
		var created identity.Credentials
		err = postgres.InTx(ctx, pool, func(tx pgx.Tx) (err error) {
			created, err = identity.CreateClient(ctx, tx, identity.NewClient{
				Tenant: tenant, Name: c.Name, Scopes: c.scopes, IsSandbox: c.Sandbox,
			})
			return err
		})
		if err != nil {
			return err
		}
		return c.print(out, clientOutput{ClientID: created.ClientID.String(), Secret: created.Secret}, func() {
			fmt.Fprintf(out.Out, "client %q of tenant %s created; the secret is shown only once\n\n", c.Name, tenant.Slug)
			fmt.Fprintf(out.Out, "  clientId  %s\n  secret    %s\n", created.ClientID, created.Secret)
		})
	})
}

type clientOutput struct {
	ClientID string `json:"clientId"`
	Secret   string `json:"secret"`
}
