package api_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"tranche/internal/apitest"
)

// rows counts the tenant's rows of a table that satisfy a condition.
func (s *signer) rows(t *testing.T, table, condition string) (n int) {
	t.Helper()
	sql := `SELECT count(*) FROM ` + table + ` WHERE tenant_id = $1 AND ` + condition
	require.NoError(t, s.Pool.QueryRow(t.Context(), sql, s.tenant.ID).Scan(&n))
	return n
}

// announce requests an upload URL for another file of the authorization.
func (s *signer) announce(t *testing.T) *apitest.Answer {
	t.Helper()
	return s.Post(t, s.path("/attachments"), map[string]any{"fileName": "consent.txt"}).Expect(http.StatusCreated)
}

// upload sends the bytes of a file to its upload URL.
func (s *signer) upload(t *testing.T, announced *apitest.Answer, text string) *apitest.Answer {
	t.Helper()
	return s.Anonymous().Put(t, announced.Text("signedUrl"), apitest.Raw(text), apitest.Header{Name: "Content-Type", Value: "text/plain"})
}

// A code covers the files that were complete when it was requested. Upload URLs from
// before are withdrawn.
func testLateUploads(t *testing.T, d *desk) {
	t.Helper()
	s := d.signer(t)
	kept, late, later := s.announce(t), s.announce(t), s.announce(t)
	s.upload(t, kept, "I agree.").Expect(http.StatusOK)
	otpID, code := s.start(t, "late-upload@example.com")
	s.upload(t, late, "To something else.").ExpectProblem(http.StatusNotFound, "NOT_FOUND", "")
	s.attempt(t, otpID, code).Expect(http.StatusAccepted)
	s.upload(t, later, "And more.").ExpectProblem(http.StatusNotFound, "NOT_FOUND", "")
	s.upload(t, kept, "I agree.").Expect(http.StatusOK)

	list := s.Get(t, s.path("/attachments")).Expect(http.StatusOK)
	require.Equal(t, kept.Text("attachmentId"), list.Text("data[0].attachmentId"))
	require.Nil(t, list.Value("data[1]"))
	require.Equal(t, 1, s.rows(t, "attachments", "true"))
	// The signature covers the files of the code.
	signed := s.evidence(t, "signed")
	require.NotEmpty(t, signed["attachments"])
	require.Equal(t, s.evidence(t, "code_requested")["attachments"], signed["attachments"])
}

// evidence returns the content of the last record of a kind.
func (s *signer) evidence(t *testing.T, kind string) map[string]any {
	t.Helper()
	var found struct {
		Records []struct {
			Kind    string
			Content map[string]any
		}
	}
	s.Get(t, s.path("/evidence")).Expect(http.StatusOK).Decode(&found)
	var content map[string]any
	for _, r := range found.Records {
		if r.Kind == kind {
			content = r.Content
		}
	}
	require.NotNil(t, content, "no record of kind %s", kind)
	return content
}

// If a file is uploaded during the signature, it is in the evidence or it is not attached.
func testUploadsWhileSigning(t *testing.T, d *desk) {
	t.Helper()
	for range 5 {
		s := d.signer(t)
		var announced []*apitest.Answer
		for range 4 {
			announced = append(announced, s.announce(t))
		}
		var group sync.WaitGroup
		for i, a := range announced {
			group.Go(func() {
				if status := s.upload(t, a, fmt.Sprint("file ", i)).Status; status != http.StatusOK && status != http.StatusNotFound && status != http.StatusConflict {
					t.Errorf("an upload was answered with %d", status)
				}
			})
		}
		otpID, code := s.start(t, fmt.Sprintf("race-%s@example.com", s.id))
		s.attempt(t, otpID, code).Expect(http.StatusAccepted)
		group.Wait()
		var list struct {
			Data []struct{ AttachmentID, SHA256 string }
		}
		s.Get(t, s.path("/attachments")).Expect(http.StatusOK).Decode(&list)
		signed, _ := s.evidence(t, "signed")["attachments"].([]any)
		require.Len(t, signed, len(list.Data))
		for i, file := range list.Data {
			record, _ := signed[i].(map[string]any)
			require.Equal(t, []any{file.AttachmentID, file.SHA256}, []any{record["attachmentId"], record["sha256"]})
		}
		require.Len(t, list.Data, s.rows(t, "attachments", "true"), "nothing of the rejected uploads is stored")
	}
}

// Rejected attachments store nothing, not even the file name.
func testRejectedAttachments(t *testing.T, d *desk) {
	t.Helper()
	s := d.signer(t)
	body := map[string]any{"fileName": "passport of Ana.pdf"}
	s.Post(t, "/v1/authorizations/"+unknownID+"/attachments", body).ExpectProblem(http.StatusNotFound, "NOT_FOUND", "")
	for _, name := range []string{"", "virus.exe", "a\nb.pdf", "a\x7fb.pdf", "a/b.pdf", "/etc/passwd.txt", `..\..\x.pdf`} {
		s.Post(t, s.path("/attachments"), map[string]any{"fileName": name}).ExpectProblem(http.StatusBadRequest, "VALIDATION_ERROR", "", "fileName")
	}
	require.Zero(t, s.rows(t, "attachments", "true"))
	for range 20 {
		s.Post(t, s.path("/attachments"), body).Expect(http.StatusCreated)
	}
	require.Contains(t, s.Post(t, s.path("/attachments"), body).ExpectProblem(http.StatusConflict, "CONFLICT", "").Message, "at most 20")
	require.Equal(t, 20, s.rows(t, "attachments", "true"))
	// A file belongs to one authorization only.
	another := &signer{desk: d, Caller: s.Caller, tenant: s.tenant, id: s.create(t)}
	s.Delete(t, s.path("")).Expect(http.StatusNoContent)
	foreign := another.announce(t)
	another.upload(t, foreign, "x").Expect(http.StatusOK)
	other := &signer{desk: d, Caller: s.Caller, tenant: s.tenant, id: s.create(t)}
	other.Get(t, other.path("/attachments/"+foreign.Text("attachmentId"))).ExpectProblem(http.StatusNotFound, "NOT_FOUND", "")
	other.Delete(t, other.path("/attachments/"+foreign.Text("attachmentId"))).ExpectProblem(http.StatusNotFound, "NOT_FOUND", "")
	another.Delete(t, another.path("/attachments/"+foreign.Text("attachmentId"))).Expect(http.StatusNoContent)
	require.Empty(t, s.rowsWith(t, "passport of Ana", s.tenant.ID.String()))

	s.id = s.create(t)
	otpID, code := s.start(t, "too-late@example.com")
	s.attempt(t, otpID, code).Expect(http.StatusAccepted)
	s.Post(t, s.path("/attachments"), body).ExpectProblem(http.StatusConflict, "CONFLICT", "")
	require.Zero(t, s.rows(t, "attachments", "true"))
}

// A change of the authorization invalidates the code.
func testChangesInvalidateCode(t *testing.T, d *desk) {
	t.Helper()
	for name, change := range map[string]func(*testing.T, *signer) *apitest.Answer{
		"change": func(t *testing.T, s *signer) *apitest.Answer {
			t.Helper()
			return s.Do(t, http.MethodPatch, s.path(""), map[string]any{"policyLink": "https://acme.example/other"}).Expect(http.StatusOK)
		},
		"attachment": func(t *testing.T, s *signer) *apitest.Answer {
			t.Helper()
			return s.announce(t)
		},
		"attachment removed": func(t *testing.T, s *signer) *apitest.Answer {
			t.Helper()
			id := s.Get(t, s.path("/attachments")).Text("data[0].attachmentId")
			return s.Delete(t, s.path("/attachments/"+id)).Expect(http.StatusNoContent)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := d.signer(t)
			s.upload(t, s.announce(t), "I agree.").Expect(http.StatusOK)
			otpID, code := s.start(t, s.id+"@example.com")
			change(t, s)
			problem := s.attempt(t, otpID, code).ExpectProblem(http.StatusConflict, "CONFLICT", "")
			require.Contains(t, problem.Message, "superseded")
			require.Nil(t, s.Get(t, s.path("")).Value("authorizedAt"))
			// A rejected change does not invalidate the code.
			s.rest(t)
			otpID, code = s.start(t, fmt.Sprintf("again-%s@example.com", s.id))
			s.Do(t, http.MethodPatch, s.path(""), map[string]any{"expiresAt": "2020-01-01T00:00:00Z"}).Expect(http.StatusBadRequest)
			s.Delete(t, s.path("/attachments/"+unknownID)).Expect(http.StatusNotFound)
			s.Post(t, s.path("/attachments"), map[string]any{"fileName": "x.exe"}).Expect(http.StatusBadRequest)
			s.attempt(t, otpID, code).Expect(http.StatusAccepted)
		})
	}
}

// A request that changes nothing keeps the code, the evidence and updatedAt.
func testEmptyChanges(t *testing.T, d *desk) {
	t.Helper()
	s := d.signer(t)
	s.Do(t, http.MethodPatch, s.path(""), map[string]any{"tags": []string{"web"}, "externalId": "crm-991"}).Expect(http.StatusOK)
	otpID, code := s.start(t, "nothing@example.com")
	before := s.Get(t, s.path("")).Expect(http.StatusOK)
	for _, change := range []map[string]any{
		{},
		{"formId": "", "externalId": "crm-991"},
		{"label": "credit-report", "tags": []string{"web"}, "expiresAt": before.Text("expiresAt")},
	} {
		after := s.Do(t, http.MethodPatch, s.path(""), change).Expect(http.StatusOK)
		require.JSONEq(t, string(before.Body), string(after.Body), "%v", change)
	}
	require.Equal(t, 1, s.rows(t, "evidence_records", "kind = 'authorization_changed'"))
	s.attempt(t, otpID, code).Expect(http.StatusAccepted)
}

// Evidence that is read while its authorization is deleted is complete or not found.
func testEvidenceWhileDeleting(t *testing.T, d *desk) {
	t.Helper()
	s := d.signer(t)
	for range 20 {
		s.id = s.create(t)
		var group sync.WaitGroup
		for range 3 {
			group.Go(func() {
				for {
					got := s.Get(t, s.path("/evidence"))
					if got.Status == http.StatusNotFound {
						return
					}
					got.Expect(http.StatusOK)
					if got.Value("chain.isIntact") != true {
						t.Errorf("read in the middle of a deletion: %s", got.Body)
						return
					}
				}
			})
		}
		s.Delete(t, s.path("")).Expect(http.StatusNoContent)
		group.Wait()
	}
}

// Attempts while an authorization is deleted leave no personal data.
func testAttemptsWhileDeleting(t *testing.T, d *desk) {
	t.Helper()
	for range 10 {
		s := d.signer(t)
		otpID, code := s.start(t, s.id+"@example.com")
		var group sync.WaitGroup
		for i := range 6 {
			group.Go(func() {
				if i == 3 {
					s.Delete(t, s.path(""))
					return
				}
				s.attempt(t, otpID, otherThan(code))
			})
		}
		group.Wait()
		s.Get(t, s.path("")).ExpectProblem(http.StatusNotFound, "NOT_FOUND", "")
		require.Equal(t, 1, s.rows(t, "evidence_contents", "true"), "the record of the deletion")
		require.Empty(t, s.rowsWith(t, "127.0.0.1", s.tenant.ID.String()))
	}
}
