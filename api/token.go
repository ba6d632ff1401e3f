package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"tranche/internal/httpapi"
	"tranche/internal/identity"
)

// TokenRequest holds the credentials of a client.
type TokenRequest struct {
	ClientID string `json:"clientId" minLength:"1" maxLength:"255" doc:"The id of the client, as shown when the client was created." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11"`
	Secret   string `json:"secret" minLength:"1" maxLength:"255" doc:"One of the secrets of the client." example:"tranche_secret_Yp8nJ0mRr3Yt1wq6cT5h0s9uFzKxVdLgEaBoN2iQ7Mk"`
}

// TokenAnswer has the members of both documented answers (contract 2.1).
type TokenAnswer struct {
	AccessToken  string `json:"accessToken" doc:"The access token: a JWT (RFC 9068, ES256) for the Authorization header of all other requests."`
	RefreshToken string `json:"refreshToken" doc:"An opaque token that you can exchange for a new access token without the credentials of the client."`
	ExpiresIn    int64  `json:"expiresIn" doc:"The number of seconds until the access token expires." example:"86400"`
	ExpiresAt    string `json:"expiresAt" doc:"The time at which the access token expires, as an HTTP-date." example:"Sun, 22 Nov 2026 02:09:25 GMT"`
}

// JSONWebKeySet has the public keys of access tokens (RFC 7517).
type JSONWebKeySet struct {
	Keys []JSONWebKey `json:"keys" doc:"The key that signs new tokens, and the keys whose tokens are still valid."`
}

// JSONWebKey is a public key on the curve P-256.
type JSONWebKey struct {
	KeyID     string `json:"kid" doc:"The key id, which is the kid in the header of tokens."`
	Type      string `json:"kty" doc:"The key type: elliptic curve." example:"EC"`
	Curve     string `json:"crv" doc:"The curve." example:"P-256"`
	X         string `json:"x" doc:"A coordinate of the public key in base64url."`
	Y         string `json:"y" doc:"A coordinate of the public key in base64url."`
	Algorithm string `json:"alg" doc:"The signature algorithm." example:"ES256"`
	Use       string `json:"use" doc:"The purpose of the key: signatures only." example:"sig"`
}

// RefreshRequest holds a refresh token.
type RefreshRequest struct {
	RefreshToken string `json:"refreshToken" minLength:"1" maxLength:"255" doc:"The latest refresh token." example:"tranche_refresh_b0JtT3l1Q2pYc1ZnR2hLd1BxUnZLd0xzTnpBaQ"`
}

type tokenInput struct {
	Body TokenRequest
}

type refreshInput struct {
	Body RefreshRequest
}

type tokenOutput struct {
	Body TokenAnswer
}

type keySetOutput struct {
	CacheControl string `header:"Cache-Control" doc:"How long you may cache the keys."`
	Body         JSONWebKeySet
}

func tokenRoutes(s *Server) {
	httpapi.Register(s.http, httpapi.Operation{
		ID: "issueToken", Method: http.MethodPost, Path: "/identity/resources/auth/v1/api-token", Tag: "Identity",
		Summary: "Get an access token",
		Description: "Exchanges a client's id and secret for an access token and a refresh token. Send the access token as `Authorization: Bearer …` " +
			"with all other requests. Wrong credentials and revoked clients get the same response.\n\n" +
			"A client may send 60 requests per minute to this operation and `api-token/refresh` together. After 10 failures within a minute " +
			"from one IP address, further requests of that address for the client are rejected.",
		RequestExample: `{"clientId":"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11",` +
			`"secret":"tranche_secret_Yp8nJ0mRr3Yt1wq6cT5h0s9uFzKxVdLgEaBoN2iQ7Mk"}`,
		ResponseExample: `{"accessToken":"eyJhbGciOiJFUzI1NiIsInR5cCI6ImF0K2p3dCJ9.e30.c2lnbmF0dXJl",` +
			`"refreshToken":"tranche_refresh_b0JtT3l1Q2pYc1ZnR2hLd1BxUnZLd0xzTnpBaQ",` +
			`"expiresIn":86400,"expiresAt":"Sun, 22 Nov 2026 02:09:25 GMT"}`,
		Errors: []int{http.StatusUnauthorized},
	}, s.issueToken)
	httpapi.Register(s.http, httpapi.Operation{
		ID: "refreshToken", Method: http.MethodPost, Path: "/identity/resources/auth/v1/api-token/refresh", Tag: "Identity",
		Summary: "Refresh an access token",
		Description: "Exchanges a refresh token for a new access token and a new refresh token, which replaces the old one.\n\n" +
			"If you send the same refresh token again within 60 seconds, you get the same new refresh token, so that you can repeat a request " +
			"whose response was lost. If you send it again later, all tokens of the login are revoked. A refresh token expires after 7 days. " +
			"All refresh tokens of a login expire 30 days after the login.\n\n" +
			"A client may send 60 requests per minute to this operation and `api-token` together. After 10 failures within a minute, the IP " +
			"address is rejected here.",
		RequestExample: `{"refreshToken":"tranche_refresh_b0JtT3l1Q2pYc1ZnR2hLd1BxUnZLd0xzTnpBaQ"}`,
		ResponseExample: `{"accessToken":"eyJhbGciOiJFUzI1NiIsInR5cCI6ImF0K2p3dCJ9.e30.c2lnbmF0dXJl",` +
			`"refreshToken":"tranche_refresh_bnVsbGEgZGllcyBzaW5lIGxpbmVhIG51bGxh",` +
			`"expiresIn":86400,"expiresAt":"Sun, 22 Nov 2026 02:09:25 GMT"}`,
		Errors: []int{http.StatusUnauthorized},
	}, s.refreshToken)
	httpapi.Register(s.http, httpapi.Operation{
		ID: "keySet", Method: http.MethodGet, Path: "/.well-known/jwks.json", Tag: "Identity",
		Summary:     "Get the keys that verify access tokens",
		Description: "**[ext]** Returns the public keys that sign access tokens, as a JSON Web Key Set (RFC 7517).",
		ResponseExample: `{"keys":[{"kid":"4ufiqYXGyVF1LxSTH9JbBoLuN0tyqTl5-8ov_VW5aOw","kty":"EC","crv":"P-256",` +
			`"x":"MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4","y":"4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM",` +
			`"alg":"ES256","use":"sig"}]}`,
	}, s.keySet)
}

func (s *Server) issueToken(ctx context.Context, in *tokenInput) (*tokenOutput, error) {
	token, err := s.config.Identity.IssueToken(ctx, in.Body.ClientID, in.Body.Secret, httpapi.CallerAddress(ctx))
	return tokenAnswer(token, err)
}

func (s *Server) refreshToken(ctx context.Context, in *refreshInput) (*tokenOutput, error) {
	token, err := s.config.Identity.RefreshToken(ctx, in.Body.RefreshToken, httpapi.CallerAddress(ctx))
	return tokenAnswer(token, err)
}

func tokenAnswer(token identity.Token, err error) (*tokenOutput, error) {
	if err != nil {
		return nil, err
	}
	return &tokenOutput{Body: TokenAnswer{
		AccessToken:  token.AccessToken,
		RefreshToken: token.RefreshToken,
		ExpiresIn:    int64(token.ExpiresIn.Seconds()),
		ExpiresAt:    token.ExpiresAt.UTC().Format(http.TimeFormat),
	}}, nil
}

func (s *Server) keySet(ctx context.Context, _ *struct{}) (*keySetOutput, error) {
	keys, err := s.config.Identity.KeySet(ctx)
	if err != nil {
		return nil, err
	}
	out := &keySetOutput{CacheControl: fmt.Sprintf("public, max-age=%d", int(identity.KeySetTTL.Seconds()))}
	if err := json.Unmarshal(keys, &out.Body); err != nil {
		return nil, fmt.Errorf("read the key set: %w", err)
	}
	return out, nil
}
