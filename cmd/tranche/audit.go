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

// auditCountMax limits the number of entries of one output.
const auditCountMax = 1_000_000

// auditCommand shows the audit trail or the denied requests.
type auditCommand struct {
	Tenant   string        `name:"tenant" env:"TRANCHE_AUDIT_TENANT" placeholder:"SLUG" help:"Slug of the tenant. By default: actions on the whole installation, and denied requests without a tenant."`
	Since    time.Duration `name:"since" env:"TRANCHE_AUDIT_SINCE" default:"24h" placeholder:"DURATION" help:"Age of the oldest entry (${default})."`
	Action   string        `name:"action" env:"TRANCHE_AUDIT_ACTION" placeholder:"PREFIX" help:"Only actions with this prefix, for example workflow. or client.revoke."`
	Refused  bool          `name:"refused" env:"TRANCHE_AUDIT_REFUSED" help:"Instead of actions, show the requests that were denied with 401 or 403, counted by minute."`
	CountMax int           `name:"count" env:"TRANCHE_AUDIT_COUNT" default:"1000" placeholder:"N" help:"Maximum number of entries; the newest are shown (${default})."`
	outputFlags
	databaseFlags
}

// Help returns the long help of the command.
func (*auditCommand) Help() string {
	return "Each action is recorded in its own transaction and cannot be changed later. The actor is the id of a client, operator (a command) or service."
}

// AfterApply checks the flags.
func (c *auditCommand) AfterApply() error {
	switch {
	case c.Refused && c.Action != "":
		return fmt.Errorf("--action cannot be combined with --refused, which shows no actions")
	case c.Since <= 0:
		return fmt.Errorf("--since must be more than 0")
	case c.CountMax < 1 || c.CountMax > auditCountMax:
		return fmt.Errorf("--count must be from 1 to %d", auditCountMax)
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
			counts, err := audit.DeniedCounts(ctx, pool, tenantID, since, c.CountMax)
			if err != nil {
				return err
			}
			return c.printDenied(out, counts)
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

type auditDenied struct {
	Minute   string     `json:"minute"`
	ClientID *uuid.UUID `json:"clientId,omitempty"`
	Status   int        `json:"status"`
	Reason   string     `json:"reason"`
	Count    int64      `json:"count"`
}

func (c *auditCommand) printDenied(out *console, counts []audit.DeniedCount) error {
	shown := make([]auditDenied, len(counts))
	for i, n := range counts {
		shown[i] = auditDenied{Minute: n.Minute.UTC().Format(time.RFC3339), ClientID: n.ClientID, Status: n.Status, Reason: n.Reason, Count: n.Count}
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
