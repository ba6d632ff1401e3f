// Package audit keeps the trail of who did what: a row in the transaction of
// what was done, so that neither is there without the other, and refused
// requests counted by minute, so that refusals cannot flood the database. Rows
// are inserted and never changed; the table sees to it. It must not know HTTP
// or what the actions mean.
package audit

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"tranche/internal/postgres"
	"tranche/queries"
)

// Action names what was done, resource first.
type Action string

// The actions.
const (
	TenantCreate    Action = "tenant.create"
	TenantLimits    Action = "tenant.limits"
	TenantRevoke    Action = "tenant.revoke"
	ClientCreate    Action = "client.create"
	ClientRotate    Action = "client.rotate"
	ClientRevoke    Action = "client.revoke"
	FamilyRevoke    Action = "family.revoke" // a refresh token was used again
	WorkflowPublish Action = "workflow.publish"
	WorkflowArchive Action = "workflow.archive"
	WorkflowDelete  Action = "workflow.delete"
	ScheduleSet     Action = "schedule.configure"
	ScheduleDelete  Action = "schedule.delete"
	KeyRotate       Action = "key.rotate"
	KeyWithdraw     Action = "key.withdraw" // all but the new one
	KeyReseal       Action = "key.reseal"   // under the first master key
	SecretSet       Action = "secret.set"
	SecretDelete    Action = "secret.delete"
	TemplateSet     Action = "template.set"
	TemplateDelete  Action = "template.delete"
	ConsentCreate   Action = "authorization.create"
	ConsentSign     Action = "authorization.sign"
	ConsentDelete   Action = "authorization.delete"
)

// Actors that are no client.
const (
	Operator = "operator" // whoever runs commands
	service  = "service"  // the service by itself
)

type originKey struct{}

// origin is who acts, and in which request.
type origin struct {
	actor     string
	requestID string
}

// WithOrigin says who acts in ctx: a client's id or Operator, and in which
// request, empty for none. Where nobody is named, the service acts by itself.
func WithOrigin(ctx context.Context, actor, requestID string) context.Context {
	return context.WithValue(ctx, originKey{}, origin{actor, requestID})
}

// RecordTx records an action in the transaction that does it; uuid.Nil is the
// tenant of what is done to the whole installation. The subject is the id of
// what was acted on.
func RecordTx(ctx context.Context, tx queries.DBTX, tenantID uuid.UUID, action Action, subject string) error {
	from, ok := ctx.Value(originKey{}).(origin)
	if !ok {
		from.actor = service
	}
	id, err := uuid.NewV7()
	if err != nil {
		return err
	}
	row := queries.AuditEventInsertParams{
		ID: id, TenantID: queries.Optional(tenantID), Actor: from.actor, Action: string(action), Subject: subject,
		RequestID: queries.Optional(from.requestID),
	}
	if err := queries.New().AuditEventInsert(ctx, tx, row); err != nil {
		return fmt.Errorf("record %s of %s: %w", action, subject, postgres.Translate(err))
	}
	return nil
}

// Event is one recorded action.
type Event struct {
	ID        uuid.UUID
	At        time.Time
	Actor     string
	Action    string
	Subject   string
	RequestID *string
}

// clockSlack is by how much the clocks that the ids of events come from may be behind
// the database's, which says when they were.
const clockSlack = 24 * time.Hour

// Events returns the newest events since a moment, at most countMax, oldest
// first, of the actions that begin with a prefix: a tenant's, or with uuid.Nil
// those of the whole installation.
func Events(ctx context.Context, db queries.DBTX, tenantID uuid.UUID, since time.Time, prefix string, countMax int) (events []Event, err error) {
	q, firstID := queries.New(), queries.FirstIDAt(since.Add(-clockSlack))
	if tenantID == uuid.Nil {
		var rows []queries.SysAuditEventListRow
		rows, err = q.SysAuditEventList(ctx, db, queries.SysAuditEventListParams{FirstID: firstID, Since: since, Action: prefix, CountMax: int32(countMax)})
		for _, row := range rows {
			events = append(events, Event(row))
		}
	} else {
		var rows []queries.AuditEventListRow
		rows, err = q.AuditEventList(ctx, db, queries.AuditEventListParams{
			TenantID: tenantID, FirstID: firstID, Since: since, Action: prefix, CountMax: int32(countMax),
		})
		for _, row := range rows {
			events = append(events, Event(row))
		}
	}
	if err != nil {
		return nil, fmt.Errorf("list the audit trail: %w", postgres.Translate(err))
	}
	return events, nil
}
