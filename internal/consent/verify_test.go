package consent_test

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"tranche/internal/consent"
	"tranche/internal/message"
	"tranche/internal/pgtest"
	"tranche/internal/secret"
	"tranche/internal/storage"
	"tranche/jobs"
)

// office is a consent service on a database of its own.
type office struct {
	*consent.Service
	pool     *pgxpool.Pool
	keys     *secret.Keyring
	tenantID uuid.UUID
	actor    consent.Actor
	mailbox  string
}

func open(t *testing.T, keyText string) *office {
	t.Helper()
	pool := pgtest.Pool(t)
	keys, err := secret.ParseKeys(keyText)
	require.NoError(t, err)
	client, err := jobs.NewClient(pool, jobs.Config{ProcessID: pgtest.NewID(t), Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	tenantID := pgtest.Tenant(t, pool).ID
	o := &office{
		pool: pool, keys: keys, tenantID: tenantID, mailbox: t.TempDir(),
		actor: consent.Actor{ClientID: pgtest.Client(t, pool, tenantID).ID, IPAddress: "203.0.113.7", UserAgent: "test"},
	}
	o.Service = consent.New(consent.Config{
		Pool: pool, Jobs: client, Store: storage.New(pool), Keys: keys, Senders: message.Senders{message.Email: message.Folder{Dir: o.mailbox}},
		Log: slog.New(slog.DiscardHandler),
	})
	return o
}

func (o *office) create(t *testing.T) uuid.UUID {
	t.Helper()
	id, err := o.Create(t.Context(), o.tenantID, o.actor, consent.Content{Key: "credit-report", IdentityKey: "borrowerId", IdentityValue: "B-1001"}, nil)
	require.NoError(t, err)
	return id
}

func (o *office) verify(t *testing.T) *consent.Verification {
	t.Helper()
	found, err := consent.Verify(t.Context(), o.pool, o.keys, o.tenantID)
	require.NoError(t, err)
	return found
}

// tamper does what the triggers forbid, as somebody with all rights could.
func (o *office) tamper(t *testing.T, sql string, args ...any) {
	t.Helper()
	require.NoError(t, pgx.BeginFunc(t.Context(), o.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), `SET LOCAL session_replication_role = replica`); err != nil {
			return err
		}
		tag, err := tx.Exec(t.Context(), sql, args...)
		if err == nil && tag.RowsAffected() == 0 {
			err = fmt.Errorf("nothing was tampered with")
		}
		return err
	}))
}

func TestVerifyGoodChains(t *testing.T) {
	t.Parallel()
	o := open(t, secret.GenerateKey())
	require.Nil(t, o.verify(t).Broken, "no chain")
	first, second := o.create(t), o.create(t)
	o.create(t)
	found := o.verify(t)
	require.Nil(t, found.Broken)
	require.EqualValues(t, 3, found.Records)
	for i, id := range []uuid.UUID{second, first} {
		require.NoError(t, o.Delete(t.Context(), o.tenantID, id, o.actor))
		found = o.verify(t)
		require.Nil(t, found.Broken)
		require.EqualValues(t, 4+i, found.Records)
		require.EqualValues(t, 1+i, found.Withdrawn)
	}

	// A new master key in front of the old one opens the old end.
	rotated, err := secret.ParseKeys(secret.GenerateKey())
	require.NoError(t, err)
	_, err = consent.Verify(t.Context(), o.pool, rotated, o.tenantID)
	require.ErrorIs(t, err, secret.ErrUnknownKey)
}

func TestVerifyAfterKeyRotation(t *testing.T) {
	t.Parallel()
	old := secret.GenerateKey()
	o := open(t, old)
	o.create(t)
	keys, err := secret.ParseKeys(secret.GenerateKey() + "," + old)
	require.NoError(t, err)
	found, err := consent.Verify(t.Context(), o.pool, keys, o.tenantID)
	require.NoError(t, err)
	require.Nil(t, found.Broken)
}

func TestVerifyNamesTheFirstBrokenRecord(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sql      string
		position int64
		reason   string
	}{
		"flipped byte of a hash":       {`UPDATE evidence_records SET hash = set_byte(hash, 7, get_byte(hash, 7) # 1) WHERE position = 3`, 3, "its hash"},
		"flipped byte of a commitment": {`UPDATE evidence_records SET commitment = set_byte(commitment, 0, get_byte(commitment, 0) # 128) WHERE position = 3`, 3, "its hash"},
		"flipped byte of a link":       {`UPDATE evidence_records SET previous_hash = set_byte(previous_hash, 31, get_byte(previous_hash, 31) # 1) WHERE position = 3`, 3, "does not follow"},
		"flipped byte of a content":    {`UPDATE evidence_contents SET content = overlay(content PLACING '9' FROM 20 FOR 1) WHERE position = 3`, 3, "committed"},
		"flipped byte of a salt":       {`UPDATE evidence_contents SET salt = set_byte(salt, 0, get_byte(salt, 0) # 1) WHERE position = 3`, 3, "committed"},
		"another time":                 {`UPDATE evidence_records SET recorded_at = recorded_at - interval '1 microsecond' WHERE position = 3`, 3, "its hash"},
		"another kind":                 {`UPDATE evidence_records SET kind = 'signed' WHERE position = 3`, 3, "its hash"},
		"another authorization":        {`UPDATE evidence_records SET authorization_id = gen_random_uuid() WHERE position = 3`, 3, "its hash"},
		"missing first":                {`DELETE FROM evidence_records WHERE position = 1`, 1, "missing"},
		"missing middle":               {`DELETE FROM evidence_records WHERE position = 3`, 3, "missing"},
		"missing last":                 {`DELETE FROM evidence_records WHERE position = 5`, 5, "missing"},
		"missing last two":             {`DELETE FROM evidence_records WHERE position >= 4`, 4, "missing"},
		"missing all":                  {`DELETE FROM evidence_records`, 1, "missing"},
		"content withdrawn":            {`DELETE FROM evidence_contents WHERE position = 2`, 2, "lost its content"},
		"missing last, end moved": {
			`WITH gone AS (DELETE FROM evidence_records WHERE position = 5)
			UPDATE evidence_heads h SET count = 4, hash = r.hash FROM evidence_records r WHERE r.tenant_id = h.tenant_id AND r.position = 4`, 4, "seal is broken",
		},
		"end gone":        {`DELETE FROM evidence_heads`, 5, "not known any more"},
		"end's seal":      {`UPDATE evidence_heads SET seal = set_byte(seal, 30, get_byte(seal, 30) # 1)`, 5, "seal is broken"},
		"two in disorder": {`UPDATE evidence_records SET position = 99 WHERE position = 2`, 2, "missing"},
		"one made up":     {`INSERT INTO evidence_records SELECT tenant_id, 6, authorization_id, kind, recorded_at, commitment, hash, hash FROM evidence_records WHERE position = 5`, 6, "its hash"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := open(t, secret.GenerateKey())
			for range 5 {
				o.create(t)
			}
			require.Nil(t, o.verify(t).Broken)
			o.tamper(t, c.sql)
			broken := o.verify(t).Broken
			require.NotNil(t, broken)
			require.Equal(t, c.position, broken.Position, broken)
			require.Contains(t, broken.String(), c.reason)
		})
	}
}

// TestVerifyFindsChangedAuthorizations changes what workflows go by
// and leaves the chain alone.
func TestVerifyFindsChangedAuthorizations(t *testing.T) {
	t.Parallel()
	const changed, untouched, created, signed, withdrawn = 2, 3, 4, 8, 9
	for name, c := range map[string]struct {
		sql      string
		position int64
	}{
		"signed by another": {`UPDATE authorizations SET identity_value = 'B-2' WHERE authorized_at IS NOT NULL`, signed},
		"holds longer":      {`UPDATE authorizations SET expires_at = expires_at + interval '1 microsecond' WHERE authorized_at IS NOT NULL`, signed},
		"signed earlier":    {`UPDATE authorizations SET authorized_at = authorized_at - interval '1 microsecond' WHERE authorized_at IS NOT NULL`, signed},
		"not signed":        {`UPDATE authorizations SET authorized_at = NULL WHERE authorized_at IS NOT NULL`, signed},
		"other tags":        {`UPDATE authorizations SET tags = '{x}' WHERE authorized_at IS NOT NULL`, signed},
		"another label":     {`UPDATE authorizations SET label = 'x' WHERE external_id IS NOT NULL AND authorized_at IS NULL`, changed},
		"another borrower":  {`UPDATE authorizations SET borrower_id = 'x' WHERE external_id IS NULL AND authorized_at IS NULL AND deleted_at IS NULL`, untouched},
		"brought back":      {`UPDATE authorizations SET deleted_at = NULL WHERE deleted_at IS NOT NULL`, withdrawn},
		"hidden":            {`UPDATE authorizations SET deleted_at = now() WHERE authorized_at IS NOT NULL`, 0},
		"not by a code":     {`UPDATE authorizations SET authorized_at = now() WHERE external_id IS NOT NULL`, 0},
		"gone":              {`DELETE FROM authorizations WHERE authorized_at IS NOT NULL`, created},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := open(t, secret.GenerateKey())
			edit := o.create(t)
			_, err := o.Update(t.Context(), o.tenantID, edit, o.actor, func(c consent.Content) consent.Content {
				c.ExternalID, c.Tags = "<É>\u2028", []string{"a", "b"}
				return c
			})
			require.NoError(t, err)
			o.create(t)
			o.sign(t, o.create(t))
			gone := o.create(t)
			require.NoError(t, o.Delete(t.Context(), o.tenantID, gone, o.actor))
			require.Nil(t, o.verify(t).Broken)
			o.tamper(t, c.sql)
			broken := o.verify(t).Broken
			require.NotNil(t, broken)
			require.Equal(t, c.position, broken.Position, broken)
		})
	}
}

// Evidence says of itself that a record of it was changed.
func TestEvidenceReportsChangedRecords(t *testing.T) {
	t.Parallel()
	o := open(t, secret.GenerateKey())
	id := o.create(t)
	o.tamper(t, `UPDATE evidence_contents SET content = replace(content, 'B-1001', 'B-1002')`)
	e, err := o.Evidence(t.Context(), o.tenantID, id)
	require.NoError(t, err)
	require.False(t, e.Intact)
}

func TestEvidenceIsAppendOnly(t *testing.T) {
	t.Parallel()
	o := open(t, secret.GenerateKey())
	o.create(t)
	for _, sql := range []string{
		`UPDATE evidence_records SET kind = 'x'`, `DELETE FROM evidence_records`, `TRUNCATE evidence_records CASCADE`, `UPDATE evidence_contents SET content = ''`,
	} {
		_, err := o.pool.Exec(t.Context(), sql)
		require.ErrorContains(t, err, "append only", sql)
	}
}

func TestCertificate(t *testing.T) {
	t.Parallel()
	o := open(t, secret.GenerateKey())
	id, err := o.Create(t.Context(), o.tenantID, o.actor, consent.Content{
		Key: "credit-report", IdentityKey: "name", IdentityValue: "Ñandú Žižka Дмитрий 山田 😀", PolicyLink: "https://acme.example/privacy",
	}, nil)
	require.NoError(t, err)
	e, err := o.Evidence(t.Context(), o.tenantID, id)
	require.NoError(t, err)
	for range 60 { // several pages
		e.Records = append(e.Records, e.Records[0])
	}
	var pdf bytes.Buffer
	require.NoError(t, consent.WriteCertificate(&pdf, "acme", e))
	require.True(t, bytes.HasPrefix(pdf.Bytes(), []byte("%PDF-")))
	text := pdfText(t, pdf.Bytes())
	for _, said := range []string{
		"NOT SIGNED", `Ñandú Žižka Дмитрий \u{5C71}\u{7530} \u{1F600}`, "credit-report", "https://acme.example/privacy", "acme", id.String(), o.actor.ClientID.String(), "203.0.113.7",
		"authorization created", hex.EncodeToString(e.Records[0].Commitment), hex.EncodeToString(e.Head.Hash), "what its hash and its commitment say",
	} {
		require.Contains(t, text, said)
	}
	require.NotContains(t, text, "ATTENTION")

	e.Intact = false
	pdf.Reset()
	require.NoError(t, consent.WriteCertificate(&pdf, "acme", e))
	require.Contains(t, pdfText(t, pdf.Bytes()), "ATTENTION")
}

// pdfText is the text of a document whose fonts are addressed by Unicode.
func pdfText(t *testing.T, pdf []byte) string {
	t.Helper()
	var text strings.Builder
	for _, stream := range bytes.Split(pdf, []byte("stream\n"))[1:] {
		r, err := zlib.NewReader(bytes.NewReader(stream))
		if err != nil {
			continue // not compressed: no page
		}
		page, _ := io.ReadAll(r) // what follows the stream is not of it
		for _, part := range regexp.MustCompile(`(?s)\(((?:\\.|[^\\)])*)\) ?Tj`).FindAllSubmatch(page, -1) {
			raw := regexp.MustCompile(`(?s)\\(.)`).ReplaceAll(part[1], []byte("$1"))
			for i := 0; i+1 < len(raw); i += 2 {
				text.WriteRune(rune(binary.BigEndian.Uint16(raw[i:])))
			}
			text.WriteByte('\n')
		}
	}
	return text.String()
}

func TestFind(t *testing.T) {
	t.Parallel()
	o := open(t, secret.GenerateKey())
	q := consent.Question{Key: "credit-report", IdentityKey: "borrowerId", IdentityValue: "B-1001"}
	ask := func(q consent.Question) bool {
		_, found, err := o.Find(t.Context(), o.tenantID, q)
		require.NoError(t, err)
		return found
	}
	id := o.create(t)
	require.False(t, ask(q), "not signed")
	exec := func(sql string) {
		pgtest.Exec(t, o.pool, sql, id)
	}
	exec(`UPDATE authorizations SET authorized_at = now() WHERE id = $1`)
	require.True(t, ask(q))
	for _, other := range []consent.Question{
		{Key: "other", IdentityKey: "borrowerId", IdentityValue: "B-1001"},
		{Key: "credit-report", IdentityKey: "curp", IdentityValue: "B-1001"},
		{Key: "credit-report", IdentityKey: "borrowerId", IdentityValue: "B-1002"},
	} {
		require.False(t, ask(other))
	}
	_, found, err := o.Find(t.Context(), pgtest.Tenant(t, o.pool).ID, q)
	require.NoError(t, err)
	require.False(t, found, "another tenant's")
	q.BorrowerID = "B-1001"
	require.True(t, ask(q), "it names no borrower")
	exec(`UPDATE authorizations SET borrower_id = 'B-2' WHERE id = $1`)
	require.False(t, ask(q), "another borrower's")
	exec(`UPDATE authorizations SET borrower_id = 'B-1001' WHERE id = $1`)
	require.True(t, ask(q))
	exec(`UPDATE authorizations SET expires_at = now() WHERE id = $1`)
	require.False(t, ask(q), "expired")
	exec(`UPDATE authorizations SET expires_at = now() + interval '1 day' WHERE id = $1`)
	require.NoError(t, o.Delete(t.Context(), o.tenantID, id, o.actor))
	require.False(t, ask(q), "deleted")
}
