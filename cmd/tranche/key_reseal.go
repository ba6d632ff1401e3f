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

// keyResealCommand seals what is kept under the first master key.
type keyResealCommand struct {
	outputFlags
	sealedFlags
}

// Help is the long form of the command's help.
func (*keyResealCommand) Help() string {
	return "Give it the new master key and the old ones behind it, when every process of the service has them so. " +
		"Signing keys, secrets and the ends of chains of evidence are then sealed under the new one, all of them or none."
}

// resealed counts what was sealed under another master key than the first.
type resealed struct {
	SigningKeys int `json:"signingKeys"`
	Secrets     int `json:"secrets"`
	Chains      int `json:"chains"`
}

// Run seals what is kept anew.
func (c *keyResealCommand) Run(ctx context.Context, out *console, log *slog.Logger) error {
	return c.withMaster(ctx, out, log, func(pool *pgxpool.Pool, master *secret.Keyring) error {
		var done resealed
		err := postgres.InTx(ctx, pool, func(tx pgx.Tx) (err error) {
			done, err = resealTx(ctx, tx, master)
			return err
		})
		if errors.Is(err, secret.ErrUnknownKey) {
			return fmt.Errorf("TRANCHE_MASTER_KEY lacks a key that is in use: %w", err)
		}
		if err != nil {
			return err
		}
		return c.print(out, done, func() {
			fmt.Fprintf(out.Out, "sealed under the first master key: %d signing keys, %d secrets, %d ends of chains of evidence\n",
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
