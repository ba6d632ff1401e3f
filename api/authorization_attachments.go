package api

import (
	"context"
	"encoding/hex"
	"net/http"

	"github.com/google/uuid"

	"tranche/internal/httpapi"
	"tranche/internal/identity"
	"tranche/internal/storage"
)

// AuthorizationAttachment is a file of an authorization.
type AuthorizationAttachment struct {
	AttachmentID string    `json:"attachmentId" doc:"The file's id." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a13"`
	FileName     string    `json:"fileName" doc:"The file's name." example:"identity-card.pdf"`
	ContentType  string    `json:"contentType" doc:"Its type." example:"application/pdf"`
	Size         int64     `json:"size" doc:"Its length in bytes." example:"48213"`
	SHA256       string    `json:"sha256" doc:"The SHA-256 of its bytes, in hexadecimal; a signature is evidence of it." example:"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"`
	DownloadURL  string    `json:"downloadUrl" doc:"GET the file here before expiresAt; no bearer token is needed." example:"http://localhost:8080/v1/stores/attachments/0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a13?signature=…"`
	ExpiresAt    Timestamp `json:"expiresAt" doc:"When the address ceases to be valid, 15 minutes from now."`
	CreatedAt    Timestamp `json:"createdAt" doc:"When the file was announced."`
}

type (
	attachInput struct {
		AuthorizationPath
		Body struct {
			FileName string `json:"fileName" minLength:"1" maxLength:"255" doc:"The file's name, which says its type: .pdf, .png, .jpg, .jpeg, .tif, .tiff or .txt." example:"identity-card.pdf"`
		}
	}
	authorizationAttachmentInput struct {
		AuthorizationPath
		AttachmentID string `path:"attachmentId" doc:"The file's id." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a13"`
	}
	authorizationAttachmentOutput     struct{ Body AuthorizationAttachment }
	authorizationAttachmentListOutput struct {
		Body struct {
			Data []AuthorizationAttachment `json:"data" doc:"The files whose bytes are complete, oldest first."`
		}
	}
)

func authorizationAttachmentRoutes(s *Server) {
	const example = `{"attachmentId":"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a13","fileName":"identity-card.pdf","contentType":"application/pdf","size":48213,` +
		`"sha256":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",` +
		`"downloadUrl":"http://localhost:8080/v1/stores/attachments/0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a13?expires=1795226065&signature=c2ln",` +
		`"expiresAt":"2026-11-21T02:24:25.000Z","createdAt":"2026-11-21T02:09:25.123Z"}`
	httpapi.Register(s.http, httpapi.Operation{
		ID: "attachToAuthorization", Method: http.MethodPost, Path: "/v1/authorizations/{authorizationId}/attachments", Tag: "Authorizations",
		Summary: "Get an address for an attachment",
		Description: "**[ext]** Gives an address that takes one file of the authorization: PUT the raw file to signedUrl with the Content-Type given here. " +
			"An authorization takes 20 files, until it is signed; the signature is evidence of their hashes. " +
			"Upload before a code is asked for: that withdraws the addresses whose upload is not complete. A code that is open is superseded.",
		Scope: identity.ScopeAuthorizationsWrite, Category: identity.LimitAuthorizations, Status: http.StatusCreated,
		RequestExample:  `{"fileName":"identity-card.pdf"}`,
		ResponseExample: `{"signedUrl":"http://localhost:8080/v1/stores/attachments/0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a13?expires=1795226065&signature=c2ln","fileName":"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a13.pdf","attachmentId":"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a13","contentType":"application/pdf","expiresAt":"2026-11-21T02:24:25.000Z"}`,
		Errors:          []int{http.StatusNotFound, http.StatusConflict},
	}, s.attachToAuthorization)
	httpapi.Register(s.http, httpapi.Operation{
		ID: "listAuthorizationAttachments", Method: http.MethodGet, Path: "/v1/authorizations/{authorizationId}/attachments", Tag: "Authorizations",
		Summary: "List the attachments of an authorization", Description: "**[ext]** The files whose bytes are complete, with addresses for their download.",
		Scope: identity.ScopeAuthorizationsRead, Category: identity.LimitAuthorizations,
		ResponseExample: `{"data":[` + example + `]}`,
		Errors:          []int{http.StatusNotFound},
	}, s.listAuthorizationAttachments)
	httpapi.Register(s.http, httpapi.Operation{
		ID: "getAuthorizationAttachment", Method: http.MethodGet, Path: "/v1/authorizations/{authorizationId}/attachments/{attachmentId}", Tag: "Authorizations",
		Summary: "Get an attachment of an authorization", Description: "**[ext]** A file whose bytes are complete, with an address for its download.",
		Scope: identity.ScopeAuthorizationsRead, Category: identity.LimitAuthorizations,
		ResponseExample: example,
		Errors:          []int{http.StatusNotFound},
	}, s.getAuthorizationAttachment)
	httpapi.Register(s.http, httpapi.Operation{
		ID: "deleteAuthorizationAttachment", Method: http.MethodDelete, Path: "/v1/authorizations/{authorizationId}/attachments/{attachmentId}", Tag: "Authorizations",
		Summary: "Delete an attachment of an authorization", Description: "**[ext]** Removes a file for good, until the authorization is signed, and supersedes a code that is open.",
		Scope: identity.ScopeAuthorizationsWrite, Category: identity.LimitAuthorizations,
		Errors: []int{http.StatusNotFound, http.StatusConflict},
	}, s.deleteAuthorizationAttachment)
}

func (s *Server) attachToAuthorization(ctx context.Context, in *attachInput) (*uploadAddressOutput, error) {
	id, err := in.parse()
	if err != nil {
		return nil, err
	}
	file, err := s.config.Consents.Attach(ctx, httpapi.Principal(ctx).TenantID, id, actor(ctx), in.Body.FileName)
	if err != nil {
		return nil, err
	}
	address, expiresAt := s.config.Signer.UploadURL(file)
	return &uploadAddressOutput{Body: UploadAddress{
		SignedURL: address, FileName: file.StoredName, AttachmentID: file.ID.String(), ContentType: file.ContentType, ExpiresAt: stamp(expiresAt),
	}}, nil
}

func (s *Server) listAuthorizationAttachments(ctx context.Context, in *AuthorizationPath) (*authorizationAttachmentListOutput, error) {
	id, err := in.parse()
	if err != nil {
		return nil, err
	}
	files, err := s.config.Consents.Attachments(ctx, httpapi.Principal(ctx).TenantID, id)
	if err != nil {
		return nil, err
	}
	out := &authorizationAttachmentListOutput{}
	out.Body.Data = make([]AuthorizationAttachment, len(files))
	for i, file := range files {
		out.Body.Data[i] = s.authorizationAttachment(file)
	}
	return out, nil
}

// parse reads both ids of the path.
func (in *authorizationAttachmentInput) parse() (id, attachmentID uuid.UUID, err error) {
	if id, err = in.AuthorizationPath.parse(); err != nil {
		return id, attachmentID, err
	}
	attachmentID, err = httpapi.ParseID(in.AttachmentID, "attachment")
	return id, attachmentID, err
}

func (s *Server) getAuthorizationAttachment(ctx context.Context, in *authorizationAttachmentInput) (*authorizationAttachmentOutput, error) {
	id, attachmentID, err := in.parse()
	if err != nil {
		return nil, err
	}
	file, err := s.config.Consents.Attachment(ctx, httpapi.Principal(ctx).TenantID, id, attachmentID)
	if err != nil {
		return nil, err
	}
	return &authorizationAttachmentOutput{Body: s.authorizationAttachment(file)}, nil
}

func (s *Server) deleteAuthorizationAttachment(ctx context.Context, in *authorizationAttachmentInput) (*struct{}, error) {
	id, attachmentID, err := in.parse()
	if err != nil {
		return nil, err
	}
	return nil, s.config.Consents.Detach(ctx, httpapi.Principal(ctx).TenantID, id, attachmentID, actor(ctx))
}

func (s *Server) authorizationAttachment(file storage.Attachment) AuthorizationAttachment {
	address, expiresAt := s.config.Signer.DownloadURL(file)
	return AuthorizationAttachment{
		AttachmentID: file.ID.String(), FileName: file.FileName, ContentType: file.ContentType, Size: file.Size,
		SHA256: hex.EncodeToString(file.SHA256), DownloadURL: address, ExpiresAt: stamp(expiresAt), CreatedAt: stamp(file.CreatedAt),
	}
}
