package task

import (
	"context"
	"encoding/base64"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"

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
	if t.secrets == nil {
		return Secret{}, failure(codeSecret, "there are no secrets here")
	}
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

// redactor blots out secrets in whatever came back. It knows a value as it is,
// in base64 and URL-encoded.
type redactor struct{ forms []string }

// hide adds a value that must not appear.
func (r *redactor) hide(value string) {
	if value == "" {
		return
	}
	standard, urlSafe := base64.StdEncoding.EncodeToString([]byte(value)), base64.URLEncoding.EncodeToString([]byte(value))
	for _, form := range []string{
		standard, urlSafe, strings.TrimRight(standard, "="), strings.TrimRight(urlSafe, "="),
		url.QueryEscape(value), url.PathEscape(value), value,
	} {
		r.forms = append(r.forms, form, redacted)
	}
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
