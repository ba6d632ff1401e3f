package task

import (
	"encoding/base64"
	"net/url"

	"tranche/internal/egress"
	"tranche/internal/exactjson"
	"tranche/internal/expression"
	"tranche/internal/workflow"
)

// requestBody is the body of a request: at most one of its fields is set.
type requestBody struct {
	json   *expression.Tree
	form   *expression.Tree
	text   *expression.Template
	base64 *expression.Template
}

func readBody(c *workflow.ConfigReader) requestBody {
	b := requestBody{json: c.Tree("body"), text: c.Template("bodyText"), base64: c.Template("bodyBase64")}
	refuseCredentials(c, "body", "", c.Value("body"))
	if form := c.Object("bodyForm"); form != nil {
		for _, name := range form.Members() {
			if _, nested := form.Value(name).(map[string]any); nested {
				form.Fault(name, "must be a text, number, boolean or an array of these")
			}
		}
		b.form = c.Tree("bodyForm")
		refuseCredentials(c, "bodyForm", "", c.Value("bodyForm"))
	}
	first := ""
	for _, name := range []string{"body", "bodyText", "bodyForm", "bodyBase64"} {
		switch {
		case !c.Has(name):
		case first == "":
			first = name
		default:
			c.Fault(name, "must not be given together with %s; keep one of them", first)
		}
	}
	return b
}

// set adds the body and its content type.
func (b *requestBody) set(request *egress.Request, env *expression.Env) error {
	switch {
	case b.json != nil:
		v, err := b.json.Eval(env)
		if err == nil {
			request.Body, err = exactjson.Encode(v)
		}
		if err != nil {
			return failureAt(codeInvalidRequest, "body", err)
		}
		request.Header.Set(headerContentType, "application/json")
	case b.form != nil:
		v, err := b.form.Eval(env)
		form := &url.URL{}
		if err == nil {
			err = addQuery(form, v)
		}
		if err != nil {
			return failureAt(codeInvalidRequest, "bodyForm", err)
		}
		request.Body = []byte(form.RawQuery)
		request.Header.Set(headerContentType, "application/x-www-form-urlencoded")
	case b.text != nil:
		text, err := bodyText(b.text, env)
		if err != nil {
			return failureAt(codeInvalidRequest, "bodyText", err)
		}
		request.Body = []byte(text)
		request.Header.Set(headerContentType, "text/plain; charset=utf-8")
	case b.base64 != nil:
		text, err := bodyText(b.base64, env)
		if err == nil {
			request.Body, err = base64.StdEncoding.DecodeString(text)
		}
		if err != nil {
			return failureAt(codeInvalidRequest, "bodyBase64", err)
		}
		request.Header.Set(headerContentType, "application/octet-stream")
	}
	return nil
}

// bodyText returns the text of a template; null becomes empty.
func bodyText(template *expression.Template, env *expression.Env) (string, error) {
	v, err := template.Eval(env)
	if err != nil || v == nil {
		return "", err
	}
	return scalarText(v)
}
