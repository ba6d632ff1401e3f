package identity

import (
	"slices"
	"strings"

	"tranche/internal/fault"
)

// Scope is a permission of a client (contract 2.4). Each operation of the API requires
// one scope; a token has the scopes of its client.
type Scope string

// The scopes.
const (
	ScopeWorkflowsRead        Scope = "workflows:read"
	ScopeWorkflowsWrite       Scope = "workflows:write"
	ScopeWorkflowsPublish     Scope = "workflows:publish"
	ScopeExecutionsRun        Scope = "executions:run"
	ScopeExecutionsRead       Scope = "executions:read"
	ScopeExecutionsData       Scope = "executions:data" // input, output and state payloads
	ScopeBatchesRun           Scope = "batches:run"
	ScopeBatchesRead          Scope = "batches:read"
	ScopeSchedulesWrite       Scope = "schedules:write"
	ScopeAuthorizationsRead   Scope = "authorizations:read"
	ScopeAuthorizationsWrite  Scope = "authorizations:write"
	ScopeAuthorizationsSign   Scope = "authorizations:sign"
	ScopeAuthorizationsDelete Scope = "authorizations:delete"
	ScopeSecretsWrite         Scope = "secrets:write"
	ScopeTemplatesWrite       Scope = "templates:write"
	ScopeWebhooksWrite        Scope = "webhooks:write"
	ScopeAuditRead            Scope = "audit:read"
)

// Scopes returns every scope, in the order of contract 2.4.
func Scopes() []Scope {
	return []Scope{
		ScopeWorkflowsRead, ScopeWorkflowsWrite, ScopeWorkflowsPublish,
		ScopeExecutionsRun, ScopeExecutionsRead, ScopeExecutionsData,
		ScopeBatchesRun, ScopeBatchesRead,
		ScopeSchedulesWrite,
		ScopeAuthorizationsRead, ScopeAuthorizationsWrite, ScopeAuthorizationsSign, ScopeAuthorizationsDelete,
		ScopeSecretsWrite, ScopeTemplatesWrite, ScopeWebhooksWrite, ScopeAuditRead,
	}
}

// ParseScope returns the scope with a name, or fault.Invalid.
func ParseScope(name string) (Scope, error) {
	if scope := Scope(name); slices.Contains(Scopes(), scope) {
		return scope, nil
	}
	return "", fault.New(fault.Invalid, "there is no such scope; the scopes are %s", list(Scopes()))
}

// Role is a named set of scopes. It is used when a client is created; the client stores
// the scopes.
type Role string

// The roles.
const (
	RoleAdmin       Role = "admin"
	RoleDeveloper   Role = "developer"
	RoleOperator    Role = "operator"
	RoleIntegration Role = "integration"
	RoleAuditor     Role = "auditor"
)

// Roles returns every role.
func Roles() []Role {
	return []Role{RoleAdmin, RoleDeveloper, RoleOperator, RoleIntegration, RoleAuditor}
}

// ParseRole returns the role with a name, or fault.Invalid.
func ParseRole(name string) (Role, error) {
	if role := Role(name); slices.Contains(Roles(), role) {
		return role, nil
	}
	return "", fault.New(fault.Invalid, "there is no such role; the roles are %s", list(Roles()))
}

// Scopes returns the scopes of the role, in the order of Scopes.
func (r Role) Scopes() []Scope {
	patterns := r.patterns()
	return slices.DeleteFunc(Scopes(), func(scope Scope) bool {
		return !slices.ContainsFunc(patterns, func(pattern string) bool { return matches(scope, pattern) })
	})
}

// patterns returns the role's row of the table in contract 2.4.
func (r Role) patterns() []string {
	switch r {
	case RoleAdmin:
		return []string{"*"}
	case RoleDeveloper:
		return []string{"workflows:*", "schedules:write", "secrets:write", "templates:write", "executions:*", "batches:*"}
	case RoleOperator:
		return []string{"executions:*", "batches:*", "schedules:write", "workflows:read"}
	case RoleIntegration:
		return []string{
			"executions:run", "executions:read", "executions:data", "batches:*",
			"authorizations:read", "authorizations:write", "authorizations:sign", "workflows:read",
		}
	case RoleAuditor:
		return []string{"*:read", "executions:data", "audit:read"}
	default:
		return nil
	}
}

// matches reports whether a pattern covers a scope. "*" covers all scopes, "workflows:*"
// all scopes of a resource, and "*:read" one action on every resource.
func matches(scope Scope, pattern string) bool {
	if resource, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(string(scope), resource)
	}
	if action, ok := strings.CutPrefix(pattern, "*"); ok {
		return strings.HasSuffix(string(scope), action)
	}
	return string(scope) == pattern
}

func list[T ~string](names []T) string {
	texts := make([]string, len(names))
	for i, name := range names {
		texts[i] = string(name)
	}
	return strings.Join(texts, ", ")
}
