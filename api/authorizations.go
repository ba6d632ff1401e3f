package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"tranche/internal/consent"
	"tranche/internal/fault"
	"tranche/internal/identity"
)

// authorizationExample is shared by several operations.
const authorizationExample = `{"id":"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11","tenant":"acme","formId":"form-17","key":"credit-report",` +
	`"label":"credit report inquiry","identityKey":"borrowerId","identityValue":"B-1001","borrowerId":"B-1001",` +
	`"expiresAt":"2027-11-21T02:09:25.123Z","ipAddress":"203.0.113.7","policyLink":"https://acme.example/privacy/v3",` +
	`"externalId":"crm-991","tags":["web"],"authorizedAt":null,"createdAt":"2026-11-21T02:09:25.123Z",` +
	`"updatedAt":"2026-11-21T02:09:25.123Z","hasAttachments":false,"hasSignatures":false}`

// authorizationsPath comes before the id in the path of an authorization.
const authorizationsPath = "/v1/authorizations/"

// Tag is a tag; a type of its own because Huma has no limits for the items of
// an array of plain text.
type Tag string

// Schema says how long it may be; huma.SchemaProvider.
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
	register(s, operation{
		id: "listAuthorizations", method: http.MethodGet, path: "/v1/authorizations", tag: "Authorizations",
		summary:     "List authorizations",
		description: "The authorizations of the tenant, newest first unless the call says otherwise. cursor goes with that order only.",
		scope:       identity.ScopeAuthorizationsRead, category: authorizations,
		responseExample: `{"data":[` + authorizationExample + `],"pagination":{"page":1,"perPage":10,"total":1,"totalPages":1}}`,
	}, s.listAuthorizations)
	register(s, operation{
		id: "getAuthorization", method: http.MethodGet, path: "/v1/authorizations/{authorizationId}", tag: "Authorizations",
		summary: "Get an authorization", description: "A whole authorization. A deleted one is answered like an unknown one.",
		scope: identity.ScopeAuthorizationsRead, category: authorizations,
		responseExample: authorizationExample,
		errors:          []int{http.StatusNotFound},
	}, s.getAuthorization)
}

func authorizationWriteRoutes(s *Server) {
	register(s, operation{
		id: "createAuthorization", method: http.MethodPost, path: "/v1/authorizations", tag: "Authorizations",
		summary:     "Create an authorization",
		description: "Records a consent that is to be signed: by POST …/signatures and POST …/signatures/attempt.",
		scope:       identity.ScopeAuthorizationsWrite, category: authorizations, status: http.StatusCreated,
		idempotent: idempotence{mismatch: fault.Invalid, inFlight: fault.Conflict, location: authorizationsPath},
		requestExample: `{"tenant":"acme","key":"credit-report","label":"credit report inquiry","identityKey":"borrowerId","identityValue":"B-1001",` +
			`"borrowerId":"B-1001","policyLink":"https://acme.example/privacy/v3","tags":["web"]}`,
		responseExample: `{"id":"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11"}`,
		inspect:         consent.Inspect,
		errors:          []int{http.StatusConflict},
	}, s.createAuthorization)
	register(s, operation{
		id: "updateAuthorization", method: http.MethodPatch, path: "/v1/authorizations/{authorizationId}", tag: "Authorizations",
		summary: "Change an authorization",
		description: "**[ext]** Changes the members that the body has and leaves the others as they are; an empty text removes. " +
			"A code that is open is superseded, unless nothing changes: ask for another one. An authorization that is signed can not be changed any more.",
		scope: identity.ScopeAuthorizationsWrite, category: authorizations,
		requestExample:  `{"externalId":"crm-991","tags":["web"]}`,
		responseExample: authorizationExample,
		inspect:         inspectAuthorizationChange,
		errors:          []int{http.StatusNotFound, http.StatusConflict},
	}, s.updateAuthorization)
	register(s, operation{
		id: "deleteAuthorization", method: http.MethodDelete, path: "/v1/authorizations/{authorizationId}", tag: "Authorizations",
		summary: "Delete an authorization",
		description: "Removes an authorization, its files and everything personal, signed or not. What stays is a tombstone: " +
			"the hashes of its evidence, by which the tenant's chain of evidence can still be verified.",
		scope: identity.ScopeAuthorizationsDelete, category: authorizations,
		errors: []int{http.StatusNotFound},
	}, s.deleteAuthorization)
}

// inspectAuthorizationChange also refuses null, which would be taken for a
// removal: elsewhere it counts as absent, and what is absent here stays.
func inspectAuthorizationChange(members map[string]any) []fault.Detail {
	details := consent.Inspect(members)
	for _, name := range sortedKeys(members) {
		if members[name] == nil {
			details = append(details, fault.Detail{Field: name, Message: "must not be null", SubCode: fault.InvalidFieldType})
		}
	}
	return details
}

// parse reads the id.
func (in *AuthorizationPath) parse() (uuid.UUID, error) { return parseID(in.ID, "authorization") }

// actor is who calls, for the evidence.
func actor(ctx context.Context) consent.Actor {
	return consent.Actor{ClientID: principal(ctx).ClientID, IPAddress: callerAddress(ctx), UserAgent: requestOf(ctx).userAgent}
}

func (s *Server) listAuthorizations(ctx context.Context, in *authorizationListInput) (*authorizationListOutput, error) {
	sort := consent.Sort{By: in.SortBy, Ascending: in.SortDirection == "asc"}
	if in.walks && (in.SortBy != "createdAt" || sort.Ascending) {
		return nil, fault.InvalidRequest(fault.Detail{Field: "cursor", Message: "goes with the newest first only: leave sort-by and sort-direction out"})
	}
	p := principal(ctx)
	filter := consent.Filter{BorrowerID: in.BorrowerID, Key: in.Key, Search: in.Search}
	found, total, err := s.config.Consents.List(ctx, p.TenantID, filter, sort, in.window(in.PerPage))
	if err != nil {
		return nil, err
	}
	found, page := paginate(&in.PageInput, in.PerPage, found, total, func(a *consent.Authorization) uuid.UUID { return a.ID })
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
	a, err := s.config.Consents.Get(ctx, principal(ctx).TenantID, id)
	if err != nil {
		return nil, err
	}
	return &authorizationOutput{Body: authorization(principal(ctx), a)}, nil
}

func (s *Server) createAuthorization(ctx context.Context, in *authorizationCreateInput) (*authorizationCreateOutput, error) {
	p, b := principal(ctx), &in.Body
	if b.Tenant != p.TenantSlug && b.Tenant != p.TenantID.String() {
		return nil, fault.New(fault.Forbidden, "the member tenant must name the token's own tenant")
	}
	content := consent.Content{
		Key: b.Key, Label: b.Label, IdentityKey: b.IdentityKey, IdentityValue: b.IdentityValue, FormID: b.FormID,
		BorrowerID: b.BorrowerID, IPAddress: b.IPAddress, PolicyLink: b.PolicyLink, ExternalID: b.ExternalID, Tags: tagTexts(b.Tags),
	}
	if b.ExpiresAt != nil {
		content.ExpiresAt = &b.ExpiresAt.Time
	}
	id, err := s.config.Consents.Create(ctx, p.TenantID, actor(ctx), content, func(ctx context.Context, tx pgx.Tx, id uuid.UUID) error {
		return keepAnswer(ctx, tx, http.StatusCreated, AuthorizationCreated{ID: id.String()})
	})
	if err != nil {
		return nil, err
	}
	return &authorizationCreateOutput{Location: authorizationsPath + id.String(), Body: AuthorizationCreated{ID: id.String()}}, nil
}

func (s *Server) updateAuthorization(ctx context.Context, in *authorizationUpdateInput) (*authorizationOutput, error) {
	id, err := in.parse()
	if err != nil {
		return nil, err
	}
	a, err := s.config.Consents.Update(ctx, principal(ctx).TenantID, id, actor(ctx), func(c consent.Content) consent.Content {
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
	return &authorizationOutput{Body: authorization(principal(ctx), a)}, nil
}

func (s *Server) deleteAuthorization(ctx context.Context, in *AuthorizationPath) (*struct{}, error) {
	id, err := in.parse()
	if err != nil {
		return nil, err
	}
	return nil, s.config.Consents.Delete(ctx, principal(ctx).TenantID, id, actor(ctx))
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
