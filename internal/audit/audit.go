// Package audit records actions and denied requests. An action is one row, written in the
// transaction of the action. Denied requests are counted by minute, so that they cannot
// flood the database. The table allows no update of a row. The package must not know HTTP
// or the meaning of the actions.
package audit

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"tranche/internal/postgres"
	"tranche/queries"
)

// Action is the name of an action, with the resource first.
type Action string

// The actions.
const (
	TenantCreate    Action = "tenant.create"
	TenantLimits    Action = "tenant.limits"
	TenantRevoke    Action = "tenant.revoke"
	ClientCreate    Action = "client.create"
	ClientRotate    Action = "client.rotate"
	ClientRevoke    Action = "client.revoke"
	FamilyRevoke    Action = "family.revoke" // because a refresh token was reused
	WorkflowPublish Action = "workflow.publish"
	WorkflowArchive Action = "workflow.archive"
	WorkflowDelete  Action = "workflow.delete"
	ScheduleSet     Action = "schedule.configure"
	ScheduleDelete  Action = "schedule.delete"
	KeyRotate       Action = "key.rotate"
	KeyWithdraw     Action = "key.withdraw" // all keys except the new one
	KeyReseal       Action = "key.reseal"   // under the first master key
	SecretSet       Action = "secret.set"
	SecretDelete    Action = "secret.delete"
	TemplateSet     Action = "template.set"
	TemplateDelete  Action = "template.delete"
	ConsentCreate   Action = "authorization.create"
	ConsentSign     Action = "authorization.sign"
	ConsentDelete   Action = "authorization.delete"
)

// Actors that are not clients.
const (
	Operator = "operator" // a person who runs commands
	service  = "service"  // the service itself
)

type originKey struct{}

// origin is the actor of an action and its request.
type origin struct {
	actor     string
	requestID string
}

// WithOrigin sets the actor of the actions in ctx, which is a client's id or Operator, and
// the id of the request, which may be empty. Without it, the actor is the service.
func WithOrigin(ctx context.Context, actor, requestID string) context.Context {
	return context.WithValue(ctx, originKey{}, origin{actor, requestID})
}

// RecordTx records an action in its transaction. The subject is the id of the changed
// resource. The tenant is uuid.Nil if the action concerns the whole installation.
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

// clockSlack is the highest difference between the clocks of the processes, which the ids of
// events contain, and the clock of the database, which sets their time.
const clockSlack = 24 * time.Hour

// Events returns the newest events of a tenant since a time, at most countMax, oldest first.
// Their actions begin with prefix. With uuid.Nil it returns the events of the whole
// installation.
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
