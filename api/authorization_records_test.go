package api_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tranche/internal/apitest"
	"tranche/internal/identity"
)

func testAuthorizationRecord(t *testing.T, d *desk) {
	t.Helper()
	tenant := d.Tenant(t)
	c := tenant.As(t, identity.RoleIntegration)
	made := c.Post(t, "/v1/authorizations", map[string]any{
		"tenant": tenant.ID.String(), "key": "credit-report", "label": "Crédito", "identityKey": "curp", "identityValue": "GOMA900101",
		"formId": "form-17", "borrowerId": "B-1", "ipAddress": "2001:db8::1", "policyLink": "https://acme.example/privacy", "externalId": "crm-1",
		"tags": []string{"web", "móvil"}, "expiresAt": "2030-01-02T03:04:05.678+01:00",
	}).Expect(http.StatusCreated)
	id := made.Text("id")
	require.Equal(t, "/v1/authorizations/"+id, made.Header.Get("Location"))
	got := c.Get(t, "/v1/authorizations/"+id).Expect(http.StatusOK)
	require.Equal(t, map[string]any{
		"id": id, "tenant": tenant.Slug, "key": "credit-report", "label": "Crédito", "identityKey": "curp", "identityValue": "GOMA900101",
		"formId": "form-17", "borrowerId": "B-1", "ipAddress": "2001:db8::1", "policyLink": "https://acme.example/privacy", "externalId": "crm-1",
		"tags": []any{"web", "móvil"}, "expiresAt": "2030-01-02T02:04:05.678Z", "authorizedAt": nil,
		"createdAt": got.Text("createdAt"), "updatedAt": got.Text("createdAt"), "hasAttachments": false, "hasSignatures": false,
	}, got.Value(""))

	// Absent members have their defaults.
	id = c.Post(t, "/v1/authorizations", map[string]any{
		"tenant": tenant.Slug, "key": "credit-report", "identityKey": "curp", "identityValue": "GOMA900101",
	}).Expect(http.StatusCreated).Text("id")
	got = c.Get(t, "/v1/authorizations/"+id).Expect(http.StatusOK)
	require.Equal(t, []string{"credit-report", "127.0.0.1", "[]", ""}, []string{got.Text("label"), got.Text("ipAddress"), got.Text("tags"), got.Text("borrowerId")})
	expires, err := time.Parse(time.RFC3339, got.Text("expiresAt"))
	require.NoError(t, err)
	require.WithinDuration(t, time.Now().AddDate(1, 0, 0), expires, time.Hour)
}

func testAuthorizationCreateErrors(t *testing.T, d *desk) {
	t.Helper()
	tenant := d.Tenant(t)
	c := tenant.As(t, identity.RoleAdmin)
	least := func(change map[string]any) map[string]any {
		b := map[string]any{"tenant": tenant.Slug, "key": "k", "identityKey": "i", "identityValue": "v"}
		maps.Copy(b, change)
		return b
	}
	for name, c2 := range map[string]struct {
		change map[string]any
		fields []string
	}{
		"empty":            {map[string]any{"key": "", "identityValue": ""}, []string{"key", "identityValue"}},
		"blank":            {map[string]any{"key": " ", "label": "\u00a0", "identityValue": "\u2003"}, []string{"key", "label", "identityValue"}},
		"types":            {map[string]any{"key": 1, "tags": "web"}, []string{"key", "tags"}},
		"unknown member":   {map[string]any{"signed": true}, []string{"signed"}},
		"address":          {map[string]any{"ipAddress": "example.com"}, []string{"ipAddress"}},
		"address, zone":    {map[string]any{"ipAddress": "fe80::1%a\x07"}, []string{"ipAddress"}},
		"link":             {map[string]any{"policyLink": "javascript:alert(1)"}, []string{"policyLink"}},
		"control":          {map[string]any{"label": "a\r\nBcc: b"}, []string{"label"}},
		"long tag":         {map[string]any{"tags": []string{strings.Repeat("x", 65)}}, []string{"tags[0]"}},
		"empty tag":        {map[string]any{"tags": []string{""}}, []string{"tags[0]"}},
		"many tags":        {map[string]any{"tags": strings.Split(strings.Repeat("x,", 50)+"x", ",")}, []string{"tags"}},
		"past":             {map[string]any{"expiresAt": "2020-01-01T00:00:00Z"}, []string{"expiresAt"}},
		"year 1":           {map[string]any{"expiresAt": "0001-01-01T00:00:00Z"}, []string{"expiresAt"}},
		"year 10000":       {map[string]any{"expiresAt": "9999-12-31T23:59:59-01:00"}, []string{"expiresAt"}},
		"no time":          {map[string]any{"expiresAt": "tomorrow"}, []string{"expiresAt"}},
		"NUL":              {map[string]any{"identityValue": "a\x00b"}, []string{"identityValue"}},
		"control in a tag": {map[string]any{"tags": []string{"a", "b\x1f"}}, []string{"tags[1]"}},
		"long label":       {map[string]any{"label": strings.Repeat("x", 201)}, []string{"label"}},
		"long key":         {map[string]any{"key": strings.Repeat("x", 101)}, []string{"key"}},
		"long link":        {map[string]any{"policyLink": "https://a.example/" + strings.Repeat("x", 2000)}, []string{"policyLink"}},
		"all at once":      {map[string]any{"key": "", "ipAddress": "x", "policyLink": "x"}, []string{"key", "ipAddress", "policyLink"}},
		"long identity":    {map[string]any{"identityValue": strings.Repeat("x", 256)}, []string{"identityValue"}},
		"long external id": {map[string]any{"externalId": strings.Repeat("x", 256)}, []string{"externalId"}},
	} {
		t.Run(name, func(t *testing.T) {
			c.Post(t, "/v1/authorizations", least(c2.change)).Expect(http.StatusBadRequest)
			require.ElementsMatch(t, c2.fields, problemOf(t, c.Post(t, "/v1/authorizations", least(c2.change))).Fields())
		})
	}
	c.Post(t, "/v1/authorizations", map[string]any{}).
		ExpectProblem(http.StatusBadRequest, "VALIDATION_ERROR", "MISSING_REQUIRED_FIELD", "tenant", "key", "identityKey", "identityValue")
	c.Post(t, "/v1/authorizations", least(map[string]any{"tenant": "acme"})).ExpectProblem(http.StatusForbidden, "FORBIDDEN", "")
	stranger := d.Tenant(t)
	c.Post(t, "/v1/authorizations", least(map[string]any{"tenant": stranger.Slug})).ExpectProblem(http.StatusForbidden, "FORBIDDEN", "")
}

func problemOf(t *testing.T, a *apitest.Answer) apitest.Problem {
	t.Helper()
	var p apitest.Problem
	a.Decode(&p)
	return p
}

func testAuthorizationChange(t *testing.T, d *desk) {
	t.Helper()
	s := d.signer(t)
	changed := s.Do(t, http.MethodPatch, s.path(""), map[string]any{
		"label": "New", "borrowerId": "B-2", "tags": []string{"a"}, "expiresAt": "2031-01-01T00:00:00Z", "externalId": "x",
	}).Expect(http.StatusOK)
	require.Equal(t, []string{"New", "B-2", `["a"]`, "2031-01-01T00:00:00.000Z", "x", "credit-report"}, []string{
		changed.Text("label"), changed.Text("borrowerId"), changed.Text("tags"), changed.Text("expiresAt"), changed.Text("externalId"), changed.Text("key"),
	})
	require.Equal(t, "1", s.Get(t, "/v1/authorizations?search=b-2").Text("pagination.total"), "the search uses the changed values")
	changed = s.Do(t, http.MethodPatch, s.path(""), map[string]any{"externalId": ""}).Expect(http.StatusOK)
	require.Nil(t, changed.Value("externalId"))
	require.Equal(t, "New", changed.Text("label"))
	for _, member := range []string{"label", "formId", "borrowerId", "policyLink", "externalId", "tags", "expiresAt"} {
		s.Do(t, http.MethodPatch, s.path(""), map[string]any{member: nil}).ExpectProblem(http.StatusBadRequest, "VALIDATION_ERROR", "INVALID_FIELD_TYPE", member)
	}
	for body, field := range map[string]string{
		`{"label":""}`: "label", `{"expiresAt":"2020-01-01T00:00:00Z"}`: "expiresAt", `{"key":"other"}`: "key",
		`{"identityValue":"B-9"}`: "identityValue", `{"policyLink":"x"}`: "policyLink", `{"expiresAt":"0001-01-01T00:00:00Z"}`: "expiresAt",
		`{"expiresAt":"9999-12-31T23:59:59-01:00"}`: "expiresAt", `{"borrowerId":"a\u0007"}`: "borrowerId", `{"ipAddress":"::1"}`: "ipAddress",
		`{"tags":["` + strings.Repeat("x", 65) + `"]}`: "tags[0]", `{"hasSignatures":true}`: "hasSignatures",
	} {
		s.Do(t, http.MethodPatch, s.path(""), apitest.Raw(body)).ExpectProblem(http.StatusBadRequest, "VALIDATION_ERROR", "", field)
	}
	for _, text := range []string{
		"2030-01-01T00:00:00+24:00", "2030-01-01T00:00:00+23:60", "2030-01-01T00:00:00,5Z", "2030-01-01T1:00:00Z", "2030-01-01T00:00:00", "2030-02-29T00:00:00Z",
	} {
		s.Do(t, http.MethodPatch, s.path(""), map[string]any{"expiresAt": text}).ExpectProblem(http.StatusBadRequest, "VALIDATION_ERROR", "", "expiresAt")
	}
	for text, utc := range map[string]string{"2030-01-01T00:00:00.5-23:59": "2030-01-01T23:59:00.500Z", "2030-01-01T00:00:00Z": "2030-01-01T00:00:00.000Z"} {
		require.Equal(t, utc, s.Do(t, http.MethodPatch, s.path(""), map[string]any{"expiresAt": text}).Expect(http.StatusOK).Text("expiresAt"))
	}
	s.Do(t, http.MethodPatch, "/v1/authorizations/"+unknownID, map[string]any{"label": "x"}).ExpectProblem(http.StatusNotFound, "NOT_FOUND", "")
}

func testAuthorizationList(t *testing.T, d *desk) {
	t.Helper()
	tenant := d.Tenant(t)
	c := tenant.As(t, identity.RoleAdmin)
	var ids []string
	for _, a := range []map[string]any{
		{"key": "b", "label": "zeta", "borrowerId": "B-1", "tags": []string{"Web"}},
		{"key": "a", "label": "ypsilon", "borrowerId": "B-22", "externalId": "CRM_1%"},
		{"key": "b", "label": "Ñandú", "borrowerId": "B-1", "expiresAt": "2028-01-01T00:00:00Z"},
	} {
		a["tenant"], a["identityKey"], a["identityValue"] = tenant.Slug, "curp", "GOMA"
		ids = append(ids, c.Post(t, "/v1/authorizations", a).Expect(http.StatusCreated).Text("id"))
	}
	for query, want := range map[string][]int{
		"":                                      {2, 1, 0},
		"?sort-direction=asc":                   {0, 1, 2},
		"?borrower-id=B-1":                      {2, 0},
		"?key=a":                                {1},
		"?search=ÑANDÚ":                         {2},
		"?search=web":                           {0},
		"?search=crm_1%25":                      {1},
		"?search=%25":                           {1},
		"?search=goma":                          {2, 1, 0},
		"?search=b-2":                           {1},
		"?search=YPSI":                          {1},
		"?search=a":                             {2, 1, 0},
		"?search=nothing":                       {},
		"?search=b-1&key=b&borrower-id=B-1":     {2, 0},
		"?borrower-id=B-2":                      {},
		"?key=A":                                {},
		"?page=2":                               {},
		"?sort-by=label&sort-direction=asc":     {1, 0, 2},
		"?sort-by=key":                          {2, 0, 1},
		"?sort-by=key&sort-direction=asc":       {1, 0, 2},
		"?sort-by=expiresAt":                    {2, 1, 0},
		"?sort-by=authorizedAt":                 {2, 1, 0},
		"?sort-by=updatedAt&sort-direction=asc": {0, 1, 2},
		"?per-page=2":                           {2, 1},
		"?per-page=2&page=2":                    {0},
		"?cursor=&per-page=2":                   {2, 1},
	} {
		got := c.Get(t, "/v1/authorizations"+query).Expect(http.StatusOK)
		want2 := make([]string, len(want))
		for i, w := range want {
			want2[i] = ids[w]
		}
		var list struct{ Data []struct{ ID string } }
		got.Decode(&list)
		found := make([]string, len(list.Data))
		for i, a := range list.Data {
			found[i] = a.ID
		}
		if strings.Contains(query, "label") { // in the collation of the database
			require.ElementsMatch(t, want2, found, query)
			continue
		}
		require.Equal(t, want2, found, query)
	}
	first := c.Get(t, "/v1/authorizations?cursor=&per-page=2").Expect(http.StatusOK)
	second := c.Get(t, "/v1/authorizations?per-page=2&cursor="+first.Text("pagination.nextCursor")).Expect(http.StatusOK)
	require.Equal(t, ids[0], second.Text("data[0].id"))
	require.Equal(t, "10", c.Get(t, "/v1/authorizations").Text("pagination.perPage"))
	for query, field := range map[string]string{
		"?per-page=101": "per-page", "?page=0": "page", "?sort-by=tags": "sort-by", "?sort-direction=up": "sort-direction", "?unknown=1": "unknown",
		"?cursor=&sort-by=key": "cursor", "?search=%1F": "search", "?search=a%00": "search", "?key=%07": "key", "?borrower-id=%7F": "borrower-id",
		"?search=" + strings.Repeat("x", 256): "search", "?search=a&search=b": "search", "?search=%FF": "search",
	} {
		require.Equal(t, []string{field}, problemOf(t, c.Get(t, "/v1/authorizations"+query).Expect(http.StatusBadRequest)).Fields(), query)
	}
	require.Equal(t, "0", d.Tenant(t).As(t, identity.RoleAuditor).Get(t, "/v1/authorizations").Text("pagination.total"))
}

// Unsigned authorizations have no authorizedAt and come last.
func testListBySignature(t *testing.T, d *desk) {
	t.Helper()
	s := d.signer(t)
	var ids []string
	for i := range 3 {
		s.id = s.create(t)
		ids = append(ids, s.id)
		if i > 0 {
			otpID, code := s.start(t, s.id+"@example.com")
			s.attempt(t, otpID, code).Expect(http.StatusAccepted)
		}
	}
	for direction, want := range map[string][]string{"desc": {ids[2], ids[1]}, "asc": {ids[1], ids[2]}} {
		got := s.Get(t, "/v1/authorizations?sort-by=authorizedAt&sort-direction="+direction).Expect(http.StatusOK)
		require.Equal(t, want, []string{got.Text("data[0].id"), got.Text("data[1].id")}, direction)
		require.Nil(t, got.Value("data[2].authorizedAt"), "unsigned authorizations come last")
		require.Equal(t, "4", got.Text("pagination.total"))
	}
	got := s.Get(t, "/v1/authorizations?sort-by=updatedAt").Expect(http.StatusOK)
	require.Equal(t, ids[2], got.Text("data[0].id"), "a signature changes updatedAt")
	require.Equal(t, true, got.Value("data[0].hasSignatures"))
}

func testAuthorizationDeletion(t *testing.T, d *desk) {
	t.Helper()
	s := d.signer(t)
	s.Do(t, http.MethodPatch, s.path(""), map[string]any{
		"label": "label-of-ana", "formId": "form-of-ana", "borrowerId": "borrower-of-ana", "externalId": "external-of-ana",
		"policyLink": "https://policy-of-ana.example", "tags": []string{"tag-of-ana"},
	}).Expect(http.StatusOK)
	otpID, code := s.start(t, "deleted@example.com")
	s.attempt(t, otpID, code).Expect(http.StatusAccepted)
	s.tenant.As(t, identity.RoleIntegration).Delete(t, s.path("")).ExpectProblem(http.StatusForbidden, "FORBIDDEN", "")
	s.Delete(t, s.path("")).Expect(http.StatusNoContent)
	for _, path := range []string{"", "/signatures", "/attachments", "/evidence", "/evidence.pdf"} {
		s.Get(t, s.path(path)).ExpectProblem(http.StatusNotFound, "NOT_FOUND", "")
	}
	s.Delete(t, s.path("")).ExpectProblem(http.StatusNotFound, "NOT_FOUND", "")
	s.attempt(t, otpID, code).ExpectProblem(http.StatusNotFound, "NOT_FOUND", "")
	s.Post(t, s.path("/signatures"), byEmail("deleted@example.com")).ExpectProblem(http.StatusNotFound, "NOT_FOUND", "")
	for _, query := range []string{"", "?sort-by=label"} {
		list := s.Get(t, "/v1/authorizations"+query).Expect(http.StatusOK)
		require.Equal(t, "0", list.Text("pagination.total"))
		require.Empty(t, list.Value("data"), query)
	}
	s.Do(t, http.MethodPatch, s.path(""), map[string]any{"label": "x"}).ExpectProblem(http.StatusNotFound, "NOT_FOUND", "")
	s.Post(t, s.path("/attachments"), map[string]any{"fileName": "a.pdf"}).ExpectProblem(http.StatusNotFound, "NOT_FOUND", "")
	for _, action := range []string{"create", "sign", "delete"} {
		require.Equal(t, 1, s.rows(t, "audit_events", "action = 'authorization."+action+"' AND actor = '"+s.ClientID+"'"), action)
	}
	for _, secret := range []string{"B-1001", "-of-ana", "@example.com", "@acme.example", "127.0.0.1", "Go-http-client"} {
		require.Empty(t, s.rowsWith(t, secret, s.tenant.ID.String()), "the remaining record has no personal data")
	}
}

func testAuthorizationAttachments(t *testing.T, d *desk) {
	t.Helper()
	s := d.signer(t)
	const text = "I agree."
	put := func() string {
		address := s.Post(t, s.path("/attachments"), map[string]any{"fileName": "Consent.TXT"}).Expect(http.StatusCreated)
		require.Equal(t, "text/plain", address.Text("contentType"))
		s.Anonymous().Put(t, address.Text("signedUrl"), apitest.Raw(text), apitest.Header{Name: "Content-Type", Value: "text/plain"}).Expect(http.StatusOK)
		return address.Text("attachmentId")
	}
	pending := s.Post(t, s.path("/attachments"), map[string]any{"fileName": "later.pdf"}).Expect(http.StatusCreated).Text("attachmentId")
	require.Equal(t, false, s.Get(t, s.path("")).Value("hasAttachments"), "the upload is not complete")
	kept, removed := put(), put()
	require.Equal(t, true, s.Get(t, s.path("")).Value("hasAttachments"))
	s.Delete(t, s.path("/attachments/"+removed)).Expect(http.StatusNoContent)
	s.Delete(t, s.path("/attachments/"+removed)).ExpectProblem(http.StatusNotFound, "NOT_FOUND", "")
	list := s.Get(t, s.path("/attachments")).Expect(http.StatusOK)
	require.Nil(t, list.Value("data[1]"))
	require.Equal(t, []string{kept, "Consent.TXT", "8"}, []string{list.Text("data[0].attachmentId"), list.Text("data[0].fileName"), list.Text("data[0].size")})
	sum := sha256.Sum256([]byte(text))
	one := s.Get(t, s.path("/attachments/"+kept)).Expect(http.StatusOK)
	require.Equal(t, hex.EncodeToString(sum[:]), one.Text("sha256"))
	require.Equal(t, text, string(s.Anonymous().Get(t, one.Text("downloadUrl")).Expect(http.StatusOK).Body))
	for _, path := range []string{"/attachments/" + pending, "/attachments/" + unknownID, "/attachments/x"} {
		s.Get(t, s.path(path)).ExpectProblem(http.StatusNotFound, "NOT_FOUND", "")
	}
	s.Post(t, s.path("/attachments"), map[string]any{"fileName": "virus.exe"}).ExpectProblem(http.StatusBadRequest, "VALIDATION_ERROR", "", "fileName")

	otpID, code := s.start(t, "attached@example.com")
	s.attempt(t, otpID, code).Expect(http.StatusAccepted)
	s.Post(t, s.path("/attachments"), map[string]any{"fileName": "a.pdf"}).ExpectProblem(http.StatusConflict, "CONFLICT", "")
	s.Delete(t, s.path("/attachments/"+kept)).ExpectProblem(http.StatusConflict, "CONFLICT", "")
	require.Contains(t, string(s.Get(t, s.path("/evidence")).Expect(http.StatusOK).Body), hex.EncodeToString(sum[:]))
	s.Delete(t, s.path("")).Expect(http.StatusNoContent)
	s.Anonymous().Get(t, one.Text("downloadUrl")).ExpectProblem(http.StatusNotFound, "NOT_FOUND", "")
}

func testMessageTemplates(t *testing.T, d *desk) {
	t.Helper()
	s := d.signer(t)
	require.Contains(t, s.Get(t, "/v1/message-templates/default").Expect(http.StatusOK).Text("text"), "\n{{code}}\n")
	for _, path := range []string{"/v1/message-templates/mine", "/v1/message-templates/Not-A-Form"} {
		s.Get(t, path).ExpectProblem(http.StatusNotFound, "NOT_FOUND", "")
		s.Delete(t, path).ExpectProblem(http.StatusNotFound, "NOT_FOUND", "")
	}
	s.Put(t, "/v1/message-templates/Not-A-Form", map[string]any{"subject": "x", "text": "{{code}}"}).ExpectProblem(http.StatusNotFound, "NOT_FOUND", "")
	for field, body := range map[string]map[string]any{
		"text":    {"subject": "x", "text": "no place for it"},
		"subject": {"subject": "a\nBcc: b", "text": "{{code}}"},
	} {
		s.Put(t, "/v1/message-templates/mine", body).ExpectProblem(http.StatusBadRequest, "VALIDATION_ERROR", "", field)
	}
	for field, body := range map[string]map[string]any{
		"subject": {"subject": "a\x1b[31m", "text": "{{code}}"},
		"text":    {"subject": "x", "text": "{{code}}\x07"},
	} {
		s.Put(t, "/v1/message-templates/mine", body).ExpectProblem(http.StatusBadRequest, "VALIDATION_ERROR", "", field)
	}
	s.Put(t, "/v1/message-templates/mine", map[string]any{"subject": strings.Repeat("x", 201), "text": strings.Repeat("x", 2001), "html": "x"}).
		ExpectProblem(http.StatusBadRequest, "VALIDATION_ERROR", "", "subject", "text", "html")
	s.Put(t, "/v1/message-templates/mine", map[string]any{}).
		ExpectProblem(http.StatusBadRequest, "VALIDATION_ERROR", "MISSING_REQUIRED_FIELD", "subject", "text")
	for _, text := range []string{"{{code}} {{name}}", "{{code}} {{.Secret}}", `{{code}} {{printf "x"}}`} {
		s.Put(t, "/v1/message-templates/mine", map[string]any{"subject": "x", "text": text}).ExpectProblem(http.StatusBadRequest, "VALIDATION_ERROR", "", "text")
	}
	s.Put(t, "/v1/message-templates/mine", map[string]any{"subject": "Su código", "text": "{{label}}, {{expiresInMinutes}}:\n{{code}}\n"}).Expect(http.StatusOK)
	s.Do(t, http.MethodPatch, s.path(""), map[string]any{"label": "{{code}} <b>"}).Expect(http.StatusOK)
	otpID := s.Post(t, s.path("/signatures"), map[string]any{
		"value": "template@example.com", "contactMethod": "email", "templateId": "mine", "expiresIn": 90,
	}).Expect(http.StatusCreated).Text("otpId")
	code := s.office.code(t, "template@example.com", 1)
	s.office.mu.Lock()
	letter := s.office.letters["template@example.com"][0]
	s.office.mu.Unlock()
	require.Contains(t, letter, "{{code}} <b>, 2:", "placeholders in replaced values are not replaced")
	s.attempt(t, otpID, code).Expect(http.StatusAccepted)
	s.Delete(t, "/v1/message-templates/mine").Expect(http.StatusNoContent)
	s.Delete(t, "/v1/message-templates/default").Expect(http.StatusNoContent)
	d.Tenant(t).As(t, identity.RoleAdmin).Get(t, "/v1/message-templates/mine").ExpectProblem(http.StatusNotFound, "NOT_FOUND", "")

	// The template default can be replaced. Deleting it restores the built-in one.
	replaced := s.Put(t, "/v1/message-templates/default", map[string]any{"subject": "Hola", "text": "{{code}}"}).Expect(http.StatusOK)
	require.Regexp(t, timePattern, replaced.Text("createdAt"))
	require.Equal(t, "Hola", s.Get(t, "/v1/message-templates/default").Text("subject"))
	s.Delete(t, "/v1/message-templates/default").Expect(http.StatusNoContent)
	require.Contains(t, s.Get(t, "/v1/message-templates/default").Text("subject"), "{{label}}")

	s.exec(t, `INSERT INTO message_templates (tenant_id, id, subject, body) SELECT $1, 'many-' || n, 'x', '{{code}}' FROM generate_series(1, 200) n`, s.tenant.ID)
	body := map[string]any{"subject": "x", "text": "{{code}} again"}
	s.Put(t, "/v1/message-templates/one-more", body).ExpectProblem(http.StatusConflict, "CONFLICT", "")
	s.Get(t, "/v1/message-templates/one-more").ExpectProblem(http.StatusNotFound, "NOT_FOUND", "")
	s.Put(t, "/v1/message-templates/many-7", body).Expect(http.StatusOK)
}

func testEvidence(t *testing.T, d *desk) {
	t.Helper()
	s := d.signer(t)
	otpID, code := s.start(t, "evidence@example.com")
	require.Eventually(t, func() bool {
		return strings.Contains(string(s.Get(t, s.path("/evidence")).Body), "code_sent")
	}, 20*time.Second, 20*time.Millisecond)
	s.attempt(t, otpID, otherThan(code)).Expect(http.StatusBadRequest)
	s.attempt(t, otpID, code).Expect(http.StatusAccepted)
	got := s.Get(t, s.path("/evidence")).Expect(http.StatusOK)
	var evidence struct {
		Records []struct {
			Kind, Salt, Commitment, PreviousHash, Hash string
			Content                                    rawText
		}
		Chain struct {
			Count    int
			HeadHash string
			IsIntact bool
		}
	}
	got.Decode(&evidence)
	kinds := make([]string, len(evidence.Records))
	previous := ""
	for i, r := range evidence.Records {
		kinds[i] = r.Kind
		salt, err := hex.DecodeString(r.Salt)
		require.NoError(t, err)
		mac := hmac.New(sha256.New, salt)
		mac.Write(r.Content)
		require.Equal(t, r.Commitment, hex.EncodeToString(mac.Sum(nil)), "the commitment can be checked with the evidence alone")
		require.Equal(t, previous, r.PreviousHash, "the chain has only the records of this authorization")
		previous = r.Hash
	}
	require.Equal(t, []string{"authorization_created", "code_requested", "code_sent", "code_attempted", "code_rejected", "code_attempted", "signed"}, kinds)
	require.True(t, evidence.Chain.IsIntact)
	require.Equal(t, previous, evidence.Chain.HeadHash)
	require.Equal(t, []string{otpID, "email", "e***@example.com", "2"}, []string{
		got.Text("records[6].content.otpId"), got.Text("records[6].content.contactMethod"), got.Text("records[6].content.contact"), got.Text("records[6].content.attempt"),
	})
	require.Equal(t, s.ClientID, got.Text("records[6].content.by.clientId"))
	// Every detail of contract 8.7 is in the record of its step.
	requested, sent, attempted, signed := s.evidence(t, "code_requested"), s.evidence(t, "code_sent"), s.evidence(t, "code_attempted"), s.evidence(t, "signed")
	for _, member := range []string{"contact", "contactHash", "contactMethod", "templateId", "templateHash", "policyLink", "expiresAt", "maxAttempts", "attachments", "by"} {
		require.Contains(t, requested, member)
	}
	for _, member := range []string{"sentAt", "provider", "providerMessageId"} {
		require.NotEmpty(t, sent[member], member)
		require.Equal(t, sent[member], signed[member])
	}
	for _, member := range []string{"contactHash", "templateHash"} {
		require.Len(t, requested[member], 64)
		require.Equal(t, requested[member], signed[member])
	}
	require.Equal(t, map[string]any{"clientId": s.ClientID, "ipAddress": "127.0.0.1", "userAgent": "Go-http-client/1.1"}, attempted["by"])
	require.Equal(t, attempted["by"], signed["by"])
	authorization, _ := signed["authorization"].(map[string]any)
	require.Equal(t, []any{"credit-report", "borrowerId", "B-1001", "127.0.0.1"}, []any{
		authorization["key"], authorization["identityKey"], authorization["identityValue"], authorization["ipAddress"],
	})
	require.NotContains(t, string(got.Body), "evidence@example.com")
	require.NotContains(t, string(got.Body), code)

	pdf := s.Get(t, s.path("/evidence.pdf")).Expect(http.StatusOK)
	require.Equal(t, "application/pdf", pdf.Header.Get("Content-Type"))
	require.True(t, strings.HasPrefix(string(pdf.Body), "%PDF-"))
	require.Contains(t, pdf.Header.Get("Content-Disposition"), s.id)
}

// rawText is the text of a member.
type rawText []byte

// UnmarshalJSON implements json.Unmarshaler.
func (r *rawText) UnmarshalJSON(text []byte) error {
	*r = append((*r)[:0], text...)
	return nil
}
