package api

import (
	"context"
	"net/http"

	"tranche/internal/identity"
	"tranche/internal/secret"
)

// Secret is what may be told of a secret; its value never is.
type Secret struct {
	Name      string    `json:"name" doc:"What tasks name it by." example:"bureau-key"`
	Hosts     []string  `json:"hosts" doc:"The hosts that its value may be sent to." example:"[\"api.bureau.example\"]"`
	CreatedAt Timestamp `json:"createdAt" doc:"When it was made."`
	UpdatedAt Timestamp `json:"updatedAt" doc:"When it was last written."`
}

// SecretRequest is a value and where it may go.
type SecretRequest struct {
	Value string   `json:"value" minLength:"8" maxLength:"8192" doc:"The value; it cannot be read back." example:"k-3f6e0d6c1a11"`
	Hosts []string `json:"hosts" minItems:"1" maxItems:"20" doc:"The hosts that it may be sent to, with a port where it is not the usual one." example:"[\"api.bureau.example\"]"`
}

type (
	secretInput struct {
		Name string `path:"name" doc:"The secret's name." example:"bureau-key"`
	}
	secretPutInput struct {
		Name string `path:"name" doc:"The secret's name: letters, digits, dots, hyphens and underscores, at most 64." example:"bureau-key"`
		Body SecretRequest
	}
	secretOutput struct{ Body Secret }
)

//nolint:gosec // an example that holds no secret
const secretExample = `{"name":"bureau-key","hosts":["api.bureau.example"],"createdAt":"2026-11-21T02:09:25.123Z","updatedAt":"2026-11-21T02:09:25.123Z"}`

func secretRoutes(s *Server) {
	register(s, operation{
		id: "putSecret", method: http.MethodPut, path: "/v1/secrets/{name}", tag: "Secrets",
		summary: "Make or replace a secret",
		description: "**[ext]** Keeps a value that http-request tasks can send, in `auth` or as a header's `{\"secret\": name}`, to these hosts and no others. " +
			"It is stored sealed, cannot be read back, and is blotted out of results and errors.",
		scope: identity.ScopeSecretsWrite, category: management,
		inspect:        secret.Inspect,
		requestExample: `{"value":"k-3f6e0d6c1a11","hosts":["api.bureau.example"]}`, responseExample: secretExample,
		errors: []int{http.StatusNotFound},
	}, s.putSecret)
	register(s, operation{
		id: "getSecret", method: http.MethodGet, path: "/v1/secrets/{name}", tag: "Secrets",
		summary:     "Get what may be told of a secret",
		description: "**[ext]** Where a secret may be sent and when it was written; never its value.",
		scope:       identity.ScopeSecretsWrite, category: management, responseExample: secretExample,
		errors: []int{http.StatusNotFound},
	}, s.getSecret)
	register(s, operation{
		id: "deleteSecret", method: http.MethodDelete, path: "/v1/secrets/{name}", tag: "Secrets",
		summary:     "Delete a secret",
		description: "**[ext]** Tasks that need it fail from then on.",
		scope:       identity.ScopeSecretsWrite, category: management,
		errors: []int{http.StatusNotFound},
	}, s.deleteSecret)
}

func (s *Server) putSecret(ctx context.Context, in *secretPutInput) (*secretOutput, error) {
	put, err := s.config.Secrets.Put(ctx, principal(ctx).TenantID, in.Name, in.Body.Value, in.Body.Hosts)
	if err != nil {
		return nil, err
	}
	return &secretOutput{Body: secretAnswer(put)}, nil
}

func (s *Server) getSecret(ctx context.Context, in *secretInput) (*secretOutput, error) {
	found, err := s.config.Secrets.Get(ctx, principal(ctx).TenantID, in.Name)
	if err != nil {
		return nil, err
	}
	return &secretOutput{Body: secretAnswer(found)}, nil
}

func (s *Server) deleteSecret(ctx context.Context, in *secretInput) (*struct{}, error) {
	return nil, s.config.Secrets.Delete(ctx, principal(ctx).TenantID, in.Name)
}

func secretAnswer(sec secret.Secret) Secret {
	return Secret{Name: sec.Name, Hosts: sec.Hosts, CreatedAt: stamp(sec.CreatedAt), UpdatedAt: stamp(sec.UpdatedAt)}
}
