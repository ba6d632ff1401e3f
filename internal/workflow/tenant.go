package workflow

import (
	"context"

	"github.com/google/uuid"
)

type tenantKey struct{}

// WithTenant returns a context for running the tasks of a tenant's execution.
func WithTenant(ctx context.Context, id uuid.UUID) context.Context {
	return context.WithValue(ctx, tenantKey{}, id)
}

// TenantOf returns the tenant of the execution that a task runs for. Ports use it to act
// for that tenant. It returns uuid.Nil if the context names no tenant.
func TenantOf(ctx context.Context) uuid.UUID {
	id, _ := ctx.Value(tenantKey{}).(uuid.UUID)
	return id
}
