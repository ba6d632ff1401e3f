package api

import (
	"context"
	"net/http"

	batches "tranche/internal/batch"
	"tranche/internal/httpapi"
	"tranche/internal/identity"
)

// UploadAddress is where a file can be put (section 4.4, step 1).
type UploadAddress struct {
	SignedURL    string    `json:"signedUrl" doc:"PUT the file here before expiresAt; no bearer token is needed." example:"http://localhost:8080/v1/stores/attachments/0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11?expires=1795226065&name=0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11.csv&signature=…"`
	FileName     string    `json:"fileName" doc:"The stored name, by which attachmentFileNames names the file." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11.csv"`
	AttachmentID string    `json:"attachmentId" doc:"The file's id." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11"`
	ContentType  string    `json:"contentType" doc:"The Content-Type that the PUT must have." example:"text/csv"`
	ExpiresAt    Timestamp `json:"expiresAt" doc:"**[ext]** When the address ceases to be valid, 15 minutes from now."`
}

type (
	uploadAddressInput struct {
		Body struct {
			FileName string `json:"fileName" maxLength:"255" doc:"The file's name, which says its type: .csv, .tsv, .json, .jsonl, .ndjson or .xlsx, each also .gz." example:"loans.csv"`
		}
	}
	uploadAddressOutput struct{ Body UploadAddress }
)

func uploadRoutes(s *Server) {
	httpapi.Register(s.http, httpapi.Operation{
		ID: "generateUploadSignedURL", Method: http.MethodPost, Tag: "Stores",
		Path:    "/v1/stores/packages/commands/attachments/generate-upload-signed-url",
		Summary: "Get an address for an upload",
		Description: "Gives an address that takes one file of items for a batch: PUT the raw file to signedUrl with the Content-Type given here, " +
			"then name it in execute-batch by the fileName given here. An upload that broke off is resumed by sending it again. " +
			"Tables of comma, semicolon, tab or pipe separated values are read, in UTF-8, UTF-16 or Windows-1252, and the first visible sheet of a spreadsheet; " +
			"their first row names properties of the input, with dots for nesting (a backslash stands before a dot that is part of a name, before a backslash, before a _ or white space with which a name begins, and after a name that ends with white space or has a part without a name: `a\\.b`); numbers have a decimal point, as in 1234.56, and a first line such as sep=; is taken at its word. A .json file holds an array of objects, .jsonl and .ndjson an object a line.\n\n" +
			"A row whose cells are all empty is no item. A row of separated values that has fewer cells than the first row fails; a line break of CR and LF within its quotes becomes LF. " +
			"A cell is read as the type that the input schema gives its property, and as text where it gives none. " +
			"Spreadsheets store fractions as binary floating-point numbers. They are read with 15 significant digits, as spreadsheet programs show them: 0.30000000000000004 is 0.3, but 12345678901234.56 is 12345678901234.6. " +
			"Whole numbers are read as they are stored. Amounts with more digits belong in cells of text, or in another kind of file.",
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

// StoredAttachment is a file whose bytes are complete.
type StoredAttachment struct {
	AttachmentID string `json:"attachmentId" doc:"The file's id." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11"`
	FileName     string `json:"fileName" doc:"The stored name." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11.csv"`
	ContentType  string `json:"contentType" doc:"Its type." example:"text/csv"`
	Size         int64  `json:"size" doc:"Its length in bytes." example:"48213"`
	SHA256       string `json:"sha256" doc:"The SHA-256 of its bytes, in hexadecimal." example:"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"`
}
