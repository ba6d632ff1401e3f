package main

import (
	"context"
	"fmt"
	"log/slog"
	"text/tabwriter"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"tranche/internal/audit"
	"tranche/internal/identity"
)

// auditCountMax bounds what is shown at once.
const auditCountMax = 1_000_000

// auditCommand shows the audit trail.
type auditCommand struct {
	Tenant   string        `name:"tenant" env:"TRANCHE_AUDIT_TENANT" placeholder:"SLUG" help:"The tenant. Without one: what was done to the whole installation, and refused requests that no token assigned to any tenant."`
	Since    time.Duration `name:"since" env:"TRANCHE_AUDIT_SINCE" default:"24h" placeholder:"DURATION" help:"How far back to look (${default})."`
	Action   string        `name:"action" env:"TRANCHE_AUDIT_ACTION" placeholder:"PREFIX" help:"Only actions that begin so: workflow., client.revoke."`
	Refused  bool          `name:"refused" env:"TRANCHE_AUDIT_REFUSED" help:"Show the requests that were refused with 401 or 403, counted by minute, instead of actions."`
	CountMax int           `name:"count" env:"TRANCHE_AUDIT_COUNT" default:"1000" placeholder:"N" help:"The newest of them, at most so many (${default})."`
	outputFlags
	databaseFlags
}

// Help is the long form of the command's help.
func (*auditCommand) Help() string {
	return "Actions are recorded in the transaction that does them and cannot be changed. The actor is a client's id, operator (a command) or service."
}

// AfterApply refuses what cannot be shown.
func (c *auditCommand) AfterApply() error {
	switch {
	case c.Refused && c.Action != "":
		return fmt.Errorf("--action is about actions, and --refused shows none")
	case c.Since <= 0:
		return fmt.Errorf("--since is more than 0")
	case c.CountMax < 1 || c.CountMax > auditCountMax:
		return fmt.Errorf("--count is from 1 to %d", auditCountMax)
	default:
		return nil
	}
}

// Run prints the trail, oldest first.
func (c *auditCommand) Run(ctx context.Context, out *console, log *slog.Logger) error {
	return c.withPool(ctx, out, log, func(pool *pgxpool.Pool) error {
		var tenantID uuid.UUID
		if c.Tenant != "" {
			tenant, err := identity.FindTenant(ctx, pool, c.Tenant)
			if err != nil {
				return err
			}
			tenantID = tenant.ID
		}
		since := time.Now().Add(-c.Since)
		if c.Refused {
			counts, err := audit.RefusalCounts(ctx, pool, tenantID, since, c.CountMax)
			if err != nil {
				return err
			}
			return c.printRefusals(out, counts)
		}
		events, err := audit.Events(ctx, pool, tenantID, since, c.Action, c.CountMax)
		if err != nil {
			return err
		}
		return c.printEvents(out, events)
	})
}

type auditEvent struct {
	At        string  `json:"at"`
	Actor     string  `json:"actor"`
	Action    string  `json:"action"`
	Subject   string  `json:"subject"`
	RequestID *string `json:"requestId,omitempty"`
}

func (c *auditCommand) printEvents(out *console, events []audit.Event) error {
	shown := make([]auditEvent, len(events))
	for i, e := range events {
		shown[i] = auditEvent{At: e.At.UTC().Format(time.RFC3339), Actor: e.Actor, Action: e.Action, Subject: e.Subject, RequestID: e.RequestID}
	}
	return c.print(out, shown, func() {
		table := tabwriter.NewWriter(out.Out, 0, 0, 2, ' ', 0)
		for _, e := range shown {
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", e.At, e.Actor, e.Action, e.Subject)
		}
		_ = table.Flush()
	})
}

type auditRefusal struct {
	Minute   string     `json:"minute"`
	ClientID *uuid.UUID `json:"clientId,omitempty"`
	Status   int        `json:"status"`
	Reason   string     `json:"reason"`
	Count    int64      `json:"count"`
}

func (c *auditCommand) printRefusals(out *console, counts []audit.RefusalCount) error {
	shown := make([]auditRefusal, len(counts))
	for i, n := range counts {
		shown[i] = auditRefusal{Minute: n.Minute.UTC().Format(time.RFC3339), ClientID: n.ClientID, Status: n.Status, Reason: n.Reason, Count: n.Count}
	}
	return c.print(out, shown, func() {
		table := tabwriter.NewWriter(out.Out, 0, 0, 2, ' ', 0)
		for _, n := range shown {
			client := "-"
			if n.ClientID != nil {
				client = n.ClientID.String()
			}
			fmt.Fprintf(table, "%s\t%d\t%d\t%s\t%s\n", n.Minute, n.Count, n.Status, client, n.Reason)
		}
		_ = table.Flush()
	})
}
