package api

import "tranche/internal/httpapi"

// Authorization is a consent, signed or not (contract A.2.1).
type Authorization struct {
	ID             string     `json:"id" doc:"The unique id." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11"`
	Tenant         string     `json:"tenant" doc:"The tenant to which the authorization belongs." example:"acme"`
	FormID         string     `json:"formId,omitempty" doc:"The id of the form to which the authorization belongs. Absent if there is none." example:"form-17"`
	Key            string     `json:"key" doc:"The kind of the authorization." example:"credit-report"`
	Label          string     `json:"label" doc:"The name of the authorization that the signer sees." example:"credit report inquiry"`
	IdentityKey    string     `json:"identityKey" doc:"The name of the attribute that identifies the signer." example:"borrowerId"`
	IdentityValue  string     `json:"identityValue" doc:"The signer's value of that attribute." example:"B-1001"`
	BorrowerID     string     `json:"borrowerId,omitempty" doc:"The borrower's id. Absent if there is none." example:"B-1001"`
	ExpiresAt      Timestamp  `json:"expiresAt" doc:"The time at which the authorization expires."`
	IPAddress      string     `json:"ipAddress" doc:"The IP address of the signer, or of the client that created the authorization if the request named none." example:"203.0.113.7"`
	PolicyLink     string     `json:"policyLink,omitempty" doc:"The URL of the policy to which the signer consents. Absent if there is none." example:"https://acme.example/privacy/v3"`
	ExternalID     string     `json:"externalId,omitempty" doc:"Your own id of the authorization. Absent if there is none." example:"crm-991"`
	Tags           []string   `json:"tags" doc:"The tags." example:"[\"web\"]"`
	AuthorizedAt   *Timestamp `json:"authorizedAt" nullable:"true" doc:"The time of the signature, or null until it is signed."`
	CreatedAt      Timestamp  `json:"createdAt" doc:"The time of creation."`
	UpdatedAt      Timestamp  `json:"updatedAt" doc:"The time of the last change."`
	HasAttachments bool       `json:"hasAttachments" doc:"true if files are attached."`
	HasSignatures  bool       `json:"hasSignatures" doc:"true if the authorization is signed."`
}

// AuthorizationCreate is the content of a new authorization.
type AuthorizationCreate struct {
	Tenant        string     `json:"tenant" minLength:"1" maxLength:"63" doc:"The name or the id of the token's tenant. Any other tenant is rejected with 403." example:"acme"`
	Key           string     `json:"key" minLength:"1" maxLength:"100" doc:"The kind of the authorization." example:"credit-report"`
	Label         string     `json:"label,omitempty" maxLength:"200" doc:"**[ext]** The name of the authorization that the signer sees. Defaults to key." example:"credit report inquiry"`
	IdentityKey   string     `json:"identityKey" minLength:"1" maxLength:"100" doc:"The name of the attribute that identifies the signer." example:"borrowerId"`
	IdentityValue string     `json:"identityValue" minLength:"1" maxLength:"255" doc:"The signer's value of that attribute." example:"B-1001"`
	FormID        string     `json:"formId,omitempty" maxLength:"255" doc:"The id of the form to which the authorization belongs." example:"form-17"`
	BorrowerID    string     `json:"borrowerId,omitempty" maxLength:"255" doc:"The borrower's id." example:"B-1001"`
	IPAddress     string     `json:"ipAddress,omitempty" maxLength:"45" doc:"The IP address of the signer. Defaults to the address of the request." example:"203.0.113.7"`
	PolicyLink    string     `json:"policyLink,omitempty" maxLength:"2000" doc:"The URL of the policy to which the signer consents. It begins with https:// or http://." example:"https://acme.example/privacy/v3"`
	ExternalID    string     `json:"externalId,omitempty" maxLength:"255" doc:"Your own id of the authorization." example:"crm-991"`
	Tags          []Tag      `json:"tags,omitempty" maxItems:"50" doc:"The tags. A tag has at most 64 characters." example:"[\"web\"]"`
	ExpiresAt     *Timestamp `json:"expiresAt,omitempty" doc:"**[ext]** The time at which the authorization expires. Defaults to one year from now."`
}

// AuthorizationChange is an update. Absent members stay as they are; an empty string
// removes a member.
type AuthorizationChange struct {
	Label      *string    `json:"label,omitempty" minLength:"1" maxLength:"200" doc:"The name of the authorization that the signer sees." example:"credit report inquiry"`
	FormID     *string    `json:"formId,omitempty" maxLength:"255" doc:"The id of the form to which the authorization belongs. An empty string removes it." example:"form-17"`
	BorrowerID *string    `json:"borrowerId,omitempty" maxLength:"255" doc:"The borrower's id. An empty string removes it." example:"B-1001"`
	PolicyLink *string    `json:"policyLink,omitempty" maxLength:"2000" doc:"The URL of the policy to which the signer consents. An empty string removes it." example:"https://acme.example/privacy/v3"`
	ExternalID *string    `json:"externalId,omitempty" maxLength:"255" doc:"Your own id of the authorization. An empty string removes it." example:"crm-991"`
	Tags       *[]Tag     `json:"tags,omitempty" maxItems:"50" doc:"The new tags. They replace all tags." example:"[\"web\"]"`
	ExpiresAt  *Timestamp `json:"expiresAt,omitempty" doc:"The time at which the authorization expires. It must be in the future."`
}

// AuthorizationCreated is the answer to a creation.
type AuthorizationCreated struct {
	ID string `json:"id" doc:"The id of the new authorization." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11"`
}

// AuthorizationList is a page of authorizations.
type AuthorizationList struct {
	Data       []Authorization    `json:"data" doc:"The authorizations of the page."`
	Pagination httpapi.Pagination `json:"pagination"`
}

// AuthorizationPath has the id of an authorization. Other inputs embed it.
type AuthorizationPath struct {
	ID string `path:"authorizationId" doc:"The id of the authorization." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11"`
}

type (
	authorizationListInput struct {
		httpapi.PageInput
		PerPage       int    `query:"per-page" minimum:"1" maximum:"100" default:"10" doc:"The number of authorizations on a page."`
		BorrowerID    string `query:"borrower-id" maxLength:"255" doc:"Returns only entries of this borrower."`
		Key           string `query:"key" maxLength:"100" doc:"Returns only authorizations with this key."`
		Search        string `query:"search" maxLength:"255" doc:"Returns only authorizations whose key, label, identityValue, borrowerId, externalId or tags contain this text. Case is ignored."`
		SortBy        string `query:"sort-by" enum:"createdAt,updatedAt,expiresAt,authorizedAt,key,label" default:"createdAt" doc:"The sort order. Authorizations with equal values are sorted by id. With authorizedAt, unsigned authorizations come last."`
		SortDirection string `query:"sort-direction" enum:"asc,desc" default:"desc" doc:"The sort direction. desc returns the newest or greatest first."`
	}
	authorizationListOutput struct{ Body AuthorizationList }

	authorizationOutput struct{ Body Authorization }

	authorizationCreateInput  struct{ Body AuthorizationCreate }
	authorizationCreateOutput struct {
		Location string `header:"Location" doc:"The path of the new authorization."`
		Replayed string `header:"Idempotency-Replayed"`
		Body     httpapi.AnswerBody[AuthorizationCreated]
	}

	authorizationUpdateInput struct {
		AuthorizationPath
		Body AuthorizationChange
	}
)
