package consent

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"tranche/internal/postgres"
	"tranche/internal/secret"
	"tranche/queries"
)

// verifyPage is the number of records that one query reads.
const verifyPage = 1000

// Break is the first fault of a chain.
type Break struct {
	Position        int64     // 0: an authorization lacks the record
	AuthorizationID uuid.UUID // uuid.Nil: the record does not exist
	Kind            Kind
	Reason          string
}

// String describes the break to a person.
func (b Break) String() string {
	switch {
	case b.Position == 0:
		return fmt.Sprintf("the record %s of authorization %s %s", b.Kind, b.AuthorizationID, b.Reason)
	case b.AuthorizationID == uuid.Nil:
		return fmt.Sprintf("record %d %s", b.Position, b.Reason)
	default:
		return fmt.Sprintf("record %d (%s, authorization %s) %s", b.Position, b.Kind, b.AuthorizationID, b.Reason)
	}
}

// Verification is the result of Verify.
type Verification struct {
	Records int64
	// Withdrawn counts the records whose content was deleted with their authorization.
	Withdrawn int64
	Head      Head
	Broken    *Break // nil: the chain is intact
}

// fault returns the fault of a record itself, or an empty text. A record without content
// can only have a wrong hash.
func (r *Record) fault(tenantID uuid.UUID) string {
	switch {
	case !bytes.Equal(r.Hash, r.hash(tenantID)):
		return "is not what its hash says"
	case r.Content != nil && !bytes.Equal(r.Commitment, commitment(r.Salt, r.Content)):
		return "has a content that is not what it is committed to"
	case r.IsMisplaced: // the hash covers the authorization of the record, not that of the content
		return "has a content that is kept as another authorization's"
	default:
		return ""
	}
}

// Verify reads a snapshot of a tenant's whole chain and returns the first record that is
// broken or missing, or that lacks its content although its authorization was not
// deleted. The head, which is sealed under keys, states the end of the chain. In an intact
// chain, Verify also checks that every authorization has records of its creation,
// signature and deletion, and that the authorizations match these records.
func Verify(ctx context.Context, pool *pgxpool.Pool, keys *secret.Keyring, tenantID uuid.UUID) (*Verification, error) {
	v := &verifier{tenantID: tenantID, q: queries.New(), emptied: map[uuid.UUID]Break{}}
	// The chain can grow during the verification.
	err := pgx.BeginTxFunc(ctx, pool, snapshot(), func(tx pgx.Tx) error {
		return v.run(ctx, tx, keys)
	})
	if err != nil {
		return nil, fmt.Errorf("verify the evidence of tenant %s: %w", tenantID, postgres.Translate(err))
	}
	return &v.found, nil
}

type verifier struct {
	tenantID uuid.UUID
	q        *queries.Queries
	found    Verification
	last     []byte // the hash of the previous record
	// emptied are authorizations that lack a content, with the first such record. A
	// record of their deletion must follow.
	emptied map[uuid.UUID]Break
}

func (v *verifier) run(ctx context.Context, tx pgx.Tx, keys *secret.Keyring) error {
	headReason, err := v.readHead(ctx, tx, keys)
	if err != nil {
		return err
	}
	for {
		rows, err := v.q.EvidenceListAfter(ctx, tx, queries.EvidenceListAfterParams{
			TenantID: v.tenantID, After: v.found.Records, RowLimit: verifyPage,
		})
		if err != nil {
			return err
		}
		for _, row := range rows {
			r := recordOf(row)
			if b := v.next(&r); b != nil {
				v.found.Broken = b
				return nil
			}
		}
		if len(rows) < verifyPage {
			break
		}
	}
	if v.found.Broken = v.end(headReason); v.found.Broken == nil {
		v.found.Broken = v.withdrawn()
	}
	if v.found.Broken == nil {
		v.found.Broken, err = v.unrecorded(ctx, tx)
	}
	if v.found.Broken == nil && err == nil {
		v.found.Broken, err = v.contradicted(ctx, tx)
	}
	return err
}

// contradicted finds an authorization that differs from the chain. Its row was changed,
// restored or deleted outside of the service.
func (v *verifier) contradicted(ctx context.Context, tx pgx.Tx) (*Break, error) {
	row, err := v.q.EvidenceGetContradicted(ctx, tx, v.tenantID)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &Break{
		Position: row.Position, AuthorizationID: row.AuthorizationID, Kind: Kind(row.Kind),
		Reason: "says otherwise than the authorization itself",
	}, nil
}

// unrecorded finds an authorization without a record. The record was never written, or
// the chain was deleted together with its head.
func (v *verifier) unrecorded(ctx context.Context, tx pgx.Tx) (*Break, error) {
	row, err := v.q.EvidenceGetUnrecorded(ctx, tx, v.tenantID)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &Break{AuthorizationID: row.ID, Kind: Kind(row.Kind), Reason: "is missing"}, nil
}

// next checks that a record follows the previous one.
func (v *verifier) next(r *Record) *Break {
	b := &Break{Position: r.Position, AuthorizationID: r.AuthorizationID, Kind: r.Kind}
	switch {
	case r.Position != v.found.Records+1:
		return &Break{Position: v.found.Records + 1, Reason: "is missing"}
	case !bytes.Equal(r.PreviousHash, v.last):
		b.Reason = "does not follow on the record before"
		return b
	}
	if b.Reason = r.fault(v.tenantID); b.Reason != "" {
		return b
	}
	v.found.Records, v.last = r.Position, r.Hash
	if r.Kind == KindDeleted {
		delete(v.emptied, r.AuthorizationID)
	}
	if r.Content == nil {
		v.found.Withdrawn++
		if _, known := v.emptied[r.AuthorizationID]; !known {
			b.Reason = "has lost its content, though its authorization was not deleted"
			v.emptied[r.AuthorizationID] = *b
		}
	}
	return nil
}

// withdrawn returns the first record without content whose authorization was not deleted.
// It must run after the whole chain was read, because the deletion is a later record.
func (v *verifier) withdrawn() (b *Break) {
	for _, empty := range v.emptied {
		if b == nil || empty.Position < b.Position {
			b = &empty
		}
	}
	return b
}

// readHead reads the head of the chain and returns the fault of its seal.
func (v *verifier) readHead(ctx context.Context, tx pgx.Tx, keys *secret.Keyring) (reason string, err error) {
	row, err := v.q.EvidenceHeadGet(ctx, tx, v.tenantID)
	if errors.Is(err, pgx.ErrNoRows) {
		return "is after the end of the chain, which is not known any more", nil
	}
	if err != nil {
		return "", err
	}
	v.found.Head = Head{Count: row.Count, Hash: row.Hash}
	text, err := keys.Open(row.Seal, headTable, v.tenantID.String())
	switch {
	case errors.Is(err, secret.ErrUnknownKey):
		return "", fmt.Errorf("the end of the chain: %w", err)
	case err != nil || !bytes.Equal(text, headText(v.found.Head)):
		//nolint:nilerr // the verifier reports a seal that does not open
		return "is the last, but the end of the chain has been moved: its seal is broken", nil
	default:
		return "", nil
	}
}

// end checks that the chain ends at its head.
func (v *verifier) end(headReason string) *Break {
	count := v.found.Head.Count
	switch {
	case v.found.Records < count:
		return &Break{Position: v.found.Records + 1, Reason: "is missing"}
	case headReason != "" && (v.found.Records > 0 || count > 0):
		return &Break{Position: v.found.Records, Reason: headReason}
	case v.found.Records > count:
		return &Break{Position: count + 1, Reason: "is after the end of the chain"}
	case !bytes.Equal(v.last, v.found.Head.Hash):
		return &Break{Position: count, Reason: "is not the one that the chain ended with"}
	default:
		return nil
	}
}
