package api_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"tranche/internal/apitest"
)

func TestAuthorizations(t *testing.T) {
	t.Parallel()
	d := openDesk(t)
	for name, test := range map[string]func(*testing.T, *desk){
		"signing":                 testSigning,
		"record":                  testAuthorizationRecord,
		"create errors":           testAuthorizationCreateErrors,
		"change":                  testAuthorizationChange,
		"list":                    testAuthorizationList,
		"deletion":                testAuthorizationDeletion,
		"attachments":             testAuthorizationAttachments,
		"signing errors":          testSigningErrors,
		"attempt errors":          testAttemptErrors,
		"limits":                  testSendLimits,
		"limits in parallel":      testSendLimitsInParallel,
		"wrong ones in parallel":  testWrongAttemptsInParallel,
		"right ones in parallel":  testRightAttemptsInParallel,
		"templates":               testMessageTemplates,
		"gateway":                 testGatewayDelivery,
		"refused by the provider": testRejectedDelivery,
		"never sent late":         testNeverSentLate,
		"evidence":                testEvidence,
		"idempotency keys":        testConsentIdempotency,
		"late uploads":            testLateUploads,
		"uploads while signing":   testUploadsWhileSigning,
		"refused attachments":     testRejectedAttachments,
		"changes supersede":       testChangesInvalidateCode,
		"changes of nothing":      testEmptyChanges,
		"evidence while deleting": testEvidenceWhileDeleting,
		"attempts while deleting": testAttemptsWhileDeleting,
		"signed sort last":        testListBySignature,
		"discarded delivery":      testDiscardedDelivery,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, d)
		})
	}
}

func testSigning(t *testing.T, d *desk) {
	t.Helper()
	s := d.signer(t)
	otpID, code := s.start(t, "ana@example.com")
	require.Len(t, code, 6)

	before := s.Get(t, s.path("")).Expect(http.StatusOK)
	require.Nil(t, before.Value("authorizedAt"))
	require.Equal(t, false, before.Value("hasSignatures"))
	require.Empty(t, s.Get(t, s.path("/signatures")).Expect(http.StatusOK).Value("data"))

	problem := s.attempt(t, otpID, otherThan(code)).ExpectProblem(http.StatusBadRequest, "VALIDATION_ERROR", "")
	require.Contains(t, problem.Message, "4 attempts are left")
	signed := s.attempt(t, otpID, code).Expect(http.StatusAccepted)
	require.Empty(t, signed.Body)

	after := s.Get(t, s.path("")).Expect(http.StatusOK)
	require.Regexp(t, timePattern, after.Text("authorizedAt"))
	require.Equal(t, true, after.Value("hasSignatures"))
	signatures := s.Get(t, s.path("/signatures")).Expect(http.StatusOK)
	require.Equal(t, []string{otpID, "email", "a***@example.com", "default", "smtp", "2", after.Text("authorizedAt")}, []string{
		signatures.Text("data[0].otpId"), signatures.Text("data[0].contactMethod"), signatures.Text("data[0].contact"),
		signatures.Text("data[0].templateId"), signatures.Text("data[0].provider"), signatures.Text("data[0].attempts"), signatures.Text("data[0].signedAt"),
	})
	require.Equal(t, "<"+otpID+"@acme.example>", signatures.Text("data[0].providerMessageId"))

	// A signed authorization cannot be changed.
	s.attempt(t, otpID, code).ExpectProblem(http.StatusConflict, "CONFLICT", "")
	s.Post(t, s.path("/signatures"), byEmail("ana@example.com")).ExpectProblem(http.StatusConflict, "CONFLICT", "")
	s.Do(t, http.MethodPatch, s.path(""), map[string]any{"label": "x"}).ExpectProblem(http.StatusConflict, "CONFLICT", "")
}

// Repeated requests with an Idempotency-Key are replayed, also within the minimum time
// between two codes.
func testConsentIdempotency(t *testing.T, d *desk) {
	t.Helper()
	s := d.signer(t)
	count := func(table string) (n int) {
		require.NoError(t, d.Pool.QueryRow(t.Context(), `SELECT count(*) FROM `+table+` WHERE tenant_id = $1`, s.tenant.ID).Scan(&n))
		return n
	}
	consent := func(key string) map[string]any {
		return map[string]any{"tenant": s.tenant.Slug, "key": key, "identityKey": "borrowerId", "identityValue": "B-1001"}
	}
	for _, tc := range []struct {
		path, table string
		body, other map[string]any
	}{
		{"/v1/authorizations", "authorizations", consent("credit-report"), consent("another")},
		{s.path("/signatures"), "one_time_passwords", byEmail("ana@example.com"), byEmail("bob@example.com")},
	} {
		key := apitest.Header{Name: "Idempotency-Key", Value: "once " + tc.table}
		first := s.Post(t, tc.path, tc.body, key).Expect(http.StatusCreated)
		before := count(tc.table)
		again := s.Post(t, tc.path, tc.body, key).Expect(http.StatusCreated)
		require.JSONEq(t, string(first.Body), string(again.Body))
		require.Equal(t, "true", again.Header.Get("Idempotency-Replayed"))
		require.Equal(t, first.Header.Get("Location"), again.Header.Get("Location"))
		s.Post(t, tc.path, tc.other, key).ExpectProblem(http.StatusBadRequest, "VALIDATION_ERROR", "")
		require.Equal(t, before, count(tc.table))
	}
}

// A code is rejected in each of these states.
func testAttemptErrors(t *testing.T, d *desk) {
	t.Helper()
	t.Run("expired", func(t *testing.T) {
		s := d.signer(t)
		otpID, code := s.start(t, "expired@example.com")
		s.exec(t, `UPDATE one_time_passwords SET expires_at = now() WHERE id = $1`, otpID)
		require.Contains(t, s.attempt(t, otpID, code).ExpectProblem(http.StatusBadRequest, "VALIDATION_ERROR", "").Message, "expired")
	})
	t.Run("exhausted", func(t *testing.T) {
		s := d.signer(t)
		otpID := s.Post(t, s.path("/signatures"), map[string]any{
			"value": "exhausted@example.com", "contactMethod": "email", "templateId": "default",
			"maxAttempts": json.Number("2.0"), "codeSize": json.Number("10.0"), "expiresIn": json.Number("6e1"), // some libraries write integers so
		}).Expect(http.StatusCreated).Text("otpId")
		code := s.office.code(t, "exhausted@example.com", 1)
		require.Len(t, code, 10)
		require.Contains(t, s.attempt(t, otpID, otherThan(code)).ExpectProblem(http.StatusBadRequest, "VALIDATION_ERROR", "").Message, "1 attempt is left")
		require.Contains(t, s.attempt(t, otpID, otherThan(code)).ExpectProblem(http.StatusBadRequest, "VALIDATION_ERROR", "").Message, "no attempts are left")
		require.Contains(t, s.attempt(t, otpID, code).ExpectProblem(http.StatusConflict, "CONFLICT", "").Message, "no attempts left")
	})
	t.Run("superseded", func(t *testing.T) {
		s := d.signer(t)
		first, old := s.start(t, "superseded@example.com")
		s.rest(t)
		second, code := s.start(t, "superseded@example.com")
		require.Contains(t, s.attempt(t, first, old).ExpectProblem(http.StatusConflict, "CONFLICT", "").Message, "superseded")
		s.attempt(t, second, code).Expect(http.StatusAccepted)
	})
	t.Run("authorization expired", func(t *testing.T) {
		s := d.signer(t)
		otpID, code := s.start(t, "late@example.com")
		s.exec(t, `UPDATE authorizations SET expires_at = now() WHERE id = $1`, s.id)
		s.attempt(t, otpID, code).ExpectProblem(http.StatusConflict, "CONFLICT", "")
		s.Post(t, s.path("/signatures"), byEmail("late@example.com")).ExpectProblem(http.StatusConflict, "CONFLICT", "")
	})
	t.Run("unknown", func(t *testing.T) {
		s := d.signer(t)
		otpID, code := s.start(t, "unknown@example.com")
		unknown := s.attempt(t, unknownID, code).ExpectProblem(http.StatusNotFound, "NOT_FOUND", "")
		require.Equal(t, unknown.Message, s.attempt(t, "x", code).ExpectProblem(http.StatusNotFound, "NOT_FOUND", "").Message)
		// Codes of another authorization or tenant are unknown.
		other := &signer{desk: d, Caller: s.Caller, tenant: s.tenant, id: s.create(t)}
		require.Equal(t, unknown.Message, other.attempt(t, otpID, code).ExpectProblem(http.StatusNotFound, "NOT_FOUND", "").Message)
		require.Equal(t, unknown.Message, d.signer(t).attempt(t, otpID, code).ExpectProblem(http.StatusNotFound, "NOT_FOUND", "").Message)
		s.attempt(t, otpID, code).Expect(http.StatusAccepted)
	})
	t.Run("no oracle", func(t *testing.T) { testInvalidCodesAreNoOracle(t, d) })
	t.Run("malformed", func(t *testing.T) {
		s := d.signer(t)
		otpID, code := s.start(t, "malformed@example.com")
		for _, malformed := range []string{"", "12345", code + " ", "abcdef", strings.Repeat("1", 11), "１２３４５６"} {
			s.attempt(t, otpID, malformed).ExpectProblem(http.StatusBadRequest, "VALIDATION_ERROR", "", "code")
		}
		s.Post(t, s.path("/signatures/attempt"), map[string]any{}).ExpectProblem(http.StatusBadRequest, "VALIDATION_ERROR", "MISSING_REQUIRED_FIELD", "otpId", "code")
		s.attempt(t, otpID, code).Expect(http.StatusAccepted) // malformed attempts do not count
	})
}

// If a code can no longer sign, the correct code and a wrong one get the same answer, byte
// for byte.
func testInvalidCodesAreNoOracle(t *testing.T, d *desk) {
	t.Helper()
	for name, end := range map[string]func(*signer, string, string){
		"used":       func(s *signer, otpID, code string) { s.attempt(t, otpID, code).Expect(http.StatusAccepted) },
		"superseded": func(s *signer, _, _ string) { s.rest(t); s.start(t, "dead-again@example.com") },
		"expired": func(s *signer, otpID, _ string) {
			s.exec(t, `UPDATE one_time_passwords SET expires_at = now() WHERE id = $1`, otpID)
		},
		"exhausted": func(s *signer, otpID, _ string) {
			s.exec(t, `UPDATE one_time_passwords SET attempts = attempts_max WHERE id = $1`, otpID)
		},
		"authorization expired": func(s *signer, _, _ string) {
			s.exec(t, `UPDATE authorizations SET expires_at = now() WHERE id = $1`, s.id)
		},
		"authorization deleted": func(s *signer, _, _ string) { s.Delete(t, s.path("")).Expect(http.StatusNoContent) },
	} {
		s := d.signer(t)
		otpID, code := s.start(t, "dead-"+strings.ReplaceAll(name, " ", "-")+"@example.com")
		end(s, otpID, code)
		answer := func(code string) *apitest.Answer {
			return s.Post(t, s.path("/signatures/attempt"), map[string]any{"otpId": otpID, "code": code}, sameID())
		}
		wrong, right := answer(otherThan(code)), answer(code)
		require.NotEqual(t, http.StatusAccepted, right.Status, name)
		require.Equal(t, right.Status, wrong.Status, name)
		require.Equal(t, string(right.Body), string(wrong.Body), name)
	}
}

func testWrongAttemptsInParallel(t *testing.T, d *desk) {
	t.Helper()
	s := d.signer(t)
	otpID, code := s.start(t, "wrong@example.com")
	statuses := s.race(t, otpID, otherThan(code), 200)
	require.Equal(t, map[int]int{http.StatusBadRequest: 5, http.StatusConflict: 195}, statuses)
	var attempts int
	require.NoError(t, s.Pool.QueryRow(t.Context(), `SELECT attempts FROM one_time_passwords WHERE id = $1`, otpID).Scan(&attempts))
	require.Equal(t, []int{5, 5, 5}, []int{attempts, s.recorded(t, "code_attempted"), s.recorded(t, "code_rejected")})
	s.attempt(t, otpID, code).ExpectProblem(http.StatusConflict, "CONFLICT", "")
	require.Nil(t, s.Get(t, s.path("")).Value("authorizedAt"))
}

func testRightAttemptsInParallel(t *testing.T, d *desk) {
	t.Helper()
	s := d.signer(t)
	otpID, code := s.start(t, "right@example.com")
	require.Equal(t, map[int]int{http.StatusAccepted: 1, http.StatusConflict: 49}, s.race(t, otpID, code, 50))
	require.Equal(t, 1, s.recorded(t, "signed"))
}

// recorded returns the number of records of a kind in the authorization's evidence.
func (s *signer) recorded(t *testing.T, kind string) int {
	t.Helper()
	return s.rows(t, "evidence_records", fmt.Sprintf("authorization_id = '%s' AND kind = '%s'", s.id, kind))
}

// race makes n concurrent attempts and returns the number of answers by status.
func (s *signer) race(t *testing.T, otpID, code string, n int) map[int]int {
	t.Helper()
	statuses := make(chan int, n)
	var group sync.WaitGroup
	for range n {
		group.Go(func() { statuses <- s.attempt(t, otpID, code).Status })
	}
	group.Wait()
	close(statuses)
	counts := map[int]int{}
	for status := range statuses {
		counts[status]++
	}
	return counts
}

func testSendLimits(t *testing.T, d *desk) {
	t.Helper()
	t.Run("one mailbox in many spellings", func(t *testing.T) {
		s := d.signer(t)
		as := func(address string) *apitest.Answer {
			other := &signer{desk: d, Caller: s.Caller, tenant: s.tenant, id: s.create(t)}
			return other.Post(t, other.path("/signatures"), byEmail(address))
		}
		as("josé@büro.example").Expect(http.StatusCreated)
		for _, address := range []string{"jose\u0301@bu\u0308ro.example", "José@xn--bro-hoa.example", "josé@BÜRO。example", "josé@büro.ｅxample"} {
			as(address).ExpectProblem(http.StatusTooManyRequests, "RATE_LIMITED", "")
		}
	})
	t.Run("contact", func(t *testing.T) {
		s := d.signer(t)
		again := func() *apitest.Answer {
			other := &signer{desk: d, Caller: s.Caller, tenant: s.tenant, id: s.create(t)}
			return other.Post(t, other.path("/signatures"), byEmail("Often@Example.com"))
		}
		for i := range 5 {
			again().Expect(http.StatusCreated)
			limited := again()
			limited.ExpectProblem(http.StatusTooManyRequests, "RATE_LIMITED", "")
			if i < 4 {
				require.Regexp(t, `^(60|59|58)$`, limited.Header.Get("Retry-After"))
			}
			s.rest(t)
		}
		limited := again()
		limited.ExpectProblem(http.StatusTooManyRequests, "RATE_LIMITED", "")
		require.Regexp(t, `^2[89][0-9]$`, limited.Header.Get("Retry-After"), "the first of the five codes is 305 s old")
		s.exec(t, `UPDATE one_time_passwords SET created_at = created_at - interval '10 minutes' WHERE tenant_id = $1`, s.tenant.ID)
		for range 5 {
			again().Expect(http.StatusCreated)
			s.rest(t)
		}
		s.exec(t, `UPDATE one_time_passwords SET created_at = created_at - interval '10 minutes' WHERE tenant_id = $1`, s.tenant.ID)
		limited = again()
		limited.ExpectProblem(http.StatusTooManyRequests, "RATE_LIMITED", "")
		require.Len(t, limited.Header.Get("Retry-After"), 5, "retry after most of a day")

		// Tenants have separate limits, so that no answer reveals contacts of other tenants.
		d.signer(t).Post(t, "/v1/authorizations", nil)
		stranger := d.signer(t)
		stranger.Post(t, stranger.path("/signatures"), byEmail("often@example.com")).Expect(http.StatusCreated)
	})
	t.Run("telephone number by two ways", func(t *testing.T) {
		s := d.signer(t)
		body := map[string]any{"value": "+525515550199", "contactMethod": "sms", "templateId": "default"}
		s.Post(t, s.path("/signatures"), body).Expect(http.StatusCreated)
		s.Post(t, s.path("/signatures"), body).ExpectProblem(http.StatusTooManyRequests, "RATE_LIMITED", "")
		s.Post(t, s.path("/signatures"), byEmail("other@example.com")).ExpectProblem(http.StatusTooManyRequests, "RATE_LIMITED", "")
	})
	t.Run("authorization", func(t *testing.T) {
		s := d.signer(t)
		for i := range 20 {
			s.Post(t, s.path("/signatures"), byEmail(fmt.Sprintf("many%d@example.com", i))).Expect(http.StatusCreated)
			s.rest(t)
		}
		problem := s.Post(t, s.path("/signatures"), byEmail("one-more@example.com")).ExpectProblem(http.StatusConflict, "CONFLICT", "")
		require.Contains(t, problem.Message, "20 codes")
	})
}

func testSendLimitsInParallel(t *testing.T, d *desk) {
	t.Helper()
	s := d.signer(t)
	ids := make([]string, 10)
	for i := range ids {
		ids[i] = s.create(t)
	}
	var group sync.WaitGroup
	statuses := make(chan int, len(ids))
	for _, id := range ids {
		group.Go(func() {
			statuses <- s.Post(t, "/v1/authorizations/"+id+"/signatures", byEmail("all-at-once@example.com")).Status
		})
	}
	group.Wait()
	close(statuses)
	counts := map[int]int{}
	for status := range statuses {
		counts[status]++
	}
	require.Equal(t, map[int]int{http.StatusCreated: 1, http.StatusTooManyRequests: 9}, counts)
}

func testSigningErrors(t *testing.T, d *desk) {
	t.Helper()
	s := d.signer(t)
	body := func(change map[string]any) map[string]any {
		b := byEmail("refuse@example.com")
		maps.Copy(b, change)
		return b
	}
	for name, c := range map[string]struct {
		change map[string]any
		field  string
	}{
		"method":            {map[string]any{"contactMethod": "pigeon"}, "contactMethod"},
		"not configured":    {map[string]any{"contactMethod": "whatsapp", "value": "+525515550123"}, "contactMethod"},
		"template":          {map[string]any{"templateId": "unknown"}, "templateId"},
		"code too short":    {map[string]any{"codeSize": 5}, "codeSize"},
		"code too long":     {map[string]any{"codeSize": 11}, "codeSize"},
		"too short a time":  {map[string]any{"expiresIn": 59}, "expiresIn"},
		"too long a time":   {map[string]any{"expiresIn": 601}, "expiresIn"},
		"no attempts":       {map[string]any{"maxAttempts": 0}, "maxAttempts"},
		"too many attempts": {map[string]any{"maxAttempts": 6}, "maxAttempts"},
		"no address":        {map[string]any{"value": "ana"}, "value"},
		"two addresses":     {map[string]any{"value": "a@example.com,b@example.com"}, "value"},
		"with a name":       {map[string]any{"value": "Ana <ana@example.com>"}, "value"},
		"control":           {map[string]any{"value": "ana\u0085@example.com"}, "value"},
		"unseen":            {map[string]any{"value": "ana\u200b@example.com"}, "value"},
		"odd space":         {map[string]any{"value": "an\u00a0a@example.com"}, "value"},
		"odd domain":        {map[string]any{"value": "ana@-example.com"}, "value"},
		"empty label":       {map[string]any{"value": "ana@example\u3002\u3002com"}, "value"},
		"IP address":        {map[string]any{"value": "ana@192.0.2.1"}, "value"},
		"template control":  {map[string]any{"templateId": "a\x07"}, "templateId"},
		"line break":        {map[string]any{"value": "ana@example.com\r\nBcc: b@example.com"}, "value"},
		"no domain":         {map[string]any{"value": "ana@localhost"}, "value"},
		"too long":          {map[string]any{"value": strings.Repeat("a", 250) + "@example.com"}, "value"},
		"too long a name":   {map[string]any{"value": strings.Repeat("a", 65) + "@example.com"}, "value"},
		"number for e-mail": {map[string]any{"value": "+525515550123"}, "value"},
		"address for sms":   {map[string]any{"contactMethod": "sms"}, "value"},
		"national number":   {map[string]any{"contactMethod": "sms", "value": "5515550123"}, "value"},
		"number with words": {map[string]any{"contactMethod": "sms", "value": "+52 55 1555 0123"}, "value"},
		"impossible number": {map[string]any{"contactMethod": "sms", "value": "+1234567890123"}, "value"},
	} {
		t.Run(name, func(t *testing.T) {
			problem := s.Post(t, s.path("/signatures"), body(c.change)).ExpectProblem(http.StatusBadRequest, "VALIDATION_ERROR", "", c.field)
			for _, value := range c.change {
				if text, ok := value.(string); ok && len(text) > 8 {
					require.NotContains(t, fmt.Sprint(problem), text, "an error does not repeat the value")
				}
			}
		})
	}
	s.Post(t, s.path("/signatures"), map[string]any{}).
		ExpectProblem(http.StatusBadRequest, "VALIDATION_ERROR", "MISSING_REQUIRED_FIELD", "value", "contactMethod", "templateId")
	s.Post(t, s.path("/signatures"), body(map[string]any{"value": "ana", "codeSize": 5, "x": 1})).
		ExpectProblem(http.StatusBadRequest, "VALIDATION_ERROR", "", "value", "codeSize", "x")
	s.Post(t, "/v1/authorizations/"+unknownID+"/signatures", byEmail("refuse@example.com")).ExpectProblem(http.StatusNotFound, "NOT_FOUND", "")
}
