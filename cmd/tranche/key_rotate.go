package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"tranche/internal/identity"
	"tranche/internal/postgres"
	"tranche/internal/secret"
)

// keyCommands are the commands for signing keys and the master key.
type keyCommands struct {
	Rotate keyRotateCommand `cmd:"" help:"Create a new key that signs access tokens."`
	Reseal keyResealCommand `cmd:"" help:"Reseal all confidential values with the first master key, so that the others can be removed."`
}

// keyRotateCommand creates a signing key.
type keyRotateCommand struct {
	Withdraw bool `name:"withdraw" env:"TRANCHE_KEY_WITHDRAW" help:"Remove all other keys at once, for example if one was stolen. All access tokens become invalid within 5 seconds."`
	outputFlags
	sealedFlags
}

// Help returns the long help of the command.
func (*keyRotateCommand) Help() string {
	return "The new key is published at /.well-known/jwks.json at once and signs after 5 minutes, so that all verifiers have it by then. " +
		"The old key verifies its tokens until they expire, for one day. The master key must be that of the service."
}

// Run creates the key.
func (c *keyRotateCommand) Run(ctx context.Context, out *console, log *slog.Logger) error {
	return c.withMaster(ctx, out, log, func(pool *pgxpool.Pool, master *secret.Keyring) error {
		return c.rotate(ctx, out, pool, master)
	})
}

func (c *keyRotateCommand) rotate(ctx context.Context, out *console, pool *pgxpool.Pool, master *secret.Keyring) error {
	rotate := identity.RotateKey
	if c.Withdraw {
		rotate = identity.ReplaceKeys
	}
	var id string
	err := postgres.InTx(ctx, pool, func(tx pgx.Tx) (err error) {
		id, err = rotate(ctx, tx, master)
		return err
	})
	if errors.Is(err, secret.ErrUnknownKey) {
		return fmt.Errorf("TRANCHE_MASTER_KEY is not the key that this database was set up with: %w", err)
	}
	if err != nil {
		return err
	}
	return c.print(out, map[string]string{"keyId": id}, func() {
		fmt.Fprintf(out.Out, "signing key %s created\n", id)
	})
}
