package task

import (
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"tranche/internal/expression"
	"tranche/internal/workflow"
)

// A definition must not hold credentials: they would be visible to all readers of the
// definition and of its executions. Definitions refer to secrets by name.
const mustBeSecret = "must not hold a credential that is written in the definition"

var (
	// secretNames are the names that PUT /v1/secrets/{name} takes. What cannot be
	// one may be the credential itself.
	secretNames = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
	// credentialNames are those of credentials by their last word. Of keys only
	// some are: an Idempotency-Key is none, nor is the key of a record.
	credentialNames = regexp.MustCompile(`((api|access|subscription|secret|private)key|token|secret|password|passphrase|passwd|pwd|credentials?)$`)
)

// readSecretName reads the member secret, which names one.
func readSecretName(c *workflow.ConfigReader) string {
	c.Require("secret")
	name := c.Text("secret")
	if text, isText := c.Value("secret").(string); isText && !secretNames.MatchString(text) {
		c.Refuse("secret", "is not the name of a secret: letters, digits, dots, hyphens and underscores, at most 64")
	}
	return name
}

// refuseCredentials refuses each text in value, found at path, that is written in
// the definition under a name that holds a credential.
func refuseCredentials(c *workflow.ConfigReader, path, name string, value any) {
	switch v := value.(type) {
	case string:
		if holdsCredential(name) && isConstant(v) {
			c.Refuse(path, mustBeSecret)
		}
	case []any:
		for i, item := range v {
			refuseCredentials(c, fmt.Sprintf("%s[%d]", path, i), name, item)
		}
	case map[string]any:
		for _, member := range sortedNames(v) {
			refuseCredentials(c, path+"."+member, member, v[member])
		}
	}
}

// credentialInQuery reports whether an address, which may be a template, has a
// credential in its own query.
func credentialInQuery(source string) bool {
	_, query := cutOutside(source, "?")
	for query != "" {
		var parameter string
		parameter, query = cutOutside(query, "&")
		escaped, value := cutOutside(parameter, "=")
		if name, err := url.QueryUnescape(escaped); err == nil && holdsCredential(name) && isConstant(value) {
			return true
		}
	}
	return false
}

// isConstant reports whether a template always returns the same text, and that text is not
// empty.
func isConstant(template string) bool {
	compiled, err := expression.CompileTemplate(template, expression.Scope{Item: true, Last: true})
	if err != nil {
		return false
	}
	v, _ := compiled.Constant()
	text, _ := v.(string)
	return text != ""
}

// isCredentialHeader is holdsCredential for a header. Elsewhere "authorization" may mean a
// borrower's consent.
func isCredentialHeader(name string) bool {
	last := strings.ToLower(name)
	return holdsCredential(name) || strings.HasSuffix(last, "authorization") || strings.HasSuffix(last, "cookie")
}

// holdsCredential reports whether a name is one of a credential by its end,
// however its words are set apart: X-Api-Key, apiKey, api_key.
func holdsCredential(name string) bool {
	joined := strings.NewReplacer("-", "", "_", "", ".", "").Replace(strings.ToLower(name))
	return credentialNames.MatchString(joined)
}
