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

// verifyPage is how many records are read at a time.
const verifyPage = 1000

// Break is the first place at which a chain is not what it was.
type Break struct {
	Position        int64     // 0 of a record that an authorization lacks
	AuthorizationID uuid.UUID // uuid.Nil where the record itself is gone
	Kind            Kind
	Reason          string
}

// String tells the break to a person.
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

// Verification is what Verify found.
type Verification struct {
	Records int64
	// Withdrawn counts the records whose content went with a deleted authorization.
	Withdrawn int64
	Head      Head
	Broken    *Break // nil: the chain is whole
}

// fault says what is wrong with a record by itself; empty for nothing. A record
// without content can be wrong in its hash only.
func (r *Record) fault(tenantID uuid.UUID) string {
	switch {
	case !bytes.Equal(r.Hash, r.hash(tenantID)):
		return "is not what its hash says"
	case r.Content != nil && !bytes.Equal(r.Commitment, commitment(r.Salt, r.Content)):
		return "has a content that is not what it is committed to"
	case r.IsMisplaced: // the hash covers the record's own authorization, so it is the content's that is wrong
		return "has a content that is kept as another authorization's"
	default:
		return ""
	}
}

// Verify reads a tenant's whole chain, as it was at one moment, and names the
// first record that is broken, missing, or without its content though its
// authorization was not deleted. The end of the chain is what the head says,
// which is sealed under keys. A chain that is whole must also have what the
// authorizations say of themselves: that they were created, signed and deleted,
// and the authorizations must be what it says of them.
func Verify(ctx context.Context, pool *pgxpool.Pool, keys *secret.Keyring, tenantID uuid.UUID) (*Verification, error) {
	v := &verifier{tenantID: tenantID, q: queries.New(), emptied: map[uuid.UUID]Break{}}
	// One snapshot: the chain may grow meanwhile.
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
	last     []byte // the hash of the record before
	// emptied are the authorizations that lack a content, and the first record
	// that does: their deletion has to follow.
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

// contradicted looks for an authorization that is not what the chain says of
// it: its row was changed, brought back or removed behind the service's back.
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

// unrecorded looks for an authorization that the chain does not know: its
// record was never written, or the chain is gone with its end.
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

// next checks that a record follows on the one before.
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

// withdrawn is the first record without content whose authorization was not
// deleted. Only a chain that is whole can tell: what it lacks may be the
// deletion.
func (v *verifier) withdrawn() (b *Break) {
	for _, empty := range v.emptied {
		if b == nil || empty.Position < b.Position {
			b = &empty
		}
	}
	return b
}

// readHead reads the end of the chain and says what is wrong with its seal.
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
		//nolint:nilerr // a seal that does not open is what the verifier reports
		return "is the last, but the end of the chain has been moved: its seal is broken", nil
	default:
		return "", nil
	}
}

// end checks that the chain ends where its head says.
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
