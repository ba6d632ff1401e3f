package api

import (
	"context"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"tranche/internal/consent"
	"tranche/internal/fault"
	"tranche/internal/httpapi"
	"tranche/internal/identity"
	"tranche/internal/message"
)

// SigningRequest asks for a one-time password.
type SigningRequest struct {
	Value         string   `json:"value" minLength:"1" maxLength:"254" doc:"Where the code goes: an e-mail address, or a telephone number in the form of E.164." example:"ana@example.com"`
	ContactMethod string   `json:"contactMethod" enum:"email,sms,whatsapp" doc:"How it goes there. One that the operator has not configured is refused." example:"email"`
	TemplateID    string   `json:"templateId" minLength:"1" maxLength:"64" doc:"The message template; default always exists." example:"default"`
	CodeSize      *Integer `json:"codeSize,omitempty" minimum:"6" maximum:"10" doc:"How many digits the code has; by default 6." example:"6"`
	ExpiresIn     *Integer `json:"expiresIn,omitempty" minimum:"60" maximum:"600" doc:"For how many seconds the code is valid; by default 600." example:"600"`
	MaxAttempts   *Integer `json:"maxAttempts,omitempty" minimum:"1" maximum:"5" doc:"How often a code may be presented; by default 5." example:"5"`
}

// SigningStarted is a code on its way.
type SigningStarted struct {
	OTPID     string    `json:"otpId" doc:"The one-time password, for the attempt." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a12"`
	ExpiresAt Timestamp `json:"expiresAt" doc:"**[ext]** When the code ceases to be valid."`
}

// SigningAttempt presents a code.
type SigningAttempt struct {
	OTPID string `json:"otpId" minLength:"1" maxLength:"64" doc:"The one-time password that the code belongs to." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a12"`
	Code  string `json:"code" pattern:"^[0-9]{6,10}$" doc:"The code that the signer received." example:"402971"`
}

// Signature is a signing that came to its end.
type Signature struct {
	OTPID             string     `json:"otpId" doc:"The one-time password that signed." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a12"`
	ContactMethod     string     `json:"contactMethod" enum:"email,sms,whatsapp" doc:"How the code went out." example:"email"`
	Contact           string     `json:"contact" doc:"Where it went, masked." example:"a***@example.com"`
	TemplateID        string     `json:"templateId" doc:"The message template." example:"default"`
	ClientID          string     `json:"clientId" doc:"The client that asked for the code." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a10"`
	RequestedAt       Timestamp  `json:"requestedAt" doc:"When the code was asked for."`
	SentAt            *Timestamp `json:"sentAt,omitempty" doc:"When the provider had taken the message; absent while its answer has not come."`
	Provider          string     `json:"provider,omitempty" doc:"What took the message: smtp, gateway or folder." example:"smtp"`
	ProviderMessageID string     `json:"providerMessageId,omitempty" doc:"The provider's id of the message." example:"<0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a12@acme.example>"`
	Attempts          int        `json:"attempts" doc:"How many attempts it took." example:"1"`
	SignedAt          Timestamp  `json:"signedAt" doc:"When the code was presented; the authorization's authorizedAt."`
}

type (
	signingInput struct {
		AuthorizationPath
		Body SigningRequest
	}

	attemptInput struct {
		AuthorizationPath
		Body SigningAttempt
	}

	signatureListOutput struct {
		Body struct {
			Data []Signature `json:"data" doc:"The signatures: none, or one."`
		}
	}
)

func signatureRoutes(s *Server) {
	httpapi.RegisterIdempotent(s.http, httpapi.Operation{
		ID: "startSigning", Method: http.MethodPost, Path: "/v1/authorizations/{authorizationId}/signatures", Tag: "Authorizations",
		Summary: "Send a one-time password",
		Description: "Sends a code to the signer. One code of an authorization is open at a time: a new one supersedes the one before, and so does every change of the authorization or its files. " +
			"The code covers the files that are complete; addresses whose upload is not are withdrawn. " +
			"429: a contact and an authorization get one code in 60 s, a contact 5 in 10 minutes and 10 a day. " +
			"409: the authorization is signed, has expired, or has had its 20 codes, which no waiting changes. " +
			"No answer tells whether a contact exists; a code that a provider does not take is in the evidence.",
		Scope: identity.ScopeAuthorizationsSign, Category: identity.LimitAuthorizations, Status: http.StatusCreated,
		Inspect:         consent.InspectSigning,
		RequestExample:  `{"value":"ana@example.com","contactMethod":"email","templateId":"default"}`,
		ResponseExample: `{"otpId":"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a12","expiresAt":"2026-11-21T02:19:25.123Z"}`,
		Errors:          []int{http.StatusNotFound, http.StatusConflict},
	}, httpapi.KeyConflicts{OtherRequest: fault.Invalid, InProgress: fault.Conflict}, s.startSigning, httpapi.Replay)
	httpapi.Register(s.http, httpapi.Operation{
		ID: "attemptSignature", Method: http.MethodPost, Path: "/v1/authorizations/{authorizationId}/signatures/attempt", Tag: "Authorizations",
		Summary: "Sign with a one-time password",
		Description: "Presents a code; the right one signs the authorization, which sets authorizedAt and hasSignatures. " +
			"400: the code is wrong (the message says how many attempts are left) or has expired. " +
			"409: its attempts are used up, it was used or superseded, or the authorization is signed or has expired.",
		Scope: identity.ScopeAuthorizationsSign, Category: identity.LimitAuthorizations, Status: http.StatusAccepted,
		RequestExample: `{"otpId":"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a12","code":"402971"}`,
		Errors:         []int{http.StatusNotFound, http.StatusConflict},
	}, s.attemptSignature)
	httpapi.Register(s.http, httpapi.Operation{
		ID: "listSignatures", Method: http.MethodGet, Path: "/v1/authorizations/{authorizationId}/signatures", Tag: "Authorizations",
		Summary: "List the signatures of an authorization", Description: "**[ext]** What is known of the signature; the evidence has every step.",
		Scope: identity.ScopeAuthorizationsRead, Category: identity.LimitAuthorizations,
		ResponseExample: `{"data":[{"otpId":"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a12","contactMethod":"email","contact":"a***@example.com","templateId":"default",` +
			`"clientId":"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a10","requestedAt":"2026-11-21T02:09:25.123Z","sentAt":"2026-11-21T02:09:25.823Z","provider":"smtp",` +
			`"providerMessageId":"<0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a12@acme.example>","attempts":1,"signedAt":"2026-11-21T02:10:02.001Z"}]}`,
		Errors: []int{http.StatusNotFound},
	}, s.listSignatures)
}

func (s *Server) startSigning(ctx context.Context, in *signingInput) (*httpapi.Answer[SigningStarted], error) {
	id, err := in.parse()
	if err != nil {
		return nil, err
	}
	request := consent.SigningRequest{
		Channel: message.Channel(in.Body.ContactMethod), Value: in.Body.Value, TemplateID: in.Body.TemplateID,
	}
	assign(&request.CodeSize, (*int)(in.Body.CodeSize))
	assign(&request.AttemptsMax, (*int)(in.Body.MaxAttempts))
	if in.Body.ExpiresIn != nil {
		request.ExpiresIn = time.Duration(*in.Body.ExpiresIn) * time.Second
	}
	request.Recorded = func(ctx context.Context, tx pgx.Tx, otp consent.OTP) error {
		return httpapi.KeepTx(ctx, tx, http.StatusCreated, signingStarted(otp))
	}
	otp, err := s.config.Consents.StartSigning(ctx, httpapi.Principal(ctx).TenantID, id, actor(ctx), request)
	if err != nil {
		return nil, err
	}
	return httpapi.NewAnswer(signingStarted(otp)), nil
}

func signingStarted(otp consent.OTP) SigningStarted {
	return SigningStarted{OTPID: otp.ID.String(), ExpiresAt: stamp(otp.ExpiresAt)}
}

func (s *Server) attemptSignature(ctx context.Context, in *attemptInput) (*struct{}, error) {
	id, err := in.parse()
	if err != nil {
		return nil, err
	}
	tenantID := httpapi.Principal(ctx).TenantID
	otpID, err := httpapi.ParseID(in.Body.OTPID, "one-time password")
	if err != nil {
		// The path goes before the body: an unknown authorization is one
		// whatever password it is asked with.
		if _, unknown := s.config.Consents.Get(ctx, tenantID, id); unknown != nil {
			return nil, unknown
		}
		return nil, err
	}
	return nil, s.config.Consents.Attempt(ctx, tenantID, id, otpID, actor(ctx), in.Body.Code)
}

func (s *Server) listSignatures(ctx context.Context, in *AuthorizationPath) (*signatureListOutput, error) {
	id, err := in.parse()
	if err != nil {
		return nil, err
	}
	found, err := s.config.Consents.Signatures(ctx, httpapi.Principal(ctx).TenantID, id)
	if err != nil {
		return nil, err
	}
	out := &signatureListOutput{}
	out.Body.Data = make([]Signature, len(found))
	for i, f := range found {
		out.Body.Data[i] = Signature{
			OTPID: f.OTPID.String(), ContactMethod: f.ContactMethod, Contact: f.Contact, TemplateID: f.TemplateID,
			ClientID: f.ClientID.String(), RequestedAt: stamp(f.RequestedAt), SentAt: stampOrNil(f.SentAt),
			Provider: f.Provider, ProviderMessageID: f.ProviderMessageID, Attempts: f.Attempts, SignedAt: stamp(f.SignedAt),
		}
	}
	return out, nil
}
