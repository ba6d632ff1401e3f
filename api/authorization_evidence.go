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

// Evidence is what is known of how an authorization came about.
type Evidence struct {
	Authorization Authorization    `json:"authorization" doc:"The authorization as it is."`
	Records       []EvidenceRecord `json:"records" doc:"Every step, in the order in which it was recorded."`
	Chain         EvidenceChain    `json:"chain" doc:"The tenant's chain of evidence, of which the records are links."`
}

// EvidenceRecord is one link of the chain.
type EvidenceRecord struct {
	Position         int64     `json:"position" doc:"Its place in the tenant's chain, from 1." example:"41"`
	Kind             string    `json:"kind" enum:"authorization_created,authorization_changed,attachment_announced,attachment_removed,code_requested,code_sent,delivery_failed,code_attempted,code_rejected,signed,authorization_deleted" doc:"What was recorded." example:"signed"`
	RecordedAt       Timestamp `json:"recordedAt" doc:"When, by the clock of the database."`
	RecordedAtMicros int64     `json:"recordedAtMicros" doc:"The same in microseconds since 1970, as it is hashed." example:"1795226965123456"`
	Content          RawObject `json:"content" doc:"What is known of the step: client, address, contact (masked, and its HMAC), times, template, provider."`
	Salt             string    `json:"salt" doc:"Hexadecimal. commitment = HMAC-SHA-256(salt, content), the content byte for byte as it is here." example:"7f…"`
	Commitment       string    `json:"commitment" doc:"Hexadecimal; what the hash holds of the content." example:"9c…"`
	PreviousHash     string    `json:"previousHash" doc:"Hexadecimal; the hash of the record before, empty for the first." example:"b1…"`
	Hash             string    `json:"hash" doc:"Hexadecimal; SHA-256 over all the others, as docs/consent.md says." example:"d4…"`
}

// EvidenceChain is the chain around the records.
type EvidenceChain struct {
	Count    int64  `json:"count" doc:"How many records the tenant's chain has by now." example:"58"`
	HeadHash string `json:"headHash" doc:"Hexadecimal; the hash of its last record." example:"ab…"`
	IsIntact bool   `json:"isIntact" doc:"Whether every record here is what its hash and its commitment say. The whole chain is verified by the operator: tranche evidence verify." example:"true"`
}

type (
	evidenceOutput    struct{ Body Evidence }
	certificateOutput struct {
		ContentType        string `header:"Content-Type" doc:"application/pdf."`
		ContentDisposition string `header:"Content-Disposition" doc:"The name of the file."`
		Body               []byte
	}
)

func evidenceRoutes(s *Server) {
	httpapi.Register(s.http, httpapi.Operation{
		ID: "getEvidence", Method: http.MethodGet, Path: "/v1/authorizations/{authorizationId}/evidence", Tag: "Authorizations",
		Summary: "Get the evidence of an authorization",
		Description: "**[ext]** Every step from the creation on, as it was recorded in the tenant's chain of evidence: append only, each record with the hash of the one before, " +
			"its content bound to it by a salted commitment.",
		Scope: identity.ScopeAuthorizationsRead, Category: identity.LimitAuthorizations,
		ResponseExample: `{"authorization":` + authorizationExample + `,"records":[{"position":1,"kind":"authorization_created","recordedAt":"2026-11-21T02:09:25.123Z",` +
			`"recordedAtMicros":1795226965123456,"content":{"by":{"clientId":"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a10","ipAddress":"203.0.113.7","userAgent":"curl/8"}},` +
			`"salt":"7f","commitment":"9c","previousHash":"","hash":"d4"}],"chain":{"count":1,"headHash":"d4","isIntact":true}}`,
		Errors: []int{http.StatusNotFound},
	}, s.getEvidence)
	httpapi.Register(s.http, httpapi.Operation{
		ID: "getEvidenceCertificate", Method: http.MethodGet, Path: "/v1/authorizations/{authorizationId}/evidence.pdf", Tag: "Authorizations",
		Summary:     "Get the certificate of an authorization",
		Description: "**[ext]** The evidence as a document to read and to print: who consented to what, when and how, and the hashes that show it.",
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
