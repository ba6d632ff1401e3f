package api_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"tranche/internal/apitest"
	"tranche/internal/audit"
	"tranche/internal/identity"
	"tranche/internal/server"
)

// Changes of active workflows, secrets and message templates are recorded with their
// client and request. Rejected changes are not recorded.
func testAccessAuditTrail(t *testing.T, s *apitest.Service) {
	t.Helper()
	tenant := s.Tenant(t)
	c := tenant.As(t, identity.RoleAdmin)
	named := func(id string) apitest.Header { return apitest.Header{Name: "X-Request-Id", Value: id} }
	create := func(alias string) string {
		return c.Post(t, "/v2/workflows", apitest.Raw(`{"name":"x","alias":"`+alias+`","tasks":[{"id":"done","type":"end","config":{"output":{}}}]}`)).
			Expect(http.StatusCreated).Text("id")
	}
	published, draft := create("published"), create("draft")
	c.Post(t, "/v2/workflows/"+published+"/archive", nil, named("early")).Expect(http.StatusConflict)
	c.Post(t, "/v2/workflows/"+published+"/publish", nil, named("first")).Expect(http.StatusOK)
	c.Post(t, "/v2/workflows/"+published+"/publish", nil, named("twice")).Expect(http.StatusConflict)
	c.Post(t, "/v2/workflows/"+published+"/archive", nil, named("second")).Expect(http.StatusOK)
	c.Delete(t, "/v2/workflows/"+draft, named("third")).Expect(http.StatusNoContent)

	value := apitest.Raw(`{"value":"open sesame","hosts":["api.example"]}`)
	c.Put(t, "/v1/secrets/bureau", value, named("fourth")).Expect(http.StatusOK)
	c.Put(t, "/v1/secrets/bureau", apitest.Raw(`{"value":"short","hosts":[]}`), named("wrong")).Expect(http.StatusBadRequest)
	c.Put(t, "/v1/secrets/bureau", value, named("fifth")).Expect(http.StatusOK)
	c.Delete(t, "/v1/secrets/bureau", named("sixth")).Expect(http.StatusNoContent)
	c.Delete(t, "/v1/secrets/bureau", named("again")).Expect(http.StatusNotFound)

	wording := apitest.Raw(`{"subject":"Your code","text":"{{code}}"}`)
	c.Put(t, "/v1/message-templates/default", wording, named("seventh")).Expect(http.StatusOK)
	c.Put(t, "/v1/message-templates/default", apitest.Raw(`{"subject":"Your code","text":"none"}`), named("wrong")).Expect(http.StatusBadRequest)
	c.Delete(t, "/v1/message-templates/default", named("eighth")).Expect(http.StatusNoContent)
	c.Delete(t, "/v1/message-templates/default", named("again")).Expect(http.StatusNoContent)

	type event struct{ Actor, Action, Subject, RequestID string }
	trail := func(prefix string) (got []event) {
		events, err := audit.Events(t.Context(), s.Pool, tenant.ID, time.Now().Add(-time.Hour), prefix, 10)
		require.NoError(t, err)
		for _, e := range events {
			got = append(got, event{e.Actor, e.Action, e.Subject, *e.RequestID})
		}
		return got
	}
	require.Empty(t, cmp.Diff([]event{
		{c.ClientID, "workflow.publish", published, "first"},
		{c.ClientID, "workflow.archive", published, "second"},
		{c.ClientID, "workflow.delete", draft, "third"},
	}, trail("workflow.")))
	require.Empty(t, cmp.Diff([]event{
		{c.ClientID, "secret.set", "bureau", "fourth"},
		{c.ClientID, "secret.set", "bureau", "fifth"},
		{c.ClientID, "secret.delete", "bureau", "sixth"},
	}, trail("secret.")))
	require.Empty(t, cmp.Diff([]event{
		{c.ClientID, "template.set", "default", "seventh"},
		{c.ClientID, "template.delete", "default", "eighth"},
	}, trail("template.")))
	for _, statement := range []string{`UPDATE audit_events SET actor = ''`, `DELETE FROM audit_events`, `TRUNCATE audit_events`} {
		_, err := s.Pool.Exec(t.Context(), statement)
		require.ErrorContains(t, err, "audit_events takes no", statement)
	}
}

// Denied requests are counted, not listed. The counts are written when the process stops,
// if not before.
func TestDeniedRequestsAreCounted(t *testing.T) {
	t.Parallel()
	s := apitest.Start(t)
	tenant := s.Tenant(t)
	reader := tenant.With(t, identity.ScopeWorkflowsRead)
	t.Run("requests", func(t *testing.T) { // the replica stops at the end of the subtest
		replica := s.Replica(t, server.RoleAPI)
		for range 3 {
			replica.WithToken(reader.Token).Post(t, "/v2/workflows", apitest.Raw(`{}`)).Expect(http.StatusForbidden)
			replica.Anonymous().Get(t, "/v2/workflows").Expect(http.StatusUnauthorized)
			replica.WithToken("x").Get(t, "/v2/workflows").Expect(http.StatusUnauthorized)
		}
		replica.Anonymous().Post(t, "/identity/resources/auth/v1/api-token", map[string]any{"clientId": reader.ClientID, "secret": "wrong"}).
			Expect(http.StatusUnauthorized)
		replica.Anonymous().Get(t, "/v1/stores/attachments/"+unknownID+"?signature=c2ln&tenant=&name=&type=&size=&expires=").Expect(http.StatusForbidden)
		replica.WithToken(tenant.With(t, identity.ScopeAuthorizationsWrite).Token).Post(t, "/v1/authorizations", map[string]any{
			"tenant": "another", "key": "credit", "identityKey": "email", "identityValue": "ada@example.com",
		}).Expect(http.StatusForbidden)
	})
	type kind struct {
		Status int
		Reason string
	}
	counts := func(tenantID uuid.UUID) map[kind]int64 {
		got := map[kind]int64{}
		rows, err := audit.DeniedCounts(t.Context(), s.Pool, tenantID, time.Now().Add(-time.Hour), 10)
		require.NoError(t, err)
		for _, row := range rows {
			require.Zero(t, row.Minute.Second())
			require.Equal(t, tenantID != uuid.Nil, row.ClientID != nil)
			got[kind{row.Status, row.Reason}] += row.Count // the requests may span two minutes
		}
		return got
	}
	require.Empty(t, cmp.Diff(map[kind]int64{
		{403, "the token does not have the scope workflows:write"}: 3,
		{403, "the member tenant must be the tenant of the token"}: 1,
	}, counts(tenant.ID)))
	require.Empty(t, cmp.Diff(map[kind]int64{
		{401, "the request has no bearer token"}:            3,
		{401, "the access token is invalid or has expired"}: 3,
		{401, "the client id or the secret is wrong"}:       1,
		{403, "the signature of this address is invalid"}:   1,
	}, counts(uuid.Nil)))
}
