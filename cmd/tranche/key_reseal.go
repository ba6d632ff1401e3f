package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"tranche/internal/audit"
	"tranche/internal/consent"
	"tranche/internal/identity"
	"tranche/internal/postgres"
	"tranche/internal/secret"
)

// keyResealCommand reseals all confidential values with the first master key.
type keyResealCommand struct {
	outputFlags
	sealedFlags
}

// Help returns the long help of the command.
func (*keyResealCommand) Help() string {
	return "First give every process of the service the new master key followed by the old ones, then run this command with the same keys. " +
		"It reseals signing keys, secrets and the ends of evidence chains with the new key in one transaction. The old keys can be removed afterwards."
}

// resealed counts the values that were sealed with another key than the first.
type resealed struct {
	SigningKeys int `json:"signingKeys"`
	Secrets     int `json:"secrets"`
	Chains      int `json:"chains"`
}

// Run reseals the values.
func (c *keyResealCommand) Run(ctx context.Context, out *console, log *slog.Logger) error {
	return c.withMaster(ctx, out, log, func(pool *pgxpool.Pool, master *secret.Keyring) error {
		var done resealed
		err := postgres.InTx(ctx, pool, func(tx pgx.Tx) (err error) {
			done, err = resealTx(ctx, tx, master)
			return err
		})
		if errors.Is(err, secret.ErrUnknownKey) {
			return fmt.Errorf("TRANCHE_MASTER_KEY lacks a key that is still in use: %w", err)
		}
		if err != nil {
			return err
		}
		return c.print(out, done, func() {
			fmt.Fprintf(out.Out, "resealed with the first master key: %d signing keys, %d secrets, %d ends of evidence chains\n",
				done.SigningKeys, done.Secrets, done.Chains)
		})
	})
}

func resealTx(ctx context.Context, tx pgx.Tx, master *secret.Keyring) (done resealed, err error) {
	if done.SigningKeys, err = identity.ResealKeys(ctx, tx, master); err != nil {
		return done, err
	}
	if done.Secrets, err = secret.Reseal(ctx, tx, master); err != nil {
		return done, err
	}
	if done.Chains, err = consent.ResealHeads(ctx, tx, master); err != nil {
		return done, err
	}
	return done, audit.RecordTx(ctx, tx, uuid.Nil, audit.KeyReseal, "master key")
}
