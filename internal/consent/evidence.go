package consent

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"tranche/internal/postgres"
	"tranche/internal/secret"
	"tranche/queries"
)

// Kind is the kind of a record of evidence.
type Kind string

// The kinds.
const (
	KindCreated             Kind = "authorization_created"
	KindChanged             Kind = "authorization_changed"
	KindAttachmentAnnounced Kind = "attachment_announced"
	KindAttachmentRemoved   Kind = "attachment_removed"
	KindCodeRequested       Kind = "code_requested"
	KindCodeSent            Kind = "code_sent"
	KindDeliveryFailed      Kind = "delivery_failed"
	KindCodeAttempted       Kind = "code_attempted" // counted; the result is a later record
	KindCodeRejected        Kind = "code_rejected"
	KindSigned              Kind = "signed"
	KindDeleted             Kind = "authorization_deleted"
)

const (
	saltBytes = 32
	// headTable binds sealed heads to their table.
	headTable = "evidence_heads"
)

// Record is one link of a tenant's chain of evidence.
type Record struct {
	Position        int64 // from 1
	AuthorizationID uuid.UUID
	Kind            Kind
	RecordedAt      time.Time // by the clock of the database
	// Commitment is the HMAC-SHA-256 of the content under the salt.
	Commitment   []byte
	PreviousHash []byte // empty for the first record
	Hash         []byte
	// Salt and Content are nil after the authorization was deleted.
	Salt    []byte
	Content json.RawMessage
	// IsMisplaced says that the content is stored for another authorization, whose
	// deletion would delete it.
	IsMisplaced bool
}

// Head is the end of a chain.
type Head struct {
	Count int64
	Hash  []byte
}

// Evidence is an authorization with its records of evidence.
type Evidence struct {
	Authorization *Authorization
	Records       []Record
	Head          Head
	// Intact says that every record matches its hash. Verify checks the whole chain.
	Intact bool
}

// appendTx appends a record to the tenant's chain and locks the chain until tx ends.
func (s *Service) appendTx(ctx context.Context, tx pgx.Tx, tenantID, authorizationID uuid.UUID, kind Kind, content map[string]any) error {
	text, err := json.Marshal(content)
	if err != nil {
		return fmt.Errorf("encode evidence: %w", err)
	}
	head, err := s.q.EvidenceHeadAdvance(ctx, tx, tenantID)
	if err != nil {
		return fmt.Errorf("acquire the next position of the chain of tenant %s: %w", tenantID, err)
	}
	r := Record{
		Position: head.Count, AuthorizationID: authorizationID, Kind: kind, RecordedAt: head.RecordedAt,
		PreviousHash: head.Hash, Salt: make([]byte, saltBytes), Content: text,
	}
	_, _ = rand.Read(r.Salt) // it never fails; it ends the process instead
	r.Commitment = commitment(r.Salt, r.Content)
	r.Hash = r.hash(tenantID)
	err = s.q.EvidenceAppend(ctx, tx, queries.EvidenceAppendParams{
		TenantID: tenantID, Position: r.Position, AuthorizationID: authorizationID, Kind: string(kind), RecordedAt: r.RecordedAt,
		Commitment: r.Commitment, PreviousHash: r.PreviousHash, Hash: r.Hash, Seal: sealHead(s.Keys, tenantID, Head{Count: r.Position, Hash: r.Hash}),
		Salt: r.Salt, Content: string(text),
	})
	if err != nil {
		return fmt.Errorf("append evidence %d of tenant %s: %w", r.Position, tenantID, err)
	}
	return nil
}

// commitment returns a value that binds a record to its content and does not reveal it.
// Without the salt nobody can test a guess of the content.
func commitment(salt, content []byte) []byte {
	h := hmac.New(sha256.New, salt)
	h.Write(content)
	return h.Sum(nil)
}

// hash returns the SHA-256 of all members of the record except salt and content. The
// length precedes each member (docs/consent.md has the recipe).
func (r *Record) hash(tenantID uuid.UUID) []byte {
	h := sha256.New()
	number := func(n int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }
	for _, part := range [][]byte{
		[]byte("tranche evidence 1"), r.PreviousHash, number(r.Position), tenantID[:], r.AuthorizationID[:],
		[]byte(r.Kind), number(r.RecordedAt.UnixMicro()), r.Commitment,
	} {
		h.Write(number(int64(len(part))))
		h.Write(part)
	}
	return h.Sum(nil)
}

// sealHead seals the head of a chain. Only a holder of the master key can create the seal
// or verify it.
func sealHead(keys *secret.Keyring, tenantID uuid.UUID, head Head) []byte {
	return keys.Seal(headText(head), headTable, tenantID.String())
}

func headText(head Head) []byte {
	return append(binary.BigEndian.AppendUint64(nil, uint64(head.Count)), head.Hash...)
}

// snapshot returns the options of a transaction that reads one snapshot.
func snapshot() pgx.TxOptions {
	return pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
}

// Evidence returns a snapshot of an authorization with its evidence, or fault.NotFound.
func (s *Service) Evidence(ctx context.Context, tenantID, id uuid.UUID) (e *Evidence, err error) {
	err = pgx.BeginTxFunc(ctx, s.Pool, snapshot(), func(tx pgx.Tx) error {
		e, err = s.evidence(ctx, tx, tenantID, id)
		return err
	})
	return e, postgres.Translate(err)
}

func (s *Service) evidence(ctx context.Context, tx pgx.Tx, tenantID, id uuid.UUID) (*Evidence, error) {
	a, err := s.get(ctx, tx, tenantID, id)
	if err != nil {
		return nil, err
	}
	rows, err := s.q.EvidenceListOfAuthorization(ctx, tx, queries.EvidenceListOfAuthorizationParams{TenantID: tenantID, AuthorizationID: id})
	if err != nil {
		return nil, fmt.Errorf("read the evidence of authorization %s: %w", id, err)
	}
	head, err := s.q.EvidenceHeadGet(ctx, tx, tenantID)
	if err != nil {
		return nil, fmt.Errorf("read the head of the chain of tenant %s: %w", tenantID, err)
	}
	e := &Evidence{Authorization: a, Head: Head{Count: head.Count, Hash: head.Hash}, Intact: true}
	for _, row := range rows {
		r := recordOf(queries.EvidenceListAfterRow(row))
		e.Records = append(e.Records, r)
		if r.Content == nil || r.fault(tenantID) != "" {
			e.Intact = false
		}
	}
	return e, nil
}

func recordOf(row queries.EvidenceListAfterRow) Record {
	r := Record{
		Position: row.Position, AuthorizationID: row.AuthorizationID, Kind: Kind(row.Kind), RecordedAt: row.RecordedAt,
		Commitment: row.Commitment, PreviousHash: row.PreviousHash, Hash: row.Hash, Salt: row.Salt,
		IsMisplaced: row.IsMisplaced,
	}
	if row.Content != nil {
		r.Content = json.RawMessage(*row.Content)
	}
	return r
}

// ResealHeads seals the heads of all chains of evidence under the first master key and
// returns how many were sealed under another. It returns secret.ErrUnknownKey if keys does
// not have that other key, and secret.ErrBroken if a head was changed.
func ResealHeads(ctx context.Context, tx pgx.Tx, keys *secret.Keyring) (resealed int, err error) {
	q := queries.New()
	rows, err := q.SysEvidenceHeadListForUpdate(ctx, tx)
	if err != nil {
		return 0, err
	}
	for _, row := range rows {
		sealed, err := keys.Reseal(row.Seal, headTable, row.TenantID.String())
		if err != nil {
			return 0, fmt.Errorf("the head of the evidence of tenant %s: %w", row.TenantID, err)
		}
		if sealed == nil {
			continue
		}
		if err := q.EvidenceHeadReseal(ctx, tx, queries.EvidenceHeadResealParams{TenantID: row.TenantID, Seal: sealed}); err != nil {
			return 0, err
		}
		resealed++
	}
	return resealed, nil
}
