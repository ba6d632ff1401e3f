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

// TenantOf returns whose execution a task runs for, so that what it asks a port
// for is asked on that tenant's behalf; uuid.Nil, which is nobody's, where
// nothing was said.
func TenantOf(ctx context.Context) uuid.UUID {
	id, _ := ctx.Value(tenantKey{}).(uuid.UUID)
	return id
}
