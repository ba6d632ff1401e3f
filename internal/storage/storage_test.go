package storage_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"tranche/internal/fault"
	"tranche/internal/pgtest"
	"tranche/internal/postgres"
	"tranche/internal/storage"
)

type bundle struct {
	pool   *pgxpool.Pool
	store  *storage.Store
	tenant uuid.UUID
}

func setup(t *testing.T) bundle {
	t.Helper()
	pool := pgtest.Pool(t)
	return bundle{pool: pool, store: storage.New(pool), tenant: pgtest.Tenant(t, pool).ID}
}

// someBytes are the same for the same length.
func someBytes(length int) []byte {
	data := make([]byte, length)
	_, _ = rand.NewChaCha8([32]byte{byte(length)}).Read(data)
	return data
}

func (b *bundle) count(t *testing.T, table string) (n int) {
	t.Helper()
	require.NoError(t, b.pool.QueryRow(t.Context(), "SELECT count(*) FROM "+table).Scan(&n))
	return n
}

func TestReadReturnsWrittenBytes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, length := range []int{0, 1, 512<<10 - 1, 512 << 10, 512<<10 + 1, 1300 << 10} {
		a, err := b.store.Announce(t.Context(), b.pool, b.tenant, "Loans 2026.CSV", "text/csv")
		require.NoError(t, err)
		require.Equal(t, a.ID.String()+".csv", a.StoredName)
		require.False(t, a.IsStored)
		data := someBytes(length)
		stored, err := b.store.Put(t.Context(), b.tenant, a.ID, int64(length), iotest.HalfReader(bytes.NewReader(data)))
		require.NoError(t, err)
		sum := sha256.Sum256(data)
		require.Equal(t, sum[:], stored.SHA256)
		require.EqualValues(t, length, stored.Size)

		file, err := b.store.Open(t.Context(), b.tenant, a.ID)
		require.NoError(t, err)
		require.NoError(t, iotest.TestReader(file, data))
	}
}

func TestTextIsCompressed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a, err := b.store.Announce(t.Context(), b.pool, b.tenant, "x.csv", "text/csv")
	require.NoError(t, err)
	data := bytes.Repeat([]byte("B-0001,Maria,2000.10\n"), 100_000)
	_, err = b.store.Put(t.Context(), b.tenant, a.ID, int64(len(data)), bytes.NewReader(data))
	require.NoError(t, err)
	var isLZ4 bool
	var kept int
	require.NoError(t, b.pool.QueryRow(t.Context(), `SELECT attcompression = 'l', (SELECT sum(pg_column_size(data)) FROM attachment_chunks)
		FROM pg_attribute WHERE attrelid = 'attachment_chunks'::regclass AND attname = 'data'`).Scan(&isLZ4, &kept))
	if isLZ4 {
		require.Less(t, kept, len(data)/4)
	} else { // the server was built without it: as they are
		require.GreaterOrEqual(t, kept, len(data))
	}
	file, err := b.store.Open(t.Context(), b.tenant, a.ID)
	require.NoError(t, err)
	require.NoError(t, iotest.TestReader(file, data))
}

func TestSeekReadsOnlyNeededChunks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	data := someBytes(3 << 20)
	a, err := b.store.Announce(t.Context(), b.pool, b.tenant, "x.csv", "text/csv")
	require.NoError(t, err)
	_, err = b.store.Put(t.Context(), b.tenant, a.ID, int64(len(data)), bytes.NewReader(data))
	require.NoError(t, err)
	file, err := b.store.Open(t.Context(), b.tenant, a.ID)
	require.NoError(t, err)
	_, err = file.Seek(-5, io.SeekEnd)
	require.NoError(t, err)
	rest, err := io.ReadAll(file)
	require.NoError(t, err)
	require.Equal(t, data[len(data)-5:], rest)
	_, err = file.Seek(-1, io.SeekStart)
	require.Error(t, err)
	_, err = file.Seek(0, 9)
	require.Error(t, err)
}

func TestFirstCompleteUploadWins(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a, err := b.store.Announce(t.Context(), b.pool, b.tenant, "x.csv", "text/csv")
	require.NoError(t, err)
	data := someBytes(600 << 10)
	put := func(data []byte) error {
		_, err := b.store.Put(t.Context(), b.tenant, a.ID, int64(len(data)), bytes.NewReader(data))
		return err
	}
	require.NoError(t, put(data))
	require.NoError(t, put(data), "the same bytes again")
	other := bytes.Clone(data)
	other[len(other)-1]++
	require.ErrorIs(t, put(other), fault.Conflict)
	require.ErrorIs(t, put(data[:10]), fault.Conflict)
	require.Equal(t, 1, b.count(t, "attachment_uploads"))
}

func TestRacingUploadsHaveOneWinner(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a, err := b.store.Announce(t.Context(), b.pool, b.tenant, "x.csv", "text/csv")
	require.NoError(t, err)
	var group sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		group.Go(func() {
			data := someBytes(700<<10 + i%2)
			_, errs[i] = b.store.Put(t.Context(), b.tenant, a.ID, int64(len(data)), bytes.NewReader(data))
		})
	}
	group.Wait()
	won, err := b.store.Get(t.Context(), b.tenant, a.ID)
	require.NoError(t, err)
	for i, err := range errs {
		if won.Size == int64(700<<10+i%2) {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, fault.Conflict)
		}
	}
	require.Equal(t, 1, b.count(t, "attachment_uploads"))
	require.Equal(t, 2, b.count(t, "attachment_chunks"))
}

func TestBrokenUploadIsInvisible(t *testing.T) {
	t.Parallel()
	b := setup(t)
	away := errors.New("connection reset")
	a, err := b.store.Announce(t.Context(), b.pool, b.tenant, "x.csv", "text/csv")
	require.NoError(t, err)
	data := someBytes(1 << 20)
	for name, c := range map[string]struct {
		source io.Reader
		want   error
	}{
		"breaks off": {io.MultiReader(bytes.NewReader(data[:600<<10]), iotest.ErrReader(away)), away},
		"cut short":  {io.MultiReader(bytes.NewReader(data[:600<<10]), iotest.ErrReader(io.ErrUnexpectedEOF)), fault.Invalid},
		"too short":  {bytes.NewReader(data[:600<<10]), fault.Invalid},
	} {
		_, err = b.store.Put(t.Context(), b.tenant, a.ID, 1<<20, c.source)
		require.ErrorIs(t, err, c.want, name)
		require.Zero(t, b.count(t, "attachment_chunks"))
	}
	_, err = b.store.Open(t.Context(), b.tenant, a.ID)
	require.ErrorIs(t, err, fault.NotFound)
	stored, err := b.store.Stored(t.Context(), b.pool, b.tenant, []string{a.StoredName})
	require.NoError(t, err)
	require.Empty(t, stored)
	_, err = b.store.Put(t.Context(), b.tenant, a.ID, 1<<20, bytes.NewReader(data))
	require.NoError(t, err)
	_, err = b.store.Put(t.Context(), b.tenant, a.ID, storage.SizeMax+1, bytes.NewReader(data))
	require.ErrorIs(t, err, fault.TooLarge)
}

// What was announced or begun a day ago and never came is removed; what came,
// what is younger, and what belongs to a package or an authorization stays.
func TestAbandonedFilesAreRemoved(t *testing.T) {
	t.Parallel()
	b := setup(t)
	announce := func(tenant uuid.UUID) storage.Attachment {
		a, err := b.store.Announce(t.Context(), b.pool, tenant, "x.csv", "text/csv")
		require.NoError(t, err)
		return a
	}
	begin := func(a storage.Attachment, age string) {
		pgtest.Exec(t, b.pool, "INSERT INTO attachment_uploads (id, tenant_id, attachment_id, chunk_bytes, created_at) VALUES (gen_random_uuid(), $1, $2, 1, now() - $3::interval)", a.TenantID, a.ID, age)
	}
	never, broken, foreign := announce(b.tenant), announce(b.tenant), announce(pgtest.Tenant(t, b.pool).ID)
	underWay, stored, packed, attached := announce(b.tenant), announce(b.tenant), announce(b.tenant), announce(b.tenant)
	begin(broken, "25 hours")
	begin(stored, "25 hours")
	begin(underWay, "23 hours")
	_, err := b.store.Put(t.Context(), b.tenant, stored.ID, 1, bytes.NewReader([]byte("x")))
	require.NoError(t, err)
	packageID, authorizationID := pgtest.NewID(t), pgtest.NewID(t)
	for _, row := range []struct {
		statement string
		args      []any
	}{
		{"INSERT INTO packages (id, tenant_id, kind) VALUES ($1, $2, 'output')", []any{packageID, b.tenant}},
		{"INSERT INTO package_attachments (tenant_id, package_id, position, attachment_id, role) VALUES ($1, $2, 0, $3, 'results')", []any{b.tenant, packageID, packed.ID}},
		{"INSERT INTO authorizations (id, tenant_id, key, label, identity_key, identity_value, ip_address, search_text, expires_at) VALUES ($1, $2, 'k', '', '', '', '', '', now())", []any{authorizationID, b.tenant}},
		{"INSERT INTO authorization_attachments (tenant_id, authorization_id, attachment_id) VALUES ($1, $2, $3)", []any{b.tenant, authorizationID, attached.ID}},
		{"UPDATE attachments SET created_at = now() - interval '25 hours'", nil},
		{"UPDATE attachment_uploads SET created_at = now() - interval '25 hours' WHERE completed_at IS NOT NULL", nil},
	} {
		_, err := b.pool.Exec(t.Context(), row.statement, row.args...)
		require.NoError(t, err, row.statement)
	}
	young := announce(b.tenant)
	_, err = b.store.Open(t.Context(), b.tenant, underWay.ID)
	require.ErrorIs(t, err, fault.NotFound, "its bytes are not complete")

	require.NoError(t, b.store.Sweep(postgres.AsSystem(t.Context())))
	file, err := b.store.Open(t.Context(), b.tenant, stored.ID)
	require.NoError(t, err)
	kept, err := io.ReadAll(file)
	require.NoError(t, err)
	require.Equal(t, "x", string(kept))
	for name, c := range map[string]struct {
		file  storage.Attachment
		stays bool
	}{
		"never came": {never, false}, "broke off": {broken, false}, "another tenant's": {foreign, false},
		"is under way": {underWay, true}, "came": {stored, true}, "of a package": {packed, true}, "of an authorization": {attached, true}, "young": {young, true},
	} {
		_, err := b.store.Get(t.Context(), c.file.TenantID, c.file.ID)
		if c.stays {
			require.NoError(t, err, name)
		} else {
			require.ErrorIs(t, err, fault.NotFound, name)
		}
	}
	require.Equal(t, 2, b.count(t, "attachment_uploads"), "what broke off stays behind")
}

func TestTenantsAreIsolated(t *testing.T) {
	t.Parallel()
	b := setup(t)
	other := pgtest.Tenant(t, b.pool).ID
	a, err := b.store.Announce(t.Context(), b.pool, b.tenant, "x.csv", "text/csv")
	require.NoError(t, err)
	_, err = b.store.Put(t.Context(), b.tenant, a.ID, 1, bytes.NewReader([]byte("x")))
	require.NoError(t, err)
	_, err = b.store.Put(t.Context(), other, a.ID, 1, bytes.NewReader([]byte("x")))
	require.ErrorIs(t, err, fault.NotFound)
	_, err = b.store.Open(t.Context(), other, a.ID)
	require.ErrorIs(t, err, fault.NotFound)
	stored, err := b.store.Stored(t.Context(), b.pool, other, []string{a.StoredName})
	require.NoError(t, err)
	require.Empty(t, stored)
}

func TestPackagesKeepTheOrderOfTheirFiles(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var files []storage.Attachment
	for _, name := range []string{"b.csv", "a.csv"} {
		a, err := b.store.Announce(t.Context(), b.pool, b.tenant, name, "text/csv")
		require.NoError(t, err)
		a, err = b.store.Put(t.Context(), b.tenant, a.ID, 1, bytes.NewReader([]byte("x")))
		require.NoError(t, err)
		files = append(files, a)
	}
	var id uuid.UUID
	err := pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
		made, err := b.store.CreateRawPackage(t.Context(), tx, b.tenant, files)
		id = made
		return err
	})
	require.NoError(t, err)
	entries, err := b.store.Package(t.Context(), b.tenant, id)
	require.NoError(t, err)
	require.Equal(t, []string{"b.csv", "a.csv"}, []string{entries[0].FileName, entries[1].FileName})
	_, err = b.store.Package(t.Context(), pgtest.Tenant(t, b.pool).ID, id)
	require.ErrorIs(t, err, fault.NotFound)
}

func TestFilesOfAPackageShowWhenComplete(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id, err := b.store.CreatePackage(t.Context(), b.pool, b.tenant, storage.PackageOutput)
	require.NoError(t, err)
	var w *storage.Writer
	err = pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) (err error) {
		w, err = b.store.AddFile(t.Context(), tx, b.tenant, id, 0, storage.RoleResults, "results.csv", "text/csv")
		return err
	})
	require.NoError(t, err)
	_, err = w.Write(someBytes(600 << 10))
	require.NoError(t, err)
	entries, err := b.store.Package(t.Context(), b.tenant, id)
	require.NoError(t, err)
	require.Empty(t, entries)
	size, sum, err := w.Flush()
	require.NoError(t, err)
	require.EqualValues(t, 600<<10, size)
	err = pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
		won, err := w.Complete(t.Context(), tx)
		require.True(t, won)
		return errors.Join(err, b.store.SetRowCount(t.Context(), tx, b.tenant, id, 0, 7))
	})
	require.NoError(t, err)
	entries, err = b.store.Package(t.Context(), b.tenant, id)
	require.NoError(t, err)
	require.Len(t, entries, 1)
	require.Equal(t, sum, entries[0].SHA256)
	require.EqualValues(t, 7, *entries[0].RowCount)

	// A package that is given up takes everything with it.
	err = pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
		return b.store.DeletePackage(t.Context(), tx, b.tenant, id)
	})
	require.NoError(t, err)
	for _, table := range []string{"packages", "package_attachments", "attachments", "attachment_uploads", "attachment_chunks"} {
		require.Zero(t, b.count(t, table), table)
	}
	// Whoever still writes to it is told.
	_, err = w.Write(someBytes(600 << 10))
	require.ErrorIs(t, err, fault.Conflict)
}
