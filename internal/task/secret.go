package task

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"html"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/google/uuid"

	"tranche/internal/exactjson"
	"tranche/internal/workflow"
)

// codeSecret is the failure of a request that cannot have its secret.
const codeSecret = "SECRET_ERROR"

// redacted stands where a secret stood.
const redacted = "[redacted]"

// Secret is a tenant's secret for the moment it is sent.
type Secret struct {
	Value     string
	UpdatedAt time.Time
	// Bound reports whether it may be sent to an address.
	Bound func(address *url.URL) bool
}

// RevealSecret opens a tenant's secret by name; false if there is none.
type RevealSecret func(ctx context.Context, tenantID uuid.UUID, name string) (Secret, bool, error)

// reveal opens a secret that is to be sent to an address.
func (t httpRequestType) reveal(ctx context.Context, name string, address *url.URL) (Secret, error) {
	secret, found, err := t.secrets(ctx, workflow.TenantOf(ctx), name)
	switch {
	case err != nil:
		return Secret{}, err
	case !found:
		return Secret{}, failure(codeSecret, "there is no secret %s", name)
	case !secret.Bound(address):
		return Secret{}, failure(codeSecret, "secret %s must not be sent to this host", name)
	}
	return secret, nil
}

// redactor masks secrets in responses.
type redactor struct{ forms []string }

// hide adds a value that must not appear.
func (r *redactor) hide(value string) {
	if value == "" {
		return
	}
	for _, form := range forms(value) {
		r.forms = append(r.forms, form, redacted)
	}
}

// forms are the ways in which a service writes a value that it repeats: as it
// is, URL-encoded, escaped in a JSON text or in HTML, and in base64, alone or
// within a longer text. Where one begins with another, the longer comes first.
func forms(value string) []string {
	query, path, quoted := url.QueryEscape(value), url.PathEscape(value), inJSON(value)
	found := base64Forms(value)
	for _, encoded := range []string{query, strings.ReplaceAll(query, "+", "%20"), path} {
		found = append(found, encoded, escapes.ReplaceAllStringFunc(encoded, strings.ToLower))
	}
	safe := strings.NewReplacer("<", `\u003c`, ">", `\u003e`, "&", `\u0026`) // as some do lest a text end an HTML element
	return append(found,
		quoted, strings.ReplaceAll(quoted, "/", `\/`), safe.Replace(quoted),
		html.EscapeString(value), value)
}

// escapes matches the URL encoding of one byte.
var escapes = regexp.MustCompile(`%[0-9A-F]{2}`)

// base64Forms returns the forms of a value in both alphabets: with padding, without, and
// the part that appears at any offset within a longer text.
func base64Forms(value string) []string {
	var found []string
	for _, alphabet := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding} {
		whole := alphabet.EncodeToString([]byte(value))
		found = append(found, whole, strings.TrimRight(whole, "="))
	}
	for _, alphabet := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for before := range 3 { // bytes before it in its group of three
			text := alphabet.EncodeToString(append(make([]byte, before), value...))
			first, end := (before*8+5)/6, (before+len(value))*8/6
			if end-first >= base64Least {
				found = append(found, text[first:end])
			}
		}
	}
	return found
}

// base64Least is how many characters within a base64 text tell a secret: fewer
// are found by chance.
const base64Least = 8

// inJSON writes a value as it stands between the quotation marks of a JSON text.
func inJSON(value string) string {
	text, err := exactjson.Encode(value)
	if err != nil {
		return value // no JSON text can hold it
	}
	return string(text[1 : len(text)-1])
}

// apply returns a value without secrets, names of members included.
func (r *redactor) apply(v any) any {
	if len(r.forms) == 0 {
		return v
	}
	return blot(strings.NewReplacer(r.forms...), v)
}

func blot(replacer *strings.Replacer, v any) any {
	switch v := v.(type) {
	case string:
		return replacer.Replace(v)
	case json.Number: // of a secret that is one, too
		if clean := replacer.Replace(v.String()); clean != v.String() {
			return clean
		}
		return v
	case []any:
		for i := range v {
			v[i] = blot(replacer, v[i])
		}
		return v
	case map[string]any:
		for name, value := range v {
			if clean := replacer.Replace(name); clean != name {
				delete(v, name)
				name = clean
			}
			v[name] = blot(replacer, value)
		}
		return v
	default:
		return v
	}
}
