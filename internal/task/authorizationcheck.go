package task

import (
	"context"
	"time"

	"github.com/google/uuid"

	"tranche/internal/exactjson"
	"tranche/internal/expression"
	"tranche/internal/workflow"
)

// The failures of an authorization-check.
const (
	codeAuthorizationRequired = "AUTHORIZATION_REQUIRED"
	authorizationRequired     = "there is no signed, unexpired authorization of this key and identity"
	borrowersRequired         = authorizationRequired + " that holds for this borrower"
)

// AuthorizationQuery asks for a signed, unexpired authorization.
type AuthorizationQuery struct {
	TenantID      uuid.UUID
	Key           string
	IdentityKey   string
	IdentityValue string
	// BorrowerID, where the execution has one, leaves out authorizations that
	// name another borrower.
	BorrowerID string
}

// Authorization is the answer to an AuthorizationQuery.
type Authorization struct {
	ID           uuid.UUID
	AuthorizedAt time.Time
	ExpiresAt    time.Time
}

// FindAuthorization is the port to the authorizations of tenants; false where
// none answers.
type FindAuthorization func(ctx context.Context, q AuthorizationQuery) (Authorization, bool, error)

// authorizationCheckType lets a workflow go on only with the consent of
// somebody.
type authorizationCheckType struct{ find FindAuthorization }

// authorizationCheck is a compiled authorization-check.
type authorizationCheck struct {
	authorizationCheckType
	key, identityKey, identityValue *expression.Template
}

func (t authorizationCheckType) Compile(c *workflow.ConfigReader) workflow.Program {
	c.Require("key", "identityKey", "identityValue")
	c.RetryByDefault(workflow.RetryPolicy{
		MaxAttempts: 4, InitialDelay: 500 * time.Millisecond, Factor: 2, MaxDelay: 5 * time.Second, Jitter: 0.2,
	})
	return &authorizationCheck{
		authorizationCheckType: t,
		key:                    c.Template("key"),
		identityKey:            c.Template("identityKey"),
		identityValue:          c.Template("identityValue"),
	}
}

// Effect is true: the result depends on the time of the check. The check is made once and
// its result is kept as evidence.
func (*authorizationCheck) Effect() bool { return true }

// Run looks for the authorization. The output is its id and times.
func (p *authorizationCheck) Run(ctx context.Context, call *workflow.Call) (workflow.Result, error) {
	q := AuthorizationQuery{TenantID: workflow.TenantOf(ctx)}
	q.BorrowerID, _ = call.Env.Execution.Member("borrowerId").(string)
	for _, part := range []struct {
		name     string
		template *expression.Template
		to       *string
	}{{"key", p.key, &q.Key}, {"identityKey", p.identityKey, &q.IdentityKey}, {"identityValue", p.identityValue, &q.IdentityValue}} {
		value, err := part.template.Eval(call.Env)
		if err != nil {
			return workflow.Result{}, failureAt(workflow.CodeExpression, part.name, err)
		}
		text, ok := value.(string)
		if !ok || text == "" {
			return workflow.Result{}, failure(codeAuthorizationRequired, "%s: must be a text that is not empty", part.name)
		}
		*part.to = text
	}
	found, ok, err := p.find(ctx, q)
	if err != nil {
		return workflow.Result{}, &workflow.TaskError{
			Code: workflow.CodeInternal, Message: "the authorizations could not be looked into", Retryable: true,
		}
	}
	if !ok {
		return workflow.Result{}, unauthorized(q)
	}
	return workflow.Result{Output: map[string]any{
		"authorizationId": found.ID.String(),
		"authorizedAt":    exactjson.FormatTime(found.AuthorizedAt),
		"expiresAt":       exactjson.FormatTime(found.ExpiresAt),
	}}, nil
}

func unauthorized(q AuthorizationQuery) error {
	if q.BorrowerID != "" {
		return failure(codeAuthorizationRequired, borrowersRequired)
	}
	return failure(codeAuthorizationRequired, authorizationRequired)
}
