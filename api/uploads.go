package api

import (
	"context"
	"net/http"

	batches "tranche/internal/batch"
	"tranche/internal/httpapi"
	"tranche/internal/identity"
)

// UploadAddress is a signed URL for an upload (contract A.4.4).
type UploadAddress struct {
	SignedURL    string    `json:"signedUrl" doc:"Send the file in a PUT request to this URL before expiresAt. No bearer token is needed." example:"http://localhost:8080/v1/stores/attachments/0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11?expires=1795226065&name=0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11.csv&signature=…"`
	FileName     string    `json:"fileName" doc:"The stored name. Use it in attachmentFileNames." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11.csv"`
	AttachmentID string    `json:"attachmentId" doc:"The id of the file." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11"`
	ContentType  string    `json:"contentType" doc:"The Content-Type that the PUT request must have." example:"text/csv"`
	ExpiresAt    Timestamp `json:"expiresAt" doc:"**[ext]** The time at which the URL expires, 15 minutes from now."`
}

type (
	uploadAddressInput struct {
		Body struct {
			FileName string `json:"fileName" maxLength:"255" doc:"The name of the file. Its extension sets the type: .csv, .tsv, .json, .jsonl, .ndjson or .xlsx, optionally followed by .gz." example:"loans.csv"`
		}
	}
	uploadAddressOutput struct{ Body UploadAddress }
)

func uploadRoutes(s *Server) {
	httpapi.Register(s.http, httpapi.Operation{
		ID: "generateUploadSignedURL", Method: http.MethodPost, Tag: "Stores",
		Path:    "/v1/stores/packages/commands/attachments/generate-upload-signed-url",
		Summary: "Get an upload URL",
		Description: "Returns a URL for uploading one file of batch items. Send the raw file in a PUT request to `signedUrl` with the returned " +
			"`contentType`. Then pass the returned `fileName` to `execute-batch`. If an upload is interrupted, send the file again.\n\n" +
			"**Formats.** `.csv` and `.tsv` files have values separated by commas, semicolons, tabs or pipes, in UTF-8, UTF-16 or " +
			"Windows-1252. A first line such as `sep=;` sets the separator. In an `.xlsx` file, the first visible sheet is read. A `.json` " +
			"file contains an array of objects. `.jsonl` and `.ndjson` files contain one object per line.\n\n" +
			"**Columns.** The first row of a table contains the names of input properties, with dots for nested properties. Put a backslash " +
			"before a dot that is part of a name, before a backslash, before a `_` or white space at the beginning of a name, and after a name " +
			"that ends with white space or has an empty part. For example, `a\\.b` is the property `a.b`.\n\n" +
			"**Cells.** A cell is read as the type that the input schema gives its property, and as a string if the schema gives none. Numbers " +
			"have a decimal point, such as 1234.56. A row in which all cells are empty is ignored. A row of separated values with fewer cells " +
			"than the first row fails. Line breaks within quotes are kept as they are.\n\n" +
			"**Numbers in spreadsheets.** Spreadsheets store fractions as binary floating-point numbers. They are read with 15 significant " +
			"digits, as spreadsheet programs display them: 0.30000000000000004 is 0.3, but 12345678901234.56 is 12345678901234.6. Whole " +
			"numbers are read as they are stored. Store amounts with more digits as text, or use another file format.",
		Scope: identity.ScopeBatchesRun, Category: identity.LimitManagement, Status: http.StatusCreated,
		RequestExample:  `{"fileName":"loans.csv"}`,
		ResponseExample: `{"signedUrl":"http://localhost:8080/v1/stores/attachments/0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11?expires=1795226065&name=0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11.csv&signature=c2ln&size=1073741824&tenant=0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a10&type=text%2Fcsv","fileName":"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11.csv","attachmentId":"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11","contentType":"text/csv","expiresAt":"2026-11-21T02:24:25.000Z"}`,
	}, s.generateUploadAddress)
	attachmentRoutes(s)
}

func (s *Server) generateUploadAddress(ctx context.Context, in *uploadAddressInput) (*uploadAddressOutput, error) {
	contentType, err := batches.ContentType(in.Body.FileName)
	if err != nil {
		return nil, err
	}
	a, err := s.config.Store.Announce(ctx, s.config.Pool, httpapi.Principal(ctx).TenantID, in.Body.FileName, contentType)
	if err != nil {
		return nil, err
	}
	address, expiresAt := s.config.Signer.UploadURL(a)
	return &uploadAddressOutput{Body: UploadAddress{
		SignedURL: address, FileName: a.StoredName, AttachmentID: a.ID.String(), ContentType: a.ContentType, ExpiresAt: stamp(expiresAt),
	}}, nil
}

// StoredAttachment is a file whose upload is complete.
type StoredAttachment struct {
	AttachmentID string `json:"attachmentId" doc:"The id of the file." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11"`
	FileName     string `json:"fileName" doc:"The stored name." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11.csv"`
	ContentType  string `json:"contentType" doc:"The content type." example:"text/csv"`
	Size         int64  `json:"size" doc:"The size in bytes." example:"48213"`
	SHA256       string `json:"sha256" doc:"The SHA-256 hash of the file, in hexadecimal." example:"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"`
}
