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
	AttachmentID string    `json:"attachmentId" doc:"The id of the file." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a13"`
	FileName     string    `json:"fileName" doc:"The name of the file." example:"identity-card.pdf"`
	ContentType  string    `json:"contentType" doc:"The content type." example:"application/pdf"`
	Size         int64     `json:"size" doc:"The size in bytes." example:"48213"`
	SHA256       string    `json:"sha256" doc:"The SHA-256 hash of the file, in hexadecimal. A signature covers this hash." example:"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"`
	DownloadURL  string    `json:"downloadUrl" doc:"Send a GET request to this URL before expiresAt to download the file. No bearer token is needed." example:"http://localhost:8080/v1/stores/attachments/0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a13?signature=…"`
	ExpiresAt    Timestamp `json:"expiresAt" doc:"The time at which the URL expires, 15 minutes from now."`
	CreatedAt    Timestamp `json:"createdAt" doc:"The time at which the upload URL was requested."`
}

type (
	attachInput struct {
		AuthorizationPath
		Body struct {
			FileName string `json:"fileName" minLength:"1" maxLength:"255" doc:"The name of the file. Its extension sets the type: .pdf, .png, .jpg, .jpeg, .tif, .tiff or .txt." example:"identity-card.pdf"`
		}
	}
	authorizationAttachmentInput struct {
		AuthorizationPath
		AttachmentID string `path:"attachmentId" doc:"The id of the file." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a13"`
	}
	authorizationAttachmentOutput     struct{ Body AuthorizationAttachment }
	authorizationAttachmentListOutput struct {
		Body struct {
			Data []AuthorizationAttachment `json:"data" doc:"The files whose upload is complete, oldest first."`
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
		Summary: "Get an upload URL for an attachment",
		Description: "**[ext]** Returns a URL for uploading one file of the authorization. Send the raw file in a PUT request to `signedUrl` with the " +
			"returned `contentType`.\n\n" +
			"An authorization accepts 20 files until it is signed. The signature covers their hashes. Complete all uploads before you request " +
			"a code: the request withdraws the upload URLs of incomplete uploads. Requesting an upload URL invalidates the current code.",
		Scope: identity.ScopeAuthorizationsWrite, Category: identity.LimitAuthorizations, Status: http.StatusCreated,
		RequestExample:  `{"fileName":"identity-card.pdf"}`,
		ResponseExample: `{"signedUrl":"http://localhost:8080/v1/stores/attachments/0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a13?expires=1795226065&signature=c2ln","fileName":"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a13.pdf","attachmentId":"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a13","contentType":"application/pdf","expiresAt":"2026-11-21T02:24:25.000Z"}`,
		Errors:          []int{http.StatusNotFound, http.StatusConflict},
	}, s.attachToAuthorization)
	httpapi.Register(s.http, httpapi.Operation{
		ID: "listAuthorizationAttachments", Method: http.MethodGet, Path: "/v1/authorizations/{authorizationId}/attachments", Tag: "Authorizations",
		Summary:     "List the attachments of an authorization",
		Description: "**[ext]** Returns the files whose upload is complete, with download URLs.",
		Scope:       identity.ScopeAuthorizationsRead, Category: identity.LimitAuthorizations,
		ResponseExample: `{"data":[` + example + `]}`,
		Errors:          []int{http.StatusNotFound},
	}, s.listAuthorizationAttachments)
	httpapi.Register(s.http, httpapi.Operation{
		ID: "getAuthorizationAttachment", Method: http.MethodGet, Path: "/v1/authorizations/{authorizationId}/attachments/{attachmentId}", Tag: "Authorizations",
		Summary:     "Get an attachment of an authorization",
		Description: "**[ext]** Returns a file whose upload is complete, with a download URL.",
		Scope:       identity.ScopeAuthorizationsRead, Category: identity.LimitAuthorizations,
		ResponseExample: example,
		Errors:          []int{http.StatusNotFound},
	}, s.getAuthorizationAttachment)
	httpapi.Register(s.http, httpapi.Operation{
		ID: "deleteAuthorizationAttachment", Method: http.MethodDelete, Path: "/v1/authorizations/{authorizationId}/attachments/{attachmentId}", Tag: "Authorizations",
		Summary: "Delete an attachment of an authorization",
		Description: "**[ext]** Permanently deletes a file and invalidates the current code. After the authorization is signed, its files cannot be " +
			"deleted.",
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

// parse returns both ids of the path.
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
