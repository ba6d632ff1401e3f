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

// evidenceCommands are the commands about the evidence of consents.
type evidenceCommands struct {
	Verify evidenceVerifyCommand `cmd:"" help:"Check the chains of evidence, record by record."`
}

// evidenceVerifyCommand checks chains of evidence.
type evidenceVerifyCommand struct {
	Tenant string `name:"tenant" env:"TRANCHE_EVIDENCE_TENANT" placeholder:"SLUG" help:"Only this tenant's chain; every tenant's where nothing is said."`
	outputFlags
	sealedFlags
}

// Help is the long form of the command's help.
func (*evidenceVerifyCommand) Help() string {
	return "Reads every record, computes its hash and that of its content anew, and compares the end of the chain with the one that is kept apart, sealed under the master key. " +
		"Names the first record of a chain that is changed or missing, or that an authorization lacks, and exits 1. Tenants without evidence are named too. Records of deleted authorizations have no content any more; their hashes hold. " +
		"Note down the count and the hash that it prints, outside of the database: whoever restores an old database as a whole can be told by them alone."
}

// errBrokenEvidence ends the command once it has told what is broken.
var errBrokenEvidence = errors.New("the evidence is not whole")

// chainOutput is what was found of one chain.
type chainOutput struct {
	Tenant         string `json:"tenant"`
	IsWhole        bool   `json:"isWhole"`
	Records        int64  `json:"records"`
	Withdrawn      int64  `json:"withdrawn"`
	HeadHash       string `json:"headHash"`
	BrokenPosition int64  `json:"brokenPosition,omitempty"`
	Broken         string `json:"broken,omitempty"`
}

// Run verifies.
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
