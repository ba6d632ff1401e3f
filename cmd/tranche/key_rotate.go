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

// keyCommands are the commands about signing keys and the master key.
type keyCommands struct {
	Rotate keyRotateCommand `cmd:"" help:"Make a new key that signs access tokens."`
	Reseal keyResealCommand `cmd:"" help:"Seal what is kept under the first master key, so that others can go."`
}

// keyRotateCommand makes a signing key.
type keyRotateCommand struct {
	Withdraw bool `name:"withdraw" env:"TRANCHE_KEY_WITHDRAW" help:"Remove the other keys at once, for one that somebody may have stolen: every access token ends within 5 seconds."`
	outputFlags
	sealedFlags
}

// Help is the long form of the command's help.
func (*keyRotateCommand) Help() string {
	return "The new key is published at /.well-known/jwks.json at once and signs 5 minutes later, when everybody can have it. " +
		"The old one verifies for the day that its tokens live. The master key must be the service's."
}

// Run makes the key.
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
		fmt.Fprintf(out.Out, "signing key %s made\n", id)
	})
}
