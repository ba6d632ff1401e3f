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

// Kind is what a record of evidence is about.
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
	KindCodeAttempted       Kind = "code_attempted" // counted; what came of it follows
	KindCodeRejected        Kind = "code_rejected"
	KindSigned              Kind = "signed"
	KindDeleted             Kind = "authorization_deleted"
)

const (
	saltBytes = 32
	// headTable is what the ends of chains are sealed for.
	headTable = "evidence_heads"
)

// Record is one link of a tenant's chain of evidence.
type Record struct {
	Position        int64 // from 1
	AuthorizationID uuid.UUID
	Kind            Kind
	RecordedAt      time.Time // by the clock of the database
	// Commitment is HMAC-SHA-256 of the content under the salt.
	Commitment   []byte
	PreviousHash []byte // empty for the first
	Hash         []byte
	// Salt and Content are nil once the authorization has been deleted.
	Salt    []byte
	Content json.RawMessage
	// IsMisplaced says that the content is kept as another authorization's, with
	// whose deletion it would go.
	IsMisplaced bool
}

// Head is where a chain ends.
type Head struct {
	Count int64
	Hash  []byte
}

// Evidence is what is known of how an authorization came about.
type Evidence struct {
	Authorization *Authorization
	Records       []Record
	Head          Head
	// Intact says that every record is what its hash says. Whether the chain
	// around them is whole, Verify tells.
	Intact bool
}

// appendTx adds a record to the tenant's chain, which it holds until tx ends.
func (s *Service) appendTx(ctx context.Context, tx pgx.Tx, tenantID, authorizationID uuid.UUID, kind Kind, content map[string]any) error {
	text, err := json.Marshal(content)
	if err != nil {
		return fmt.Errorf("write evidence: %w", err)
	}
	head, err := s.q.EvidenceHeadAdvance(ctx, tx, tenantID)
	if err != nil {
		return fmt.Errorf("take the next position of the chain of tenant %s: %w", tenantID, err)
	}
	r := Record{
		Position: head.Count, AuthorizationID: authorizationID, Kind: kind, RecordedAt: head.RecordedAt,
		PreviousHash: head.Hash, Salt: make([]byte, saltBytes), Content: text,
	}
	_, _ = rand.Read(r.Salt) // never fails: it ends the process instead
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

// commitment binds a record to its content without telling it: under another
// salt the same content gives another one, and without the salt no content can
// be tried.
func commitment(salt, content []byte) []byte {
	h := hmac.New(sha256.New, salt)
	h.Write(content)
	return h.Sum(nil)
}

// hash is SHA-256 over every member of the record but salt and content, each
// preceded by its length (docs/consent.md has the recipe).
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

// sealHead makes the end of a chain tamper-evident to whoever has the master
// key, and impossible to make for whoever does not.
func sealHead(keys *secret.Keyring, tenantID uuid.UUID, head Head) []byte {
	return keys.Seal(headText(head), headTable, tenantID.String())
}

func headText(head Head) []byte {
	return append(binary.BigEndian.AppendUint64(nil, uint64(head.Count)), head.Hash...)
}

// snapshot are the options of a transaction that sees everything as it was at one moment.
func snapshot() pgx.TxOptions {
	return pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
}

// Evidence returns what is known of an authorization at one moment;
// fault.NotFound if the tenant has none of that id.
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
		return nil, fmt.Errorf("read the end of the chain of tenant %s: %w", tenantID, err)
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

// ResealHeads seals the ends of all chains of evidence under the first master key and
// returns how many were sealed under another. It fails with secret.ErrUnknownKey where
// keys lacks that, and with secret.ErrBroken where somebody has moved an end.
func ResealHeads(ctx context.Context, tx pgx.Tx, keys *secret.Keyring) (resealed int, err error) {
	q := queries.New()
	rows, err := q.SysEvidenceHeadListForUpdate(ctx, tx)
	if err != nil {
		return 0, err
	}
	for _, row := range rows {
		sealed, err := keys.Reseal(row.Seal, headTable, row.TenantID.String())
		if err != nil {
			return 0, fmt.Errorf("the end of the evidence of tenant %s: %w", row.TenantID, err)
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
