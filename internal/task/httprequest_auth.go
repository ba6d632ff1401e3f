package task

import (
	"context"
	"encoding/base64"
	"net/http"
	"net/url"

	"tranche/internal/egress"
	"tranche/internal/expression"
	"tranche/internal/workflow"
)

// The methods of authentication of a request (contract 4.4).
const (
	authBearer = "bearer"
	authBasic  = "basic"
	authAPIKey = "apiKey"
	authOAuth2 = "oauth2ClientCredentials"
)

const headerAuthorization = "Authorization"

// requestAuth is a compiled auth.
type requestAuth struct {
	kind     string
	secret   string
	username *expression.Template // of basic
	header   string               // of apiKey; empty if query is set
	query    string               // of apiKey
	grant    tokenGrant           // of oauth2ClientCredentials
}

func readAuth(c *workflow.ConfigReader) *requestAuth {
	o := c.Object("auth")
	if o == nil {
		return nil
	}
	o.Require("type")
	a := &requestAuth{kind: o.Choice("type", authBearer, authBasic, authAPIKey, authOAuth2), secret: readSecretName(o)}
	if o.Describing() {
		o.Template("username")
		o.Text("header")
		o.Text("query")
		readGrant(o)
	}
	switch a.kind {
	case authBasic:
		o.Require("username")
		a.username = o.Template("username")
	case authAPIKey:
		a.header, a.query = o.Text("header"), o.Text("query")
		if a.header != "" && a.query != "" {
			o.Fault("query", "must not be given together with header; keep one of them")
		}
		if a.header == "" && a.query == "" {
			a.header = "X-Api-Key"
		}
		if a.header != "" && (!isHeaderName(a.header) || egress.HeaderRefused(a.header) || http.CanonicalHeaderKey(a.header) == headerIdempotencyKey) {
			o.Fault("header", "must be a header that can be set")
		}
	case authOAuth2:
		o.Require("tokenUrl", "clientId")
		a.grant = readGrant(o)
	}
	return a
}

// authorize adds the secrets of auth and of the headers. It records the values that must
// not appear in a response.
func (r *httpRequest) authorize(ctx context.Context, request *egress.Request, call *workflow.Call, hidden *redactor) error {
	if r.auth == nil && !r.secretive {
		return nil
	}
	address, err := url.Parse(request.URL)
	if err != nil {
		return failure(codeInvalidRequest, "url: the address cannot be read")
	}
	for _, h := range r.headers {
		if h.secret == "" {
			continue
		}
		secret, err := r.reveal(ctx, h.secret, address)
		if err != nil {
			return err
		}
		hidden.hide(secret.Value)
		request.Header.Set(h.name, secret.Value)
	}
	if r.auth == nil {
		return nil
	}
	secret, err := r.reveal(ctx, r.auth.secret, address)
	if err != nil {
		return err
	}
	hidden.hide(secret.Value)
	switch r.auth.kind {
	case authBearer:
		request.Header.Set(headerAuthorization, "Bearer "+secret.Value)
	case authBasic:
		return r.basic(request, call.Env, secret.Value, hidden)
	case authAPIKey:
		r.auth.addKey(request, address, secret.Value)
	case authOAuth2:
		token, err := r.token(ctx, call, secret)
		if err != nil {
			return err
		}
		hidden.hide(token)
		request.Header.Set(headerAuthorization, "Bearer "+token)
	}
	return nil
}

func (r *httpRequest) basic(request *egress.Request, env *expression.Env, password string, hidden *redactor) error {
	value, err := r.auth.username.Eval(env)
	if err != nil {
		return failureAt(codeInvalidRequest, "auth.username", err)
	}
	name, err := scalarText(value)
	if err != nil {
		return failureAt(codeInvalidRequest, "auth.username", err)
	}
	pair := name + ":" + password
	hidden.hide(pair)
	request.Header.Set(headerAuthorization, "Basic "+base64.StdEncoding.EncodeToString([]byte(pair)))
	return nil
}

func (a *requestAuth) addKey(request *egress.Request, address *url.URL, key string) {
	if a.query == "" {
		request.Header.Set(a.header, key)
		return
	}
	if address.RawQuery != "" {
		address.RawQuery += "&"
	}
	address.RawQuery += url.QueryEscape(a.query) + "=" + url.QueryEscape(key)
	request.URL = address.String()
}
