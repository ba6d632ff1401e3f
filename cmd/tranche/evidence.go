package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5/pgxpool"

	"tranche/internal/consent"
	"tranche/internal/identity"
	"tranche/internal/secret"
)

// evidenceCommands are the commands for the evidence of consents.
type evidenceCommands struct {
	Verify evidenceVerifyCommand `cmd:"" help:"Verify the evidence chains record by record."`
}

// evidenceVerifyCommand verifies evidence chains.
type evidenceVerifyCommand struct {
	Tenant string `name:"tenant" env:"TRANCHE_EVIDENCE_TENANT" placeholder:"SLUG" help:"Slug of a tenant. By default, the chains of all tenants are verified."`
	outputFlags
	sealedFlags
}

// Help returns the long help of the command.
func (*evidenceVerifyCommand) Help() string {
	return "Computes the hashes of every record and its content, and compares the end of the chain with a copy that is stored separately, sealed with the master key. " +
		"If a record of a chain was changed, is missing, or is missing for an authorization, prints the first such record and exits with 1. Lists tenants without evidence too. Records of deleted authorizations have no content, but their hashes remain valid. " +
		"Store the printed count and hash outside the database: only they show that the whole database was replaced by an older copy."
}

// errBrokenEvidence ends the command after it has printed the broken chains.
var errBrokenEvidence = errors.New("at least one evidence chain is broken")

// chainOutput is the result for one chain.
type chainOutput struct {
	Tenant         string `json:"tenant"`
	IsWhole        bool   `json:"isWhole"`
	Records        int64  `json:"records"`
	Withdrawn      int64  `json:"withdrawn"`
	HeadHash       string `json:"headHash"`
	BrokenPosition int64  `json:"brokenPosition,omitempty"`
	Broken         string `json:"broken,omitempty"`
}

// Run verifies the chains.
func (c *evidenceVerifyCommand) Run(ctx context.Context, out *console, log *slog.Logger) error {
	return c.withMaster(ctx, out, log, func(pool *pgxpool.Pool, keys *secret.Keyring) error {
		return c.verify(ctx, out, pool, keys)
	})
}

func (c *evidenceVerifyCommand) verify(ctx context.Context, out *console, pool *pgxpool.Pool, keys *secret.Keyring) error {
	tenants, err := c.tenants(ctx, pool)
	if err != nil {
		return err
	}
	whole := true
	for _, tenant := range tenants {
		found, err := consent.Verify(ctx, pool, keys, tenant.ID)
		if err != nil {
			return err
		}
		whole = whole && found.Broken == nil
		if err := c.report(out, tenant.Slug, found); err != nil {
			return err
		}
	}
	if !whole {
		return errBrokenEvidence
	}
	return nil
}

func (c *evidenceVerifyCommand) tenants(ctx context.Context, pool *pgxpool.Pool) ([]identity.Tenant, error) {
	if c.Tenant == "" {
		return identity.Tenants(ctx, pool)
	}
	tenant, err := identity.FindTenant(ctx, pool, c.Tenant)
	return []identity.Tenant{tenant}, err
}

func (c *evidenceVerifyCommand) report(out *console, tenant string, found *consent.Verification) error {
	result := chainOutput{
		Tenant: tenant, IsWhole: found.Broken == nil, Records: found.Head.Count, Withdrawn: found.Withdrawn,
		HeadHash: hex.EncodeToString(found.Head.Hash),
	}
	if found.Broken != nil {
		result.BrokenPosition, result.Broken = found.Broken.Position, found.Broken.String()
	}
	return c.print(out, result, func() {
		switch {
		case found.Broken != nil:
			fmt.Fprintf(out.Out, "%s: BROKEN: %s\n", tenant, found.Broken)
		case result.Records == 0:
			fmt.Fprintf(out.Out, "%s: no evidence\n", tenant)
		default:
			fmt.Fprintf(out.Out, "%s: whole: %d records, %d of them without content after a deletion, ending with %s\n",
				tenant, result.Records, result.Withdrawn, result.HeadHash)
		}
	})
}
