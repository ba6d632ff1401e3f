package api

import (
	"context"
	"net/http"

	"tranche/internal/httpapi"
	"tranche/internal/identity"
	"tranche/internal/secret"
)

// Secret describes a secret without its value.
type Secret struct {
	Name      string    `json:"name" doc:"The name that tasks refer to." example:"bureau-key"`
	Hosts     []string  `json:"hosts" doc:"The hosts to which the value may be sent." example:"[\"api.bureau.example\"]"`
	CreatedAt Timestamp `json:"createdAt" doc:"The time of creation."`
	UpdatedAt Timestamp `json:"updatedAt" doc:"The time of the last change."`
}

// SecretRequest is a value and the hosts to which it may be sent.
type SecretRequest struct {
	Value string   `json:"value" minLength:"8" maxLength:"8192" doc:"The value. It cannot be read back." example:"k-3f6e0d6c1a11"`
	Hosts []string `json:"hosts" minItems:"1" maxItems:"20" doc:"The hosts to which the value may be sent. Add the port if it is not the default port." example:"[\"api.bureau.example\"]"`
}

type (
	secretInput struct {
		Name string `path:"name" doc:"The name of the secret." example:"bureau-key"`
	}
	secretPutInput struct {
		Name string `path:"name" doc:"The name of the secret: at most 64 letters, digits, dots, hyphens and underscores." example:"bureau-key"`
		Body SecretRequest
	}
	secretOutput struct{ Body Secret }
)

//nolint:gosec // an example that holds no secret
const secretExample = `{"name":"bureau-key","hosts":["api.bureau.example"],"createdAt":"2026-11-21T02:09:25.123Z","updatedAt":"2026-11-21T02:09:25.123Z"}`

func secretRoutes(s *Server) {
	httpapi.Register(s.http, httpapi.Operation{
		ID: "putSecret", Method: http.MethodPut, Path: "/v1/secrets/{name}", Tag: "Secrets",
		Summary: "Create or replace a secret",
		Description: "**[ext]** Stores a value that http-request tasks can send, in `auth` or as the header value `{\"secret\": name}`. Tasks can send it " +
			"only to the hosts of the request. The value is stored encrypted, cannot be read back, and is removed from results and errors.",
		Scope: identity.ScopeSecretsWrite, Category: identity.LimitManagement,
		Inspect:        secret.Inspect,
		RequestExample: `{"value":"k-3f6e0d6c1a11","hosts":["api.bureau.example"]}`, ResponseExample: secretExample,
		Errors: []int{http.StatusNotFound},
	}, s.putSecret)
	httpapi.Register(s.http, httpapi.Operation{
		ID: "getSecret", Method: http.MethodGet, Path: "/v1/secrets/{name}", Tag: "Secrets",
		Summary:     "Get a secret",
		Description: "**[ext]** Returns the hosts to which a secret may be sent and the time of its last change. It never returns the value.",
		Scope:       identity.ScopeSecretsWrite, Category: identity.LimitManagement, ResponseExample: secretExample,
		Errors: []int{http.StatusNotFound},
	}, s.getSecret)
	httpapi.Register(s.http, httpapi.Operation{
		ID: "deleteSecret", Method: http.MethodDelete, Path: "/v1/secrets/{name}", Tag: "Secrets",
		Summary:     "Delete a secret",
		Description: "**[ext]** Deletes a secret. Tasks that need it fail from then on.",
		Scope:       identity.ScopeSecretsWrite, Category: identity.LimitManagement,
		Errors: []int{http.StatusNotFound},
	}, s.deleteSecret)
}

func (s *Server) putSecret(ctx context.Context, in *secretPutInput) (*secretOutput, error) {
	put, err := s.config.Secrets.Put(ctx, httpapi.Principal(ctx).TenantID, in.Name, in.Body.Value, in.Body.Hosts)
	if err != nil {
		return nil, err
	}
	return &secretOutput{Body: secretAnswer(put)}, nil
}

func (s *Server) getSecret(ctx context.Context, in *secretInput) (*secretOutput, error) {
	found, err := s.config.Secrets.Get(ctx, httpapi.Principal(ctx).TenantID, in.Name)
	if err != nil {
		return nil, err
	}
	return &secretOutput{Body: secretAnswer(found)}, nil
}

func (s *Server) deleteSecret(ctx context.Context, in *secretInput) (*struct{}, error) {
	return nil, s.config.Secrets.Delete(ctx, httpapi.Principal(ctx).TenantID, in.Name)
}

func secretAnswer(sec secret.Secret) Secret {
	return Secret{Name: sec.Name, Hosts: sec.Hosts, CreatedAt: stamp(sec.CreatedAt), UpdatedAt: stamp(sec.UpdatedAt)}
}
