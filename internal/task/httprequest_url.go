package task

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"tranche/internal/egress"
	"tranche/internal/expression"
)

// address is the url of an http-request: a template whose values are encoded for their
// place (contract 4.4). So a value can neither reach another path, nor add a parameter,
// nor change the host.
type address struct{ template *expression.Template }

var (
	errSteps    = errors.New("a .. segment is not allowed in a path")
	errHost     = errors.New("a value that is filled into the host must be a host name")
	errNotText  = errors.New("must not be an object or array here")
	errNotURL   = errors.New("is not a valid address")
	errWholeURL = errors.New("the result is not a text")
)

// holdsCredential reports whether a credential is written into the query of the url.
func (a *address) holdsCredential() bool {
	source := a.template.Source()
	if constant, ok := a.template.Constant(); ok {
		source, _ = constant.(string)
	}
	return credentialInQuery(source)
}

// checkLiteral reports faults of the constant parts of a url.
func (a *address) checkLiteral() error {
	if text, ok := a.template.Literal(); ok {
		_, err := readURL(text, true)
		return err
	}
	written, _, _ := strings.Cut(a.template.Source(), "{{")
	if written == "" {
		return nil
	}
	host, found := strings.CutPrefix(written, "https://")
	if !found {
		host, found = strings.CutPrefix(written, "http://")
	}
	if !found {
		return errors.New("must begin with http:// or https://")
	}
	// What is filled into a host is one, so an @ before the path is a written one.
	if !strings.ContainsAny(host, "/?") {
		host, _ = cutOutside(a.template.Source()[len(written)-len(host):], "/?")
	} else {
		host = host[:strings.IndexAny(host, "/?")]
	}
	if strings.Contains(host, "@") {
		return errors.New("must not contain credentials")
	}
	return nil
}

// cutOutside cuts a template's text at the first of the characters that stands
// outside {{ … }}.
func cutOutside(text, characters string) (before, after string) {
	inside := false
	for i := range len(text) {
		switch {
		case strings.HasPrefix(text[i:], "{{"):
			inside = true
		case strings.HasPrefix(text[i:], "}}"):
			inside = false
		case !inside && strings.IndexByte(characters, text[i]) >= 0:
			return text[:i], text[i+1:]
		}
	}
	return text, ""
}

// resolve fills the template and checks the result.
func (a *address) resolve(env *expression.Env) (*url.URL, error) {
	if a.template.Whole() {
		v, err := a.template.Eval(env)
		if err != nil {
			return nil, err
		}
		text, ok := v.(string)
		if !ok {
			return nil, errWholeURL
		}
		return readURL(text, false)
	}
	parts, err := a.template.EvalParts(env)
	if err != nil {
		return nil, err
	}
	var text strings.Builder
	for _, part := range parts {
		if part.Literal {
			text.WriteString(part.Text)
			continue
		}
		filled, err := encodePart(text.String(), part)
		if err != nil {
			return nil, err
		}
		text.WriteString(filled)
	}
	return readURL(text.String(), true)
}

// encodePart encodes a value for its place, which follows from the text before it.
func encodePart(before string, part expression.Part) (string, error) {
	if kindOf(part.Value) == kindOther {
		return "", errNotText
	}
	_, rest, inHost := strings.Cut(before, "://")
	switch {
	case strings.Contains(before, "?"):
		return percentEncode(part.Text, parameterNamed), nil
	case inHost && !strings.Contains(rest, "/"):
		if percentEncode(part.Text, `/?#%@\`) != part.Text {
			return "", errHost
		}
		return part.Text, nil
	default:
		return percentEncode(part.Text, pathNamed), nil
	}
}

// percentEncode encodes the characters named and all that cannot stand in an
// address: controls, spaces, quotes, braces and everything beyond ASCII.
func percentEncode(text, named string) string {
	const hexDigits = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(text) {
		c := text[i]
		if c <= ' ' || c >= 0x7f || strings.IndexByte("\"<>\\^`{|}", c) >= 0 || strings.IndexByte(named, c) >= 0 {
			b.WriteByte('%')
			b.WriteByte(hexDigits[c>>4])
			b.WriteByte(hexDigits[c&15])
			continue
		}
		b.WriteByte(c)
	}
	return b.String()
}

// readURL parses an address and checks it. A message never repeats it.
func readURL(text string, checkSteps bool) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, errNotURL
	}
	if err := egress.CheckURL(u); err != nil {
		return nil, err
	}
	if checkSteps && slices.Contains(strings.FieldsFunc(u.Path, isSlash), "..") {
		return nil, errSteps
	}
	u.Fragment, u.RawFragment = "", ""
	return u, nil
}

func isSlash(r rune) bool { return r == '/' || r == '\\' }

// addQuery appends the parameters of the query member, in the order of their
// names. A null is left out, an array repeats its name.
func addQuery(u *url.URL, query any) error {
	members, ok := query.(map[string]any)
	if !ok {
		return errObject
	}
	var parameters []string
	if u.RawQuery != "" {
		parameters = append(parameters, u.RawQuery)
	}
	for _, name := range sortedNames(members) {
		values, isArray := members[name].([]any)
		if !isArray {
			values = []any{members[name]}
		}
		for _, v := range values {
			if v == nil {
				continue
			}
			text, err := scalarText(v)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			parameters = append(parameters, percentEncode(name, parameterNamed)+"="+percentEncode(text, parameterNamed))
		}
	}
	u.RawQuery = strings.Join(parameters, "&")
	return nil
}

// What is encoded in the value of a parameter, and in a path.
const (
	parameterNamed = "?#%&=+"
	pathNamed      = "?#%"
)

// scalarText writes a text, number or boolean.
func scalarText(v any) (string, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case json.Number:
		return v.String(), nil
	case bool:
		return strconv.FormatBool(v), nil
	}
	return "", errNotText
}
