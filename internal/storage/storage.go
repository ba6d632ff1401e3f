// Package storage keeps the bytes of attachments in the database, the packages
// that attachments form, and the signed addresses under which they are put and
// fetched. Bytes are written once, in chunks, and seen by no one before they
// are complete; no file is ever held in memory. It must not know HTTP, nor what
// the files mean.
package storage

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"tranche/internal/fault"
	"tranche/internal/postgres"
	"tranche/queries"
)

// Limits of attachments.
const (
	// SizeMax is the greatest length of an attachment in bytes.
	SizeMax = 1 << 30
	// chunkBytes is the length of the pieces that bytes are kept in; one is in
	// memory for every upload and download.
	chunkBytes = 512 << 10
	// abandonedAfter is the age at which a file that did not come, or not as a
	// whole, is removed. Its address has expired and the slowest permitted upload
	// has ended long before; a package that is begun and not completed in that time
	// is written anew.
	abandonedAfter    = 24 * time.Hour
	extensionBytesMax = 16
	fileNameBytesMax  = 255
)

// Attachment is a file: immutable bytes under a stored name.
type Attachment struct {
	ID       uuid.UUID
	TenantID uuid.UUID
	// StoredName is what requests name it by: a UUID plus the extension.
	StoredName  string
	FileName    string
	ContentType string
	CreatedAt   time.Time
	// IsStored says that the bytes are complete; Size and SHA256 are set then.
	IsStored bool
	Size     int64
	SHA256   []byte
}

// Store keeps attachments and packages.
type Store struct {
	pool *pgxpool.Pool
	q    *queries.Queries
}

// New returns a Store on a database.
func New(pool *pgxpool.Pool) *Store {
	return &Store{pool: pool, q: queries.New()}
}

// Announce records an attachment whose bytes are still to come (Put), on db,
// which may be a transaction that does more. The stored name ends like the
// file's name.
func (s *Store) Announce(ctx context.Context, db queries.DBTX, tenantID uuid.UUID, fileName, contentType string) (Attachment, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return Attachment{}, err
	}
	a := Attachment{
		ID: id, TenantID: tenantID, StoredName: id.String() + extension(fileName),
		FileName: fileName, ContentType: contentType,
	}
	a.CreatedAt, err = s.q.AttachmentInsert(ctx, db, queries.AttachmentInsertParams{
		ID: a.ID, TenantID: a.TenantID, StoredName: a.StoredName, FileName: a.FileName, ContentType: a.ContentType,
	})
	if err != nil {
		return Attachment{}, postgres.Translate(fmt.Errorf("record an attachment: %w", err))
	}
	return a, nil
}

// What a statement of a sweep removes. An upload has its bytes with it.
const (
	sweepPartUploads = 100
	sweepPartFiles   = 10_000
)

// Sweep removes, for all tenants, what broken uploads left behind a day ago, and
// the files that were announced a day ago and never came. ctx is the system's.
func (s *Store) Sweep(ctx context.Context) error {
	age := abandonedAfter.Seconds()
	err := postgres.InPages(sweepPartUploads, func(uploadsMax int32) (int64, error) {
		return s.q.SysAttachmentUploadDeleteAbandoned(ctx, s.pool, queries.SysAttachmentUploadDeleteAbandonedParams{OlderThanSeconds: age, UploadsMax: uploadsMax})
	})
	if err != nil {
		return fmt.Errorf("remove abandoned uploads: %w", err)
	}
	err = postgres.InPages(sweepPartFiles, func(filesMax int32) (int64, error) {
		return s.q.SysAttachmentDeleteAbandoned(ctx, s.pool, queries.SysAttachmentDeleteAbandonedParams{OlderThanSeconds: age, FilesMax: filesMax})
	})
	if err != nil {
		return fmt.Errorf("remove announced files: %w", err)
	}
	return nil
}

// CheckFileName says what is wrong with the name of a file that somebody sends,
// which others save under it; empty if nothing is.
func CheckFileName(name string) (reason string) {
	switch {
	case strings.TrimSpace(name) == "":
		return "must not be empty"
	case len(name) > fileNameBytesMax:
		return "has at most 255 bytes"
	case !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl):
		return "must not contain control characters"
	case strings.ContainsAny(name, `/\`):
		return "must be a name without directories"
	default:
		return ""
	}
}

// extension returns the end of a file's name from its last dot on, or from the
// one before where the last is .gz: .csv, .csv.gz. It is made of lower-case
// letters, digits and dots, or empty.
func extension(fileName string) string {
	name := strings.ToLower(fileName)
	ext := path.Ext(name)
	if ext == ".gz" {
		ext = path.Ext(strings.TrimSuffix(name, ext)) + ext
	}
	plain := func(r rune) bool { return r == '.' || r >= 'a' && r <= 'z' || r >= '0' && r <= '9' }
	if len(ext) > extensionBytesMax || strings.ContainsFunc(ext, func(r rune) bool { return !plain(r) }) {
		return ""
	}
	return ext
}

// Get returns an attachment whether or not its bytes are complete. An unknown
// one is fault.NotFound.
func (s *Store) Get(ctx context.Context, tenantID, id uuid.UUID) (Attachment, error) {
	row, err := s.q.AttachmentGet(ctx, s.pool, queries.AttachmentGetParams{TenantID: tenantID, ID: id})
	if errors.Is(err, pgx.ErrNoRows) {
		return Attachment{}, errUnknown()
	}
	if err != nil {
		return Attachment{}, postgres.Translate(fmt.Errorf("get attachment %s: %w", id, err))
	}
	return fromRow(row), nil
}

func errUnknown() error { return fault.New(fault.NotFound, "there is no such attachment") }

// Stored returns those of the named attachments whose bytes are complete, by
// their stored names. Unknown names are absent.
func (s *Store) Stored(ctx context.Context, db queries.DBTX, tenantID uuid.UUID, storedNames []string) (map[string]Attachment, error) {
	if len(storedNames) == 0 {
		return nil, nil
	}
	rows, err := s.q.AttachmentListStored(ctx, db, queries.AttachmentListStoredParams{TenantID: tenantID, StoredNames: storedNames})
	if err != nil {
		return nil, postgres.Translate(fmt.Errorf("find attachments: %w", err))
	}
	found := make(map[string]Attachment, len(rows))
	for _, row := range rows {
		found[row.StoredName] = fromRow(row)
	}
	return found, nil
}

// Delete removes an attachment and its bytes, on db, which may be a transaction
// that does more. One that is part of a package cannot be removed; one that does
// not exist is no error.
func (s *Store) Delete(ctx context.Context, db queries.DBTX, tenantID, id uuid.UUID) error {
	if err := s.q.AttachmentDelete(ctx, db, queries.AttachmentDeleteParams{TenantID: tenantID, ID: id}); err != nil {
		return postgres.Translate(fmt.Errorf("delete attachment %s: %w", id, err))
	}
	return nil
}

func fromRow(row queries.Attachment) Attachment {
	a := Attachment{
		ID: row.ID, TenantID: row.TenantID, StoredName: row.StoredName, FileName: row.FileName,
		ContentType: row.ContentType, CreatedAt: row.CreatedAt, IsStored: row.StoredAt != nil, SHA256: row.Sha256,
	}
	if row.Size != nil {
		a.Size = *row.Size
	}
	return a
}
