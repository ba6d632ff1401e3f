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

// SigningRequest is the request for a one-time password.
type SigningRequest struct {
	Value         string   `json:"value" minLength:"1" maxLength:"254" doc:"The address to which the code is sent: an email address, or a phone number in E.164 format." example:"ana@example.com"`
	ContactMethod string   `json:"contactMethod" enum:"email,sms,whatsapp" doc:"The channel. A channel that the operator has not configured is rejected." example:"email"`
	TemplateID    string   `json:"templateId" minLength:"1" maxLength:"64" doc:"The id of the message template. The template default always exists." example:"default"`
	CodeSize      *Integer `json:"codeSize,omitempty" minimum:"6" maximum:"10" doc:"The number of digits of the code. Defaults to 6." example:"6"`
	ExpiresIn     *Integer `json:"expiresIn,omitempty" minimum:"60" maximum:"600" doc:"The lifetime of the code in seconds. Defaults to 600." example:"600"`
	MaxAttempts   *Integer `json:"maxAttempts,omitempty" minimum:"1" maximum:"5" doc:"The number of attempts to enter the code. Defaults to 5." example:"5"`
}

// SigningStarted describes a code that is being sent.
type SigningStarted struct {
	OTPID     string    `json:"otpId" doc:"The id of the one-time password. Send it with the signature attempt." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a12"`
	ExpiresAt Timestamp `json:"expiresAt" doc:"**[ext]** The time at which the code expires."`
}

// SigningAttempt is an attempt to sign with a code.
type SigningAttempt struct {
	OTPID string `json:"otpId" minLength:"1" maxLength:"64" doc:"The id of the one-time password." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a12"`
	Code  string `json:"code" pattern:"^[0-9]{6,10}$" doc:"The code that the signer received." example:"402971"`
}

// Signature is a completed signature.
type Signature struct {
	OTPID             string     `json:"otpId" doc:"The id of the one-time password that was used to sign." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a12"`
	ContactMethod     string     `json:"contactMethod" enum:"email,sms,whatsapp" doc:"The channel of the code." example:"email"`
	Contact           string     `json:"contact" doc:"The address to which the code was sent, masked." example:"a***@example.com"`
	TemplateID        string     `json:"templateId" doc:"The id of the message template." example:"default"`
	ClientID          string     `json:"clientId" doc:"The id of the client that requested the code." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a10"`
	RequestedAt       Timestamp  `json:"requestedAt" doc:"The time at which the code was requested."`
	SentAt            *Timestamp `json:"sentAt,omitempty" doc:"The time at which the provider accepted the message. Absent until the provider has answered."`
	Provider          string     `json:"provider,omitempty" doc:"The provider that accepted the message: smtp, gateway or folder." example:"smtp"`
	ProviderMessageID string     `json:"providerMessageId,omitempty" doc:"The provider's id of the message." example:"<0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a12@acme.example>"`
	Attempts          int        `json:"attempts" doc:"The number of attempts, including the successful one." example:"1"`
	SignedAt          Timestamp  `json:"signedAt" doc:"The time of the signature. It equals authorizedAt of the authorization."`
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
			Data []Signature `json:"data" doc:"The signature, or an empty array."`
		}
	}
)

func signatureRoutes(s *Server) {
	httpapi.RegisterIdempotent(s.http, httpapi.Operation{
		ID: "startSigning", Method: http.MethodPost, Path: "/v1/authorizations/{authorizationId}/signatures", Tag: "Authorizations",
		Summary: "Send a one-time password",
		Description: "Sends a code to the signer. An authorization has one valid code at a time: a new code invalidates the previous one, and so does " +
			"every change of the authorization or its files. The code covers the files whose upload is complete. Upload URLs of other files " +
			"are withdrawn.\n\n" +
			"The response is 429 if the limits are exceeded: one code in 60 seconds for an authorization and for a contact, 5 codes in 10 " +
			"minutes and 10 codes per day for a contact. The response is 409 if the authorization is signed, has expired, or has had its 20 " +
			"codes; waiting does not change this.\n\n" +
			"No response shows whether a contact exists. If a provider rejects a code, the evidence shows it.",
		Scope: identity.ScopeAuthorizationsSign, Category: identity.LimitAuthorizations, Status: http.StatusCreated,
		Inspect:         consent.InspectSigning,
		RequestExample:  `{"value":"ana@example.com","contactMethod":"email","templateId":"default"}`,
		ResponseExample: `{"otpId":"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a12","expiresAt":"2026-11-21T02:19:25.123Z"}`,
		Errors:          []int{http.StatusNotFound, http.StatusConflict},
	}, httpapi.KeyConflicts{OtherRequest: fault.Invalid, InProgress: fault.Conflict}, s.startSigning, httpapi.Replay)
	httpapi.Register(s.http, httpapi.Operation{
		ID: "attemptSignature", Method: http.MethodPost, Path: "/v1/authorizations/{authorizationId}/signatures/attempt", Tag: "Authorizations",
		Summary: "Sign with a one-time password",
		Description: "Checks a code. The correct code signs the authorization and sets `authorizedAt` and `hasSignatures`.\n\n" +
			"The response is 400 if the code is wrong or has expired. If it is wrong, the message contains the number of attempts left. The " +
			"response is 409 if no attempts are left, if the code was used or replaced by another one, or if the authorization is signed or " +
			"has expired.",
		Scope: identity.ScopeAuthorizationsSign, Category: identity.LimitAuthorizations, Status: http.StatusAccepted,
		RequestExample: `{"otpId":"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a12","code":"402971"}`,
		Errors:         []int{http.StatusNotFound, http.StatusConflict},
	}, s.attemptSignature)
	httpapi.Register(s.http, httpapi.Operation{
		ID: "listSignatures", Method: http.MethodGet, Path: "/v1/authorizations/{authorizationId}/signatures", Tag: "Authorizations",
		Summary:     "List the signatures of an authorization",
		Description: "**[ext]** Returns the signature of an authorization. The evidence shows every step.",
		Scope:       identity.ScopeAuthorizationsRead, Category: identity.LimitAuthorizations,
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
		// Errors of the path come before errors of the body: an unknown
		// authorization is reported first.
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
