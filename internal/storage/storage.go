// Package storage stores attachments and packages of attachments in the database, and
// signs the addresses for their upload and download. The bytes of an attachment are
// written once, in chunks, and are visible when they are complete. A file is never in
// memory as a whole. The package must not know HTTP or the meaning of the files.
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
	// chunkBytes is the length of a stored chunk. Every upload and download has one chunk
	// in memory.
	chunkBytes = 512 << 10
	// abandonedAfter is the age at which an incomplete file is deleted. Its address has
	// expired and the slowest permitted upload has ended long before. A package that is
	// not complete after that time is written again.
	abandonedAfter    = 24 * time.Hour
	extensionBytesMax = 16
	fileNameBytesMax  = 255
)

// Attachment is a file: immutable bytes under a stored name.
type Attachment struct {
	ID       uuid.UUID
	TenantID uuid.UUID
	// StoredName is its name in requests: a UUID plus the extension.
	StoredName  string
	FileName    string
	ContentType string
	CreatedAt   time.Time
	// IsStored says that the bytes are complete. Then Size and SHA256 are set.
	IsStored bool
	Size     int64
	SHA256   []byte
}

// Store stores attachments and packages.
type Store struct {
	pool *pgxpool.Pool
	q    *queries.Queries
}

// New returns a Store on a database.
func New(pool *pgxpool.Pool) *Store {
	return &Store{pool: pool, q: queries.New()}
}

// Announce records an attachment; Put stores its bytes later. db may be the caller's
// transaction. The stored name has the extension of the file's name.
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

// Limits of one statement of a sweep. Deleting an upload deletes its bytes too.
const (
	sweepPartUploads = 100
	sweepPartFiles   = 10_000
)

// Sweep deletes incomplete uploads and announced files without bytes that are older than
// a day, for all tenants. ctx must be that of the system.
func (s *Store) Sweep(ctx context.Context) error {
	age := abandonedAfter.Seconds()
	err := postgres.InPages(sweepPartUploads, func(uploadsMax int32) (int64, error) {
		return s.q.SysAttachmentUploadDeleteAbandoned(ctx, s.pool, queries.SysAttachmentUploadDeleteAbandonedParams{OlderThanSeconds: age, UploadsMax: uploadsMax})
	})
	if err != nil {
		return fmt.Errorf("delete abandoned uploads: %w", err)
	}
	err = postgres.InPages(sweepPartFiles, func(filesMax int32) (int64, error) {
		return s.q.SysAttachmentDeleteAbandoned(ctx, s.pool, queries.SysAttachmentDeleteAbandonedParams{OlderThanSeconds: age, FilesMax: filesMax})
	})
	if err != nil {
		return fmt.Errorf("delete announced files: %w", err)
	}
	return nil
}

// CheckFileName returns the reason for which a caller's file name is invalid, or an empty
// text. Other people save the file under this name.
func CheckFileName(name string) (reason string) {
	switch {
	case strings.TrimSpace(name) == "":
		return "must not be empty"
	case len(name) > fileNameBytesMax:
		return "must have at most 255 bytes"
	case !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl):
		return "must not contain control characters"
	case strings.ContainsAny(name, `/\`):
		return "must be a name without directories"
	default:
		return ""
	}
}

// extension returns the extension of a file name, such as .csv or .csv.gz. It has
// lower-case letters, digits and dots only, or is empty.
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

// Get returns an attachment; its bytes may be incomplete. An unknown attachment is
// fault.NotFound.
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

// Stored returns the named attachments whose bytes are complete, by stored name. The
// result omits unknown names.
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

// Delete deletes an attachment and its bytes. db may be the caller's transaction. An
// attachment in a package cannot be deleted. An unknown attachment is no error.
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
