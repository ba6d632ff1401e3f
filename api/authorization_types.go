package api

import "tranche/internal/httpapi"

// Authorization is a consent, signed or not (section 2.1).
type Authorization struct {
	ID             string     `json:"id" doc:"Unique identifier." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11"`
	Tenant         string     `json:"tenant" doc:"The tenant it belongs to." example:"acme"`
	FormID         string     `json:"formId,omitempty" doc:"The form it goes with; absent where there is none." example:"form-17"`
	Key            string     `json:"key" doc:"What kind of authorization it is." example:"credit-report"`
	Label          string     `json:"label" doc:"What it is called towards the signer." example:"credit report inquiry"`
	IdentityKey    string     `json:"identityKey" doc:"What identifies the signer." example:"borrowerId"`
	IdentityValue  string     `json:"identityValue" doc:"The signer's value of it." example:"B-1001"`
	BorrowerID     string     `json:"borrowerId,omitempty" doc:"The borrower it is about; absent where none is named." example:"B-1001"`
	ExpiresAt      Timestamp  `json:"expiresAt" doc:"When it ceases to hold."`
	IPAddress      string     `json:"ipAddress" doc:"The address from which it was created." example:"203.0.113.7"`
	PolicyLink     string     `json:"policyLink,omitempty" doc:"The policy that is consented to; absent where none is named." example:"https://acme.example/privacy/v3"`
	ExternalID     string     `json:"externalId,omitempty" doc:"The caller's own name of it; absent where there is none." example:"crm-991"`
	Tags           []string   `json:"tags" doc:"Tags." example:"[\"web\"]"`
	AuthorizedAt   *Timestamp `json:"authorizedAt" nullable:"true" doc:"When it was signed; null while it is not."`
	CreatedAt      Timestamp  `json:"createdAt" doc:"When it was created."`
	UpdatedAt      Timestamp  `json:"updatedAt" doc:"When it last changed."`
	HasAttachments bool       `json:"hasAttachments" doc:"Whether files are attached."`
	HasSignatures  bool       `json:"hasSignatures" doc:"Whether it is signed."`
}

// AuthorizationCreate is what a new authorization is made of.
type AuthorizationCreate struct {
	Tenant        string     `json:"tenant" minLength:"1" maxLength:"63" doc:"The token's tenant, by its name or its id; any other is refused with 403." example:"acme"`
	Key           string     `json:"key" minLength:"1" maxLength:"100" doc:"What kind of authorization it is." example:"credit-report"`
	Label         string     `json:"label,omitempty" maxLength:"200" doc:"**[ext]** What it is called towards the signer; by default the key." example:"credit report inquiry"`
	IdentityKey   string     `json:"identityKey" minLength:"1" maxLength:"100" doc:"What identifies the signer." example:"borrowerId"`
	IdentityValue string     `json:"identityValue" minLength:"1" maxLength:"255" doc:"The signer's value of it." example:"B-1001"`
	FormID        string     `json:"formId,omitempty" maxLength:"255" doc:"The form it goes with." example:"form-17"`
	BorrowerID    string     `json:"borrowerId,omitempty" maxLength:"255" doc:"The borrower it is about." example:"B-1001"`
	IPAddress     string     `json:"ipAddress,omitempty" maxLength:"45" doc:"The signer's IP address; by default the caller's." example:"203.0.113.7"`
	PolicyLink    string     `json:"policyLink,omitempty" maxLength:"2000" doc:"The policy that is consented to: an address that begins with https:// or http://." example:"https://acme.example/privacy/v3"`
	ExternalID    string     `json:"externalId,omitempty" maxLength:"255" doc:"The caller's own name of it." example:"crm-991"`
	Tags          []Tag      `json:"tags,omitempty" maxItems:"50" doc:"Tags, each of at most 64 characters." example:"[\"web\"]"`
	ExpiresAt     *Timestamp `json:"expiresAt,omitempty" doc:"**[ext]** When it ceases to hold; by default in one year."`
}

// AuthorizationChange is what an update may say; what it leaves out stays, and
// an empty text removes.
type AuthorizationChange struct {
	Label      *string    `json:"label,omitempty" minLength:"1" maxLength:"200" doc:"What it is called towards the signer." example:"credit report inquiry"`
	FormID     *string    `json:"formId,omitempty" maxLength:"255" doc:"The form it goes with; empty removes it." example:"form-17"`
	BorrowerID *string    `json:"borrowerId,omitempty" maxLength:"255" doc:"The borrower it is about; empty removes it." example:"B-1001"`
	PolicyLink *string    `json:"policyLink,omitempty" maxLength:"2000" doc:"The policy that is consented to; empty removes it." example:"https://acme.example/privacy/v3"`
	ExternalID *string    `json:"externalId,omitempty" maxLength:"255" doc:"The caller's own name of it; empty removes it." example:"crm-991"`
	Tags       *[]Tag     `json:"tags,omitempty" maxItems:"50" doc:"Tags, instead of those there are." example:"[\"web\"]"`
	ExpiresAt  *Timestamp `json:"expiresAt,omitempty" doc:"When it ceases to hold; in the future."`
}

// AuthorizationCreated answers a creation.
type AuthorizationCreated struct {
	ID string `json:"id" doc:"The new authorization." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11"`
}

// AuthorizationList is a page of authorizations.
type AuthorizationList struct {
	Data       []Authorization    `json:"data" doc:"The authorizations."`
	Pagination httpapi.Pagination `json:"pagination"`
}

// AuthorizationPath names an authorization; inputs with more than it embed it.
type AuthorizationPath struct {
	ID string `path:"authorizationId" doc:"The authorization's id." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11"`
}

type (
	authorizationListInput struct {
		httpapi.PageInput
		PerPage       int    `query:"per-page" minimum:"1" maximum:"100" default:"10" doc:"How many authorizations a page has."`
		BorrowerID    string `query:"borrower-id" maxLength:"255" doc:"Only those about this borrower."`
		Key           string `query:"key" maxLength:"100" doc:"Only those of this key."`
		Search        string `query:"search" maxLength:"255" doc:"Only those whose key, label, identityValue, borrowerId, externalId or a tag contains this, in whatever case."`
		SortBy        string `query:"sort-by" enum:"createdAt,updatedAt,expiresAt,authorizedAt,key,label" default:"createdAt" doc:"What the list is ordered by; the same values by their id. Those that are not signed come last by authorizedAt."`
		SortDirection string `query:"sort-direction" enum:"asc,desc" default:"desc" doc:"desc: newest, or greatest, first."`
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
