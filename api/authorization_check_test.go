package api_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tranche/internal/apitest"
	"tranche/internal/identity"
	"tranche/internal/targettest"
	"tranche/testdata"
)

// The underwriting workflow calls the bureau only for borrowers that have signed.
func TestBureauRequiresConsent(t *testing.T) {
	t.Parallel()
	d := openDesk(t)
	bureau := targettest.New(t, targettest.WithAnswer(func(w http.ResponseWriter, r *http.Request) {
		answer := `{"score":752,"delinquencies":0,"monthlyObligations":845.10}`
		if strings.HasPrefix(r.URL.Path, "/v1/fraud-scores/") {
			answer = `{"level":"low","risk":0.0100}`
		}
		targettest.JSON(answer)(w, r)
	}))

	tenant := d.Tenant(t)
	s := &signer{desk: d, Caller: tenant.As(t, identity.RoleAdmin), tenant: tenant}
	text, err := testdata.Workflows.ReadFile("workflows/underwriting.json")
	require.NoError(t, err)
	id := s.Post(t, "/v2/workflows", apitest.Raw(strings.ReplaceAll(string(text), testdata.BureauURL, bureau.URL))).Expect(http.StatusCreated).Text("id")
	s.Post(t, "/v2/workflows/"+id+"/publish", nil).Expect(http.StatusOK)
	execute := func() *apitest.Answer {
		return s.Post(t, "/v1/workflows/underwriting/v1/execute", testdata.Application).Expect(http.StatusOK)
	}
	refused := func(why string) {
		t.Helper()
		before := bureau.Count()
		got := execute()
		require.Equal(t, []any{false, "422"}, []any{got.Value("isSuccess"), got.Text("statusCode")}, "%s: %s", why, got.Body)
		require.Contains(t, got.Text("errorMessage"), "signed, unexpired authorization", why)
		require.NotContains(t, got.Text("errorMessage"), "B-10002000")
		require.Equal(t, before, bureau.Count(), why)
	}
	consent := func(borrower string) {
		s.id = s.Post(t, "/v1/authorizations", map[string]any{
			"tenant": tenant.Slug, "key": "credit-report", "identityKey": "borrowerId", "identityValue": "B-10002000", "borrowerId": borrower,
		}).Expect(http.StatusCreated).Text("id")
	}
	refused("there is none")
	consent("B-10002000")
	refused("it is not signed")
	otpID, code := s.start(t, "gate@example.com")
	refused("its code is on the way")
	s.attempt(t, otpID, code).Expect(http.StatusAccepted)

	passed := execute()
	require.Equal(t, true, passed.Value("isSuccess"), "%s", passed.Body)
	require.EqualValues(t, 2, bureau.Count())
	signed := s.Get(t, s.path(""))
	state := s.Get(t, "/v1/executions/"+passed.Text("executionId")+"/state").Expect(http.StatusOK)
	require.Equal(t, map[string]any{
		"authorizationId": s.id, "authorizedAt": signed.Text("authorizedAt"), "expiresAt": signed.Text("expiresAt"),
	}, state.Value("tasks[0].output"), "the execution keeps the evidence")

	// The stored result keeps the evidence after the authorization is deleted.
	kept := s.id
	s.exec(t, `UPDATE authorizations SET expires_at = now() WHERE id = $1`, s.id)
	refused("it has expired")
	s.exec(t, `UPDATE authorizations SET expires_at = now() + interval '1 day', borrower_id = 'B-2' WHERE id = $1`, s.id)
	refused("it is another borrower's")
	s.exec(t, `UPDATE authorizations SET borrower_id = 'B-10002000' WHERE id = $1`, s.id)
	require.Equal(t, true, execute().Value("isSuccess"))
	s.Delete(t, s.path("")).Expect(http.StatusNoContent)
	refused("it was deleted")
	state = s.Get(t, "/v1/executions/"+passed.Text("executionId")+"/state").Expect(http.StatusOK)
	require.Equal(t, kept, state.Text("tasks[0].output.authorizationId"))

	// The consent of another tenant does not count.
	stranger := d.signer(t)
	stranger.id = stranger.Post(t, "/v1/authorizations", map[string]any{
		"tenant": stranger.tenant.Slug, "key": "credit-report", "identityKey": "borrowerId", "identityValue": "B-10002000",
	}).Expect(http.StatusCreated).Text("id")
	otpID, code = stranger.start(t, "stranger@example.com")
	stranger.attempt(t, otpID, code).Expect(http.StatusAccepted)
	refused("it is another tenant's")

	// A batch may declare that its consents are on file.
	batch := s.Post(t, "/v1/workflows/underwriting/v1/execute-batch", map[string]any{
		"workflowInput": map[string]any{"items": []any{json.RawMessage(testdata.Application)}, "customInput": map[string]any{"consentsOnFile": true}},
	}).Expect(http.StatusAccepted).Text("executionBatchId")
	require.Eventually(t, func() bool {
		return s.Get(t, "/v1/execution-batches/"+batch).Text("state.batchItemsExecutionsSummary.completed") == "1"
	}, time.Minute, 50*time.Millisecond)
}

// The consent is looked up by an identity that is not the borrower's id.
func TestConsentRequiresSameBorrower(t *testing.T) {
	t.Parallel()
	d := openDesk(t)
	tenant := d.Tenant(t)
	s := &signer{desk: d, Caller: tenant.As(t, identity.RoleAdmin), tenant: tenant}
	id := s.Post(t, "/v2/workflows", apitest.Raw(`{"name":"Gate","alias":"gate","tasks":[
		{"id":"consent","type":"authorization-check","config":{"key":"credit-report","identityKey":"curp","identityValue":"{{ input.curp }}"}}]}`)).
		Expect(http.StatusCreated).Text("id")
	s.Post(t, "/v2/workflows/"+id+"/publish", nil).Expect(http.StatusOK)
	passes := func(query string) any {
		t.Helper()
		got := s.Post(t, "/v1/workflows/gate/v1/execute"+query, map[string]any{"curp": "GOMA900101"}).Expect(http.StatusOK)
		if got.Value("isSuccess") != true {
			require.Contains(t, got.Text("errorMessage"), "signed, unexpired authorization")
		}
		return got.Value("isSuccess")
	}
	sign := func(borrower string) {
		s.id = s.Post(t, "/v1/authorizations", map[string]any{
			"tenant": tenant.Slug, "key": "credit-report", "identityKey": "curp", "identityValue": "GOMA900101", "borrowerId": borrower,
		}).Expect(http.StatusCreated).Text("id")
		otpID, code := s.start(t, s.id+"@example.com")
		s.attempt(t, otpID, code).Expect(http.StatusAccepted)
	}
	require.Equal(t, false, passes(""))
	sign("B-1")
	require.Equal(t, true, passes(""), "an execution without a borrower looks up the identity alone")
	require.Equal(t, true, passes("?borrower-id=B-1"))
	require.Equal(t, false, passes("?borrower-id=B-2"), "the consent of another borrower")
	sign("") // without a borrower
	require.Equal(t, true, passes("?borrower-id=B-1"))
	require.Equal(t, true, passes("?borrower-id=B-2"))
}
