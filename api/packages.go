package api

import (
	"context"
	"encoding/hex"
	"net/http"

	"tranche/internal/httpapi"
	"tranche/internal/identity"
)

// PackageAttachment is a file of a package (contract 6.8).
type PackageAttachment struct {
	AttachmentID string    `json:"attachmentId" doc:"The id of the file." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11"`
	FileName     string    `json:"fileName" doc:"The name of the file." example:"results.csv"`
	ContentType  string    `json:"contentType" doc:"The content type." example:"text/csv"`
	Size         int64     `json:"size" doc:"The size in bytes." example:"48213"`
	SHA256       string    `json:"sha256" doc:"The SHA-256 hash of the file, in hexadecimal." example:"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"`
	Role         string    `json:"role" enum:"input,results,failed,manifest" doc:"The role of the file in the package." example:"results"`
	RowCount     *int32    `json:"rowCount" nullable:"true" doc:"The number of items in the file, without the header. null if the items were not counted." example:"2000"`
	DownloadURL  string    `json:"downloadUrl" doc:"Send a GET request to this URL before expiresAt to download the file. No bearer token is needed." example:"http://localhost:8080/v1/stores/attachments/0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11?signature=…"`
	ExpiresAt    Timestamp `json:"expiresAt" doc:"The time at which the URL expires, 15 minutes from now."`
	CreatedAt    Timestamp `json:"createdAt" doc:"The time of creation."`
}

type (
	packageInput struct {
		ID string `path:"packageId" doc:"The id of the package: a processedOutputPackageId or a rawPackageId." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11"`
	}
	packageAttachmentsOutput struct {
		Body struct {
			Data []PackageAttachment `json:"data" doc:"The files of the package, in their order."`
		}
	}
)

func packageRoutes(s *Server) {
	httpapi.Register(s.http, httpapi.Operation{
		ID: "listPackageAttachments", Method: http.MethodGet, Path: "/v1/stores/packages/{packageId}/attachments", Tag: "Stores",
		Summary: "List the files of a package",
		Description: "Returns the files of a package with download URLs.\n\n" +
			"An output package contains `results.csv` and `results.jsonl` with every item, `failed.csv` with the failed items, and " +
			"`manifest.json` with counts and hashes. You can correct `failed.csv` and upload it again; values of properties without a type in " +
			"the input schema are then read as strings. A `.csv` file has at most 1,000 columns of inputs and 1,000 columns of outputs; " +
			"`results.jsonl` contains everything. Columns are named as in uploads, with dots for nested properties and `\\.` for a dot that is " +
			"part of a name.\n\n" +
			"A raw package contains the files that were uploaded.",
		Scope: identity.ScopeBatchesRead, Category: identity.LimitPolling,
		ResponseExample: `{"data":[{"attachmentId":"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11","fileName":"results.csv","contentType":"text/csv","size":48213,"sha256":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855","role":"results","rowCount":2000,"downloadUrl":"http://localhost:8080/v1/stores/attachments/0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11?expires=1795226065&signature=c2ln","expiresAt":"2026-11-21T02:24:25.000Z","createdAt":"2026-11-21T02:09:25.123Z"}]}`,
		Errors:          []int{http.StatusNotFound},
	}, s.listPackageAttachments)
}

func (s *Server) listPackageAttachments(ctx context.Context, in *packageInput) (*packageAttachmentsOutput, error) {
	id, err := httpapi.ParseID(in.ID, "package")
	if err != nil {
		return nil, err
	}
	entries, err := s.config.Store.Package(ctx, httpapi.Principal(ctx).TenantID, id)
	if err != nil {
		return nil, err
	}
	out := &packageAttachmentsOutput{}
	out.Body.Data = make([]PackageAttachment, len(entries))
	for i, e := range entries {
		address, expiresAt := s.config.Signer.DownloadURL(e.Attachment)
		out.Body.Data[i] = PackageAttachment{
			AttachmentID: e.ID.String(), FileName: e.FileName, ContentType: e.ContentType, Size: e.Size, SHA256: hex.EncodeToString(e.SHA256),
			Role: string(e.Role), RowCount: e.RowCount, DownloadURL: address, ExpiresAt: stamp(expiresAt), CreatedAt: stamp(e.CreatedAt),
		}
	}
	return out, nil
}
