package task

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"tranche/internal/expression"
	"tranche/internal/workflow"
)

func TestAuthorizationCheck(t *testing.T) {
	t.Parallel()
	tenant, id := uuid.New(), uuid.New()
	signed := time.Date(2026, 1, 31, 8, 0, 0, 0, time.UTC)
	borrower := "B-1"
	var asked AuthorizationQuery
	var isFound bool
	var broken error
	types := Types(Ports{FindAuthorization: func(_ context.Context, q AuthorizationQuery) (Authorization, bool, error) {
		asked = q
		return Authorization{ID: id, AuthorizedAt: signed, ExpiresAt: signed.AddDate(1, 0, 0)}, isFound, broken
	}})
	p, details := compile(t, types, "authorization-check", `{"key":"credit","identityKey":"taxId","identityValue":"{{ input.taxId }}"}`)
	require.Empty(t, details)
	check := func(input string) (workflow.Result, *workflow.TaskError) {
		call := callWith(t, input)
		call.Env.Execution = &expression.Execution{BorrowerID: &borrower}
		result, err := p.Run(workflow.WithTenant(t.Context(), tenant), call)
		failed, _ := errors.AsType[*workflow.TaskError](err)
		return result, failed
	}

	_, failed := check(`{"taxId":"77"}`)
	require.Equal(t, AuthorizationQuery{TenantID: tenant, Key: "credit", IdentityKey: "taxId", IdentityValue: "77", BorrowerID: borrower}, asked)
	require.Equal(t, "AUTHORIZATION_REQUIRED", failed.Code)
	require.False(t, failed.Retryable)

	isFound = true
	result, failed := check(`{"taxId":"77"}`)
	require.Nil(t, failed)
	require.JSONEq(t, `{"authorizationId":"`+id.String()+`","authorizedAt":"2026-01-31T08:00:00.000Z","expiresAt":"2027-01-31T08:00:00.000Z"}`, encode(t, result.Output))

	// Nothing is nobody's identity, whatever is found.
	for _, input := range []string{`{"taxId":""}`, `{}`, `{"taxId":77}`} {
		asked = AuthorizationQuery{}
		_, failed = check(input)
		require.Equal(t, "AUTHORIZATION_REQUIRED", failed.Code, input)
		require.Zero(t, asked)
	}

	broken = errors.New("the database is away")
	_, failed = check(`{"taxId":"77"}`)
	require.Equal(t, workflow.CodeInternal, failed.Code)
	require.True(t, failed.Retryable)
}
