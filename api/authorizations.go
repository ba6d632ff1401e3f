package api

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"tranche/internal/consent"
	"tranche/internal/fault"
	"tranche/internal/httpapi"
	"tranche/internal/idempotency"
	"tranche/internal/identity"
)

// authorizationExample is shared by several operations.
const authorizationExample = `{"id":"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11","tenant":"acme","formId":"form-17","key":"credit-report",` +
	`"label":"credit report inquiry","identityKey":"borrowerId","identityValue":"B-1001","borrowerId":"B-1001",` +
	`"expiresAt":"2027-11-21T02:09:25.123Z","ipAddress":"203.0.113.7","policyLink":"https://acme.example/privacy/v3",` +
	`"externalId":"crm-991","tags":["web"],"authorizedAt":null,"createdAt":"2026-11-21T02:09:25.123Z",` +
	`"updatedAt":"2026-11-21T02:09:25.123Z","hasAttachments":false,"hasSignatures":false}`

// authorizationsPath is the path of an authorization without its id.
const authorizationsPath = "/v1/authorizations/"

// Tag is a tag. It is a type of its own because Huma cannot limit the items of an array
// of strings.
type Tag string

// Schema returns the schema with the length limit. It implements huma.SchemaProvider.
func (Tag) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, MinLength: new(1), MaxLength: new(64)}
}

func authorizationRoutes(s *Server) {
	authorizationReadRoutes(s)
	authorizationWriteRoutes(s)
	signatureRoutes(s)
	authorizationAttachmentRoutes(s)
	evidenceRoutes(s)
	messageTemplateRoutes(s)
}

func authorizationReadRoutes(s *Server) {
	httpapi.Register(s.http, httpapi.Operation{
		ID: "listAuthorizations", Method: http.MethodGet, Path: "/v1/authorizations", Tag: "Authorizations",
		Summary:     "List authorizations",
		Description: "Returns the authorizations of the tenant, newest first unless the request has another order. `cursor` requires the default order.",
		Scope:       identity.ScopeAuthorizationsRead, Category: identity.LimitAuthorizations,
		ResponseExample: `{"data":[` + authorizationExample + `],"pagination":{"page":1,"perPage":10,"total":1,"totalPages":1}}`,
	}, s.listAuthorizations)
	httpapi.Register(s.http, httpapi.Operation{
		ID: "getAuthorization", Method: http.MethodGet, Path: "/v1/authorizations/{authorizationId}", Tag: "Authorizations",
		Summary:     "Get an authorization",
		Description: "Returns an authorization. For a deleted authorization the response is 404, as for an unknown one.",
		Scope:       identity.ScopeAuthorizationsRead, Category: identity.LimitAuthorizations,
		ResponseExample: authorizationExample,
		Errors:          []int{http.StatusNotFound},
	}, s.getAuthorization)
}

func authorizationWriteRoutes(s *Server) {
	httpapi.RegisterIdempotent(s.http, httpapi.Operation{
		ID: "createAuthorization", Method: http.MethodPost, Path: "/v1/authorizations", Tag: "Authorizations",
		Summary:     "Create an authorization",
		Description: "Records a consent that a person is to sign. To sign it, call `POST …/signatures` and then `POST …/signatures/attempt`.",
		Scope:       identity.ScopeAuthorizationsWrite, Category: identity.LimitAuthorizations, Status: http.StatusCreated,
		RequestExample: `{"tenant":"acme","key":"credit-report","label":"credit report inquiry","identityKey":"borrowerId","identityValue":"B-1001",` +
			`"borrowerId":"B-1001","policyLink":"https://acme.example/privacy/v3","tags":["web"]}`,
		ResponseExample: `{"id":"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11"}`,
		Inspect:         consent.Inspect,
		Errors:          []int{http.StatusConflict},
	}, httpapi.KeyConflicts{OtherRequest: fault.Invalid, InProgress: fault.Conflict}, s.createAuthorization, replayCreatedAuthorization)
	httpapi.Register(s.http, httpapi.Operation{
		ID: "updateAuthorization", Method: http.MethodPatch, Path: "/v1/authorizations/{authorizationId}", Tag: "Authorizations",
		Summary: "Change an authorization",
		Description: "**[ext]** Changes the members that the body contains. All other members stay as they are. An empty string removes a member. A " +
			"change invalidates the current code, so request another one; a request that changes nothing does not. A signed authorization " +
			"cannot be changed.",
		Scope: identity.ScopeAuthorizationsWrite, Category: identity.LimitAuthorizations,
		RequestExample:  `{"externalId":"crm-991","tags":["web"]}`,
		ResponseExample: authorizationExample,
		Inspect:         inspectAuthorizationChange,
		Errors:          []int{http.StatusNotFound, http.StatusConflict},
	}, s.updateAuthorization)
	httpapi.Register(s.http, httpapi.Operation{
		ID: "deleteAuthorization", Method: http.MethodDelete, Path: "/v1/authorizations/{authorizationId}", Tag: "Authorizations",
		Summary: "Delete an authorization",
		Description: "Deletes an authorization, its files and all personal data, whether it is signed or not. The hashes of its evidence remain, so " +
			"that the tenant's chain of evidence can still be verified.",
		Scope: identity.ScopeAuthorizationsDelete, Category: identity.LimitAuthorizations,
		Errors: []int{http.StatusNotFound},
	}, s.deleteAuthorization)
}

// inspectAuthorizationChange also rejects null. Callers could expect it to remove a
// member, but null counts as absent, and absent members stay.
func inspectAuthorizationChange(members map[string]any) []fault.Detail {
	details := consent.Inspect(members)
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if members[name] == nil {
			details = append(details, fault.Detail{Field: name, Message: "must not be null", SubCode: fault.InvalidFieldType})
		}
	}
	return details
}

// parse returns the id of the path.
func (in *AuthorizationPath) parse() (uuid.UUID, error) {
	return httpapi.ParseID(in.ID, "authorization")
}

// actor returns the caller for the evidence.
func actor(ctx context.Context) consent.Actor {
	return consent.Actor{ClientID: httpapi.Principal(ctx).ClientID, IPAddress: httpapi.CallerAddress(ctx), UserAgent: httpapi.CallerAgent(ctx)}
}

func (s *Server) listAuthorizations(ctx context.Context, in *authorizationListInput) (*authorizationListOutput, error) {
	sort := consent.Sort{By: in.SortBy, Ascending: in.SortDirection == "asc"}
	if in.HasCursor() && (in.SortBy != "createdAt" || sort.Ascending) {
		return nil, fault.InvalidRequest(fault.Detail{Field: "cursor", Message: "requires the default order; remove sort-by and sort-direction"})
	}
	p := httpapi.Principal(ctx)
	filter := consent.Filter{BorrowerID: in.BorrowerID, Key: in.Key, Search: in.Search}
	found, total, err := s.config.Consents.List(ctx, p.TenantID, filter, sort, in.Window(in.PerPage))
	if err != nil {
		return nil, err
	}
	found, page := httpapi.Paginate(&in.PageInput, in.PerPage, found, total, func(a *consent.Authorization) uuid.UUID { return a.ID })
	out := &authorizationListOutput{Body: AuthorizationList{Data: make([]Authorization, len(found)), Pagination: page}}
	for i, a := range found {
		out.Body.Data[i] = authorization(p, a)
	}
	return out, nil
}

func (s *Server) getAuthorization(ctx context.Context, in *AuthorizationPath) (*authorizationOutput, error) {
	id, err := in.parse()
	if err != nil {
		return nil, err
	}
	a, err := s.config.Consents.Get(ctx, httpapi.Principal(ctx).TenantID, id)
	if err != nil {
		return nil, err
	}
	return &authorizationOutput{Body: authorization(httpapi.Principal(ctx), a)}, nil
}

func (s *Server) createAuthorization(ctx context.Context, in *authorizationCreateInput) (*authorizationCreateOutput, error) {
	p, b := httpapi.Principal(ctx), &in.Body
	if b.Tenant != p.TenantSlug && b.Tenant != p.TenantID.String() {
		return nil, fault.New(fault.Forbidden, "the member tenant must be the tenant of the token")
	}
	content := consent.Content{
		Key: b.Key, Label: b.Label, IdentityKey: b.IdentityKey, IdentityValue: b.IdentityValue, FormID: b.FormID,
		BorrowerID: b.BorrowerID, IPAddress: b.IPAddress, PolicyLink: b.PolicyLink, ExternalID: b.ExternalID, Tags: tagTexts(b.Tags),
	}
	if b.ExpiresAt != nil {
		content.ExpiresAt = &b.ExpiresAt.Time
	}
	id, err := s.config.Consents.Create(ctx, p.TenantID, actor(ctx), content, func(ctx context.Context, tx pgx.Tx, id uuid.UUID) error {
		return httpapi.KeepTx(ctx, tx, http.StatusCreated, AuthorizationCreated{ID: id.String()})
	})
	if err != nil {
		return nil, err
	}
	out := &authorizationCreateOutput{Location: authorizationsPath + id.String()}
	out.Body.Value.ID = id.String()
	return out, nil
}

func replayCreatedAuthorization(_ context.Context, _ *authorizationCreateInput, stored idempotency.Stored) (*authorizationCreateOutput, error) {
	var created AuthorizationCreated
	if err := json.Unmarshal(stored.Answer.Body, &created); err != nil {
		return nil, fmt.Errorf("decode a stored answer: %w", err)
	}
	out := &authorizationCreateOutput{Location: authorizationsPath + created.ID, Replayed: httpapi.Replayed}
	out.Body.JSON = stored.Answer.Body
	return out, nil
}

func (s *Server) updateAuthorization(ctx context.Context, in *authorizationUpdateInput) (*authorizationOutput, error) {
	id, err := in.parse()
	if err != nil {
		return nil, err
	}
	a, err := s.config.Consents.Update(ctx, httpapi.Principal(ctx).TenantID, id, actor(ctx), func(c consent.Content) consent.Content {
		assign(&c.Label, in.Body.Label)
		assign(&c.FormID, in.Body.FormID)
		assign(&c.BorrowerID, in.Body.BorrowerID)
		assign(&c.PolicyLink, in.Body.PolicyLink)
		assign(&c.ExternalID, in.Body.ExternalID)
		if in.Body.Tags != nil {
			c.Tags = tagTexts(*in.Body.Tags)
		}
		if e := in.Body.ExpiresAt; e != nil && !e.readsLike(*c.ExpiresAt) {
			c.ExpiresAt = &e.Time
		}
		return c
	})
	if err != nil {
		return nil, err
	}
	return &authorizationOutput{Body: authorization(httpapi.Principal(ctx), a)}, nil
}

func (s *Server) deleteAuthorization(ctx context.Context, in *AuthorizationPath) (*struct{}, error) {
	id, err := in.parse()
	if err != nil {
		return nil, err
	}
	return nil, s.config.Consents.Delete(ctx, httpapi.Principal(ctx).TenantID, id, actor(ctx))
}

func tagTexts(tags []Tag) []string {
	texts := make([]string, len(tags))
	for i, tag := range tags {
		texts[i] = string(tag)
	}
	return texts
}

func authorization(p identity.Principal, a *consent.Authorization) Authorization {
	return Authorization{
		ID: a.ID.String(), Tenant: p.TenantSlug, FormID: a.FormID, Key: a.Key, Label: a.Label,
		IdentityKey: a.IdentityKey, IdentityValue: a.IdentityValue, BorrowerID: a.BorrowerID,
		ExpiresAt: stamp(*a.ExpiresAt), IPAddress: a.IPAddress, PolicyLink: a.PolicyLink, ExternalID: a.ExternalID, Tags: a.Tags,
		AuthorizedAt: stampOrNil(a.AuthorizedAt), CreatedAt: stamp(a.CreatedAt), UpdatedAt: stamp(a.UpdatedAt),
		HasAttachments: a.HasAttachments, HasSignatures: a.AuthorizedAt != nil,
	}
}
