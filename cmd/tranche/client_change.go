package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"text/tabwriter"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"tranche/internal/identity"
	"tranche/internal/postgres"
)

// clientListCommand lists the clients of a tenant.
type clientListCommand struct {
	Tenant string `name:"tenant" env:"TRANCHE_CLIENT_TENANT" required:"" placeholder:"SLUG" help:"Slug of the tenant."`
	outputFlags
	databaseFlags
}

// Run lists the clients in the order of their creation.
func (c *clientListCommand) Run(ctx context.Context, out *console, log *slog.Logger) error {
	return c.withPool(ctx, out, log, func(pool *pgxpool.Pool) error {
		tenant, err := identity.FindTenant(ctx, pool, c.Tenant)
		if err != nil {
			return err
		}
		clients, err := identity.Clients(ctx, pool, tenant.ID)
		if err != nil {
			return err
		}
		listed := make([]listedClient, len(clients))
		for i, client := range clients {
			listed[i] = listedClient{
				ClientID: client.ID.String(), Name: client.Name, Scopes: client.Scopes,
				IsSandbox: client.IsSandbox, IsRevoked: client.RevokedAt != nil || client.TenantRevokedAt != nil,
			}
		}
		return c.print(out, listed, func() {
			table := tabwriter.NewWriter(out.Out, 0, 0, 2, ' ', 0)
			for _, client := range listed {
				fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", client.ClientID, client.Name, client.state(), strings.Join(client.Scopes, " "))
			}
			_ = table.Flush()
		})
	})
}

type listedClient struct {
	ClientID  string   `json:"clientId"`
	Name      string   `json:"name"`
	Scopes    []string `json:"scopes"`
	IsSandbox bool     `json:"isSandbox"`
	IsRevoked bool     `json:"isRevoked"`
}

func (c listedClient) state() string {
	switch {
	case c.IsRevoked:
		return "revoked"
	case c.IsSandbox:
		return "sandbox"
	default:
		return "live"
	}
}

// clientRotateCommand creates a new secret for a client.
type clientRotateCommand struct {
	ClientID string `arg:"" help:"Id of the client."`
	Alone    bool   `name:"alone" env:"TRANCHE_CLIENT_ALONE" help:"Revoke all earlier secrets at once, for example if one was stolen. By default, the previous secret works until the next rotation."`
	outputFlags
	databaseFlags
}

// Help returns the long help of the command.
func (*clientRotateCommand) Help() string {
	return "A client has at most two valid secrets, so it can change to the new one at any time before the next rotation. Tokens stay valid."
}

// Run creates the secret.
func (c *clientRotateCommand) Run(ctx context.Context, out *console, log *slog.Logger) error {
	var created identity.Credentials
	return c.withPool(ctx, out, log, func(pool *pgxpool.Pool) error {
		err := postgres.InTx(ctx, pool, func(tx pgx.Tx) error {
			client, err := identity.FindClient(ctx, tx, c.ClientID)
			if err != nil {
				return err
			}
			created, err = identity.RotateSecret(ctx, tx, client, c.Alone)
			return err
		})
		if err != nil {
			return err
		}
		return c.print(out, clientOutput{ClientID: created.ClientID.String(), Secret: created.Secret}, func() {
			fmt.Fprintf(out.Out, "the new secret is shown only once\n\n  clientId  %s\n  secret    %s\n", created.ClientID, created.Secret)
		})
	})
}

// clientRevokeCommand revokes a client.
type clientRevokeCommand struct {
	ClientID string `arg:"" help:"Id of the client."`
	outputFlags
	databaseFlags
}

// Help returns the long help of the command.
func (*clientRevokeCommand) Help() string {
	return "Within 5 seconds the client's tokens are no longer accepted. This cannot be undone."
}

// Run revokes the client.
func (c *clientRevokeCommand) Run(ctx context.Context, out *console, log *slog.Logger) error {
	return c.withPool(ctx, out, log, func(pool *pgxpool.Pool) error {
		var client identity.Client
		err := postgres.InTx(ctx, pool, func(tx pgx.Tx) (err error) {
			if client, err = identity.FindClient(ctx, tx, c.ClientID); err != nil {
				return err
			}
			return identity.RevokeClient(ctx, tx, client)
		})
		if err != nil {
			return err
		}
		return c.print(out, map[string]string{"clientId": client.ID.String()}, func() {
			fmt.Fprintf(out.Out, "client %q of tenant %s revoked\n", client.Name, client.TenantSlug)
		})
	})
}
