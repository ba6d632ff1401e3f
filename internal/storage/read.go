package storage

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"tranche/internal/postgres"
	"tranche/queries"
)

// File reads the bytes of an attachment from any offset, one chunk at a time. It is an
// io.ReadSeeker for one goroutine.
type File struct {
	Attachment
	ctx        context.Context // for all reads; io.Reader has no parameter for it
	store      *Store
	uploadID   uuid.UUID
	chunkBytes int64
	offset     int64
	// chunk is the chunk at offset chunkAt*chunkBytes. It is nil before the first read.
	chunk   []byte
	chunkAt int64
}

// Open returns a reader of the bytes of an attachment. All reads use ctx. An unknown or
// incomplete attachment is fault.NotFound.
func (s *Store) Open(ctx context.Context, tenantID, id uuid.UUID) (*File, error) {
	a, err := s.Get(ctx, tenantID, id)
	if err != nil {
		return nil, err
	}
	upload, err := s.q.AttachmentUploadGetComplete(ctx, s.pool, queries.AttachmentUploadGetCompleteParams{TenantID: tenantID, AttachmentID: id})
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, errUnknown()
	}
	if err != nil {
		return nil, postgres.Translate(fmt.Errorf("open attachment %s: %w", id, err))
	}
	return &File{Attachment: a, ctx: ctx, store: s, uploadID: upload.ID, chunkBytes: int64(upload.ChunkBytes)}, nil
}

// Read implements io.Reader.
func (f *File) Read(p []byte) (int, error) {
	if f.offset >= f.Size {
		return 0, io.EOF
	}
	if at := f.offset / f.chunkBytes; f.chunk == nil || at != f.chunkAt {
		data, err := f.store.q.AttachmentChunkGet(f.ctx, f.store.pool, queries.AttachmentChunkGetParams{
			TenantID: f.TenantID, UploadID: f.uploadID, Position: int32(at),
		})
		if err != nil {
			return 0, postgres.Translate(fmt.Errorf("read chunk %d of attachment %s: %w", at, f.ID, err))
		}
		f.chunk, f.chunkAt = data, at
	}
	within := f.offset - f.chunkAt*f.chunkBytes
	if within >= int64(len(f.chunk)) {
		return 0, fmt.Errorf("chunk %d of attachment %s is shorter than recorded", f.chunkAt, f.ID)
	}
	n := copy(p, f.chunk[within:])
	f.offset += int64(n)
	return n, nil
}

// Seek implements io.Seeker. It makes no query.
func (f *File) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekStart:
	case io.SeekCurrent:
		offset += f.offset
	case io.SeekEnd:
		offset += f.Size
	default:
		return 0, fmt.Errorf("seek: unknown whence %d", whence)
	}
	if offset < 0 {
		return 0, errors.New("seek: before the beginning")
	}
	f.offset = offset
	return offset, nil
}
