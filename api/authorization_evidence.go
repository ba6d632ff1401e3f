package api

import (
	"bytes"
	"context"
	"encoding/hex"
	"net/http"

	"tranche/internal/consent"
	"tranche/internal/httpapi"
	"tranche/internal/identity"
)

// Evidence is the recorded history of an authorization.
type Evidence struct {
	Authorization Authorization    `json:"authorization" doc:"The authorization."`
	Records       []EvidenceRecord `json:"records" doc:"All steps in the order in which they were recorded."`
	Chain         EvidenceChain    `json:"chain" doc:"The tenant's chain of evidence, which contains the records."`
}

// EvidenceRecord is a record of the chain of evidence.
type EvidenceRecord struct {
	Position         int64     `json:"position" doc:"The position in the tenant's chain, starting at 1." example:"41"`
	Kind             string    `json:"kind" enum:"authorization_created,authorization_changed,attachment_announced,attachment_removed,code_requested,code_sent,delivery_failed,code_attempted,code_rejected,signed,authorization_deleted" doc:"The step that was recorded." example:"signed"`
	RecordedAt       Timestamp `json:"recordedAt" doc:"The time of the step, by the clock of the database."`
	RecordedAtMicros int64     `json:"recordedAtMicros" doc:"The same time in microseconds since 1970. The hash covers this number." example:"1795226965123456"`
	Content          RawObject `json:"content" doc:"The details of the step: client, IP address, contact (masked, and its HMAC), times, template and provider."`
	Salt             string    `json:"salt" doc:"The salt in hexadecimal. commitment is HMAC-SHA-256(salt, content), with content byte for byte as in this response." example:"7f…"`
	Commitment       string    `json:"commitment" doc:"The commitment to the content, in hexadecimal. The hash covers it in place of the content." example:"9c…"`
	PreviousHash     string    `json:"previousHash" doc:"The hash of the previous record, in hexadecimal. Empty for the first record." example:"b1…"`
	Hash             string    `json:"hash" doc:"The SHA-256 hash of all other members, in hexadecimal. docs/consent.md describes how it is computed." example:"d4…"`
}

// EvidenceChain describes the chain that contains the records.
type EvidenceChain struct {
	Count    int64  `json:"count" doc:"The number of records in the tenant's chain." example:"58"`
	HeadHash string `json:"headHash" doc:"The hash of the last record in the chain, in hexadecimal." example:"ab…"`
	IsIntact bool   `json:"isIntact" doc:"true if every record of this response matches its hash and its commitment. The operator verifies the whole chain with the command tranche evidence verify." example:"true"`
}

type (
	evidenceOutput    struct{ Body Evidence }
	certificateOutput struct {
		ContentType        string `header:"Content-Type" doc:"Always application/pdf."`
		ContentDisposition string `header:"Content-Disposition" doc:"The name of the file."`
		Body               []byte
	}
)

func evidenceRoutes(s *Server) {
	httpapi.Register(s.http, httpapi.Operation{
		ID: "getEvidence", Method: http.MethodGet, Path: "/v1/authorizations/{authorizationId}/evidence", Tag: "Authorizations",
		Summary: "Get the evidence of an authorization",
		Description: "**[ext]** Returns every step since the creation, as recorded in the tenant's chain of evidence. Records can only be appended. " +
			"Each record contains the hash of the previous one, and a salted commitment binds it to its content.",
		Scope: identity.ScopeAuthorizationsRead, Category: identity.LimitAuthorizations,
		ResponseExample: `{"authorization":` + authorizationExample + `,"records":[{"position":1,"kind":"authorization_created","recordedAt":"2026-11-21T02:09:25.123Z",` +
			`"recordedAtMicros":1795226965123456,"content":{"by":{"clientId":"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a10","ipAddress":"203.0.113.7","userAgent":"curl/8"}},` +
			`"salt":"7f","commitment":"9c","previousHash":"","hash":"d4"}],"chain":{"count":1,"headHash":"d4","isIntact":true}}`,
		Errors: []int{http.StatusNotFound},
	}, s.getEvidence)
	httpapi.Register(s.http, httpapi.Operation{
		ID: "getEvidenceCertificate", Method: http.MethodGet, Path: "/v1/authorizations/{authorizationId}/evidence.pdf", Tag: "Authorizations",
		Summary:     "Get the certificate of an authorization",
		Description: "**[ext]** Returns the evidence as a PDF document: who consented to what, when and how, and the hashes that prove it.",
		Scope:       identity.ScopeAuthorizationsRead, Category: identity.LimitAuthorizations,
		ContentType: "application/pdf",
		Errors:      []int{http.StatusNotFound},
	}, s.getEvidenceCertificate)
}

func (s *Server) getEvidence(ctx context.Context, in *AuthorizationPath) (*evidenceOutput, error) {
	id, err := in.parse()
	if err != nil {
		return nil, err
	}
	e, err := s.config.Consents.Evidence(ctx, httpapi.Principal(ctx).TenantID, id)
	if err != nil {
		return nil, err
	}
	out := &evidenceOutput{Body: Evidence{
		Authorization: authorization(httpapi.Principal(ctx), e.Authorization),
		Records:       make([]EvidenceRecord, len(e.Records)),
		Chain:         EvidenceChain{Count: e.Head.Count, HeadHash: hex.EncodeToString(e.Head.Hash), IsIntact: e.Intact},
	}}
	for i, r := range e.Records {
		out.Body.Records[i] = EvidenceRecord{
			Position: r.Position, Kind: string(r.Kind), RecordedAt: stamp(r.RecordedAt), RecordedAtMicros: r.RecordedAt.UnixMicro(),
			Content: RawObject(r.Content), Salt: hex.EncodeToString(r.Salt), Commitment: hex.EncodeToString(r.Commitment),
			PreviousHash: hex.EncodeToString(r.PreviousHash), Hash: hex.EncodeToString(r.Hash),
		}
	}
	return out, nil
}

func (s *Server) getEvidenceCertificate(ctx context.Context, in *AuthorizationPath) (*certificateOutput, error) {
	id, err := in.parse()
	if err != nil {
		return nil, err
	}
	e, err := s.config.Consents.Evidence(ctx, httpapi.Principal(ctx).TenantID, id)
	if err != nil {
		return nil, err
	}
	var pdf bytes.Buffer
	if err := consent.WriteCertificate(&pdf, httpapi.Principal(ctx).TenantSlug, e); err != nil {
		return nil, err
	}
	return &certificateOutput{
		ContentType: "application/pdf", ContentDisposition: `attachment; filename="authorization-` + id.String() + `.pdf"`, Body: pdf.Bytes(),
	}, nil
}
