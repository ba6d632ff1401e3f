package task

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"tranche/internal/egress"
	"tranche/internal/exactjson"
	"tranche/internal/fault"
	"tranche/internal/workflow"
)

const (
	// tokenLeeway is how long before its end a token is not used any more.
	tokenLeeway = 30 * time.Second
	// tokenTTLDefault is the life of a token if the response does not state it. RFC 6749,
	// section 5.1, leaves it to the server's documentation.
	tokenTTLDefault = 5 * time.Minute
	tokenTTLMax     = 24 * time.Hour
	tokensMax       = 10_000 // kept in memory
	tokenBytesMax   = 64 << 10
)

// tokenGrant is where an access token comes from (RFC 6749, section 4.4).
type tokenGrant struct {
	address                   *url.URL
	clientID, scope, audience string
	inBody                    bool // credentials in the body, not in a Basic header
}

func readGrant(c *workflow.ConfigReader) tokenGrant {
	g := tokenGrant{clientID: c.Text("clientId"), scope: c.Text("scope"), audience: c.Text("audience")}
	g.inBody = c.Choice("clientAuth", "basic", "body") == "body"
	if text := c.Text("tokenUrl"); text != "" {
		address, err := url.Parse(text)
		if err == nil {
			err = egress.CheckURL(address)
		}
		if err != nil {
			c.Fault("tokenUrl", "must be an http or https address")
		}
		if credentialInQuery(text) {
			c.Refuse("tokenUrl", mustBeSecret)
		}
		g.address = address
	}
	return g
}

// tokenKey identifies the requests that share a token. A new value of a secret has new
// tokens.
type tokenKey struct {
	tenant, secret, address, clientID, scope, audience string
	updatedAt                                          time.Time
}

// tokenCache keeps access tokens until they end. It is safe for concurrent use.
type tokenCache struct {
	asking singleflight.Group // concurrent tasks share one request for a token
	mu     sync.Mutex
	tokens map[tokenKey]keptToken
}

type keptToken struct {
	token     string
	expiresAt time.Time
}

// read returns a token; not ok if it has ended or there is none.
func (c *tokenCache) read(key tokenKey, at time.Time) (token string, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	kept, ok := c.tokens[key]
	return kept.token, ok && at.Before(kept.expiresAt)
}

func (c *tokenCache) keep(key tokenKey, kept keptToken) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tokens == nil || len(c.tokens) >= tokensMax {
		c.tokens = map[tokenKey]keptToken{}
	}
	c.tokens[key] = kept
}

// token returns a cached or a new access token. Concurrent callers share one request, and
// also its failure.
func (r *httpRequest) token(ctx context.Context, call *workflow.Call, secret Secret) (string, error) {
	key := r.tokenKey(ctx, secret)
	if token, ok := r.tokens.read(key, call.At); ok {
		return token, nil
	}
	if !secret.Bound(r.auth.grant.address) {
		return "", failure(codeSecret, "secret %s must not be sent to the host of tokenUrl", r.auth.secret)
	}
	// The request runs to its end even if a caller stops waiting. Only callers with the
	// same request and the same treatment of failures share it.
	together := fmt.Sprintf("%#v %t %s %t", key, r.auth.grant.inBody, r.timeout, r.repeatable())
	asked := r.tokens.asking.DoChan(together, func() (token any, err error) {
		err = fault.Safely(func() (err error) {
			token, err = r.newToken(context.WithoutCancel(ctx), key, call, secret.Value)
			return err
		})
		return token, err
	})
	select {
	case answer := <-asked:
		token, _ := answer.Val.(string)
		return token, answer.Err
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

func (r *httpRequest) newToken(ctx context.Context, key tokenKey, call *workflow.Call, password string) (string, error) {
	token, ttl, err := r.grant(ctx, call, password)
	if err != nil {
		return "", err
	}
	r.tokens.keep(key, keptToken{token, call.At.Add(ttl - tokenLeeway)})
	return token, nil
}

func (r *httpRequest) tokenKey(ctx context.Context, secret Secret) tokenKey {
	g := r.auth.grant
	return tokenKey{
		workflow.TenantOf(ctx).String(), r.auth.secret, g.address.String(), g.clientID, g.scope, g.audience, secret.UpdatedAt,
	}
}

// forget drops the token that an Authorization header carried.
func (c *tokenCache) forget(authorization string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, kept := range c.tokens {
		if "Bearer "+kept.token == authorization {
			delete(c.tokens, key)
		}
	}
}

// grant asks for an access token.
func (r *httpRequest) grant(ctx context.Context, call *workflow.Call, password string) (string, time.Duration, error) {
	g := r.auth.grant
	form := url.Values{"grant_type": {"client_credentials"}}
	for name, value := range map[string]string{"scope": g.scope, "audience": g.audience} {
		if value != "" {
			form.Set(name, value)
		}
	}
	header := http.Header{}
	header.Set(headerContentType, "application/x-www-form-urlencoded")
	header.Set("Accept", "application/json")
	header.Set(headerUserAgent, "Tranche")
	if g.inBody {
		form.Set("client_id", g.clientID)
		form.Set("client_secret", password)
	} else {
		pair := url.QueryEscape(g.clientID) + ":" + url.QueryEscape(password)
		header.Set(headerAuthorization, "Basic "+base64.StdEncoding.EncodeToString([]byte(pair)))
	}
	answer, err := r.http.Do(ctx, egress.Request{
		Method: http.MethodPost, URL: g.address.String(), Header: header, Body: []byte(form.Encode()),
		ResponseBytesMax: tokenBytesMax, Timeout: r.timeout,
	})
	if err != nil {
		return "", 0, r.unanswered(ctx, call, err)
	}
	token, ttl, ok := readToken(answer)
	if !ok {
		return "", 0, &workflow.TaskError{
			Code: workflow.CodeExternalService, Message: "the token endpoint gave no token, but status " + strconv.Itoa(answer.Status),
			Retryable: answer.Status >= http.StatusInternalServerError || answer.Status == http.StatusTooManyRequests,
		}
	}
	return token, ttl, nil
}

func readToken(answer *egress.Response) (token string, ttl time.Duration, ok bool) {
	value, err := exactjson.Decode(answer.Body)
	members, isObject := value.(map[string]any)
	if err != nil || !isObject || answer.Status != http.StatusOK {
		return "", 0, false
	}
	kind, given := members["token_type"].(string)
	token, ok = members["access_token"].(string)
	if !ok || token == "" || given && !strings.EqualFold(kind, "bearer") || strings.ContainsFunc(token, isHeaderControl) {
		return "", 0, false
	}
	ttl = tokenTTLDefault
	if number, isNumber := members["expires_in"].(json.Number); isNumber {
		if seconds, err := strconv.ParseFloat(number.String(), 64); err == nil && seconds >= 0 {
			ttl = time.Duration(min(seconds, tokenTTLMax.Seconds())) * time.Second
		}
	}
	return token, ttl, true
}
