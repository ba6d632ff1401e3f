package storage

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/google/uuid"

	"tranche/internal/fault"
	"tranche/internal/postgres"
	"tranche/queries"
)

// Writer writes the bytes of one attachment, with one statement per chunk. Complete makes
// them visible as the bytes of the attachment.
type Writer struct {
	ctx        context.Context // for all writes; io.Writer has no parameter for it
	store      *Store
	attachment Attachment
	uploadID   uuid.UUID
	buffer     []byte
	position   int32
	size       int64
	hash       hash.Hash
}

// newWriter begins an upload of an attachment on db.
func (s *Store) newWriter(ctx context.Context, db queries.DBTX, a Attachment) (*Writer, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return nil, err
	}
	n, err := s.q.AttachmentUploadInsert(ctx, db, queries.AttachmentUploadInsertParams{
		ID: id, TenantID: a.TenantID, AttachmentID: a.ID, ChunkBytes: chunkBytes,
	})
	if err != nil {
		return nil, postgres.Translate(fmt.Errorf("begin upload of attachment %s: %w", a.ID, err))
	}
	if n == 0 {
		return nil, errUnknown()
	}
	return &Writer{ctx: ctx, store: s, attachment: a, uploadID: id, hash: sha256.New()}, nil
}

// Write buffers bytes and stores every full chunk.
func (w *Writer) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		part := p[:min(len(p), chunkBytes-len(w.buffer))]
		w.buffer = append(w.buffer, part...)
		p = p[len(part):]
		if len(w.buffer) == chunkBytes {
			if err := w.flush(); err != nil {
				return 0, err
			}
		}
	}
	return n, nil
}

func (w *Writer) flush() error {
	if len(w.buffer) == 0 {
		return nil
	}
	w.hash.Write(w.buffer)
	n, err := w.store.q.AttachmentChunkInsert(w.ctx, w.store.pool, queries.AttachmentChunkInsertParams{
		TenantID: w.attachment.TenantID, UploadID: w.uploadID, Position: w.position, Data: w.buffer,
	})
	if err != nil {
		return postgres.Translate(fmt.Errorf("store chunk %d of attachment %s: %w", w.position, w.attachment.ID, err))
	}
	if n == 0 {
		return fault.New(fault.Conflict, "the upload took too long, or the attachment was deleted in the meantime; nothing was stored")
	}
	w.size += int64(len(w.buffer))
	w.position++
	w.buffer = w.buffer[:0]
	return nil
}

// Complete stores the last chunk and makes the bytes visible as those of the attachment.
// db may be the caller's transaction. Complete returns false if another writer was first;
// the caller must then call Discard.
func (w *Writer) Complete(ctx context.Context, db queries.DBTX) (bool, error) {
	if err := w.flush(); err != nil {
		return false, err
	}
	n, err := w.store.q.AttachmentUploadComplete(ctx, db, queries.AttachmentUploadCompleteParams{
		TenantID: w.attachment.TenantID, AttachmentID: w.attachment.ID, UploadID: w.uploadID,
		Size: w.size, Sha256: w.hash.Sum(nil),
	})
	if err != nil {
		return false, postgres.Translate(fmt.Errorf("complete attachment %s: %w", w.attachment.ID, err))
	}
	return n == 1, nil
}

// Flush stores the buffer as the last chunk and returns the length and the SHA-256 of all
// bytes. The caller must not write after Flush.
func (w *Writer) Flush() (size int64, sum []byte, err error) {
	err = w.flush()
	return w.size, w.hash.Sum(nil), err
}

// Discard deletes the chunks of an incomplete upload. It also works if ctx has ended.
func (w *Writer) Discard(ctx context.Context) error {
	err := w.store.q.AttachmentUploadDelete(context.WithoutCancel(ctx), w.store.pool, queries.AttachmentUploadDeleteParams{
		TenantID: w.attachment.TenantID, ID: w.uploadID,
	})
	if err != nil {
		return postgres.Translate(fmt.Errorf("discard an upload of attachment %s: %w", w.attachment.ID, err))
	}
	return nil
}

// Put stores the bytes of an attachment. The first complete Put wins, and its bytes are
// immutable. Another Put of the same bytes succeeds; other bytes are fault.Conflict. If
// the source ends before length bytes, Put stores nothing and returns fault.Invalid.
// Other errors of the source are returned unchanged.
func (s *Store) Put(ctx context.Context, tenantID, id uuid.UUID, length int64, source io.Reader) (Attachment, error) {
	a, err := s.Get(ctx, tenantID, id)
	if err != nil {
		return Attachment{}, err
	}
	if length > SizeMax {
		return Attachment{}, fault.New(fault.TooLarge, "an attachment must have at most %d bytes", int64(SizeMax))
	}
	if a.IsStored {
		return a, same(a, length, source)
	}
	w, err := s.newWriter(ctx, s.pool, a)
	if err != nil {
		return Attachment{}, err
	}
	won, err := w.put(length, source)
	if err != nil || !won {
		err = errors.Join(err, w.Discard(ctx))
	}
	if err != nil {
		return Attachment{}, err
	}
	if a, err = s.Get(ctx, tenantID, id); err != nil {
		return Attachment{}, err
	}
	if !won && !bytes.Equal(a.SHA256, w.hash.Sum(nil)) {
		return Attachment{}, immutable()
	}
	return a, nil
}

func (w *Writer) put(length int64, source io.Reader) (won bool, err error) {
	n, err := io.Copy(w, io.LimitReader(source, length))
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return false, err
	}
	if n < length {
		return false, short()
	}
	return w.Complete(w.ctx, w.store.pool)
}

// same returns an error unless the source has the bytes of the attachment.
func same(a Attachment, length int64, source io.Reader) error {
	if length != a.Size {
		return immutable()
	}
	h := sha256.New()
	n, err := io.Copy(h, io.LimitReader(source, length))
	switch {
	case err != nil && !errors.Is(err, io.ErrUnexpectedEOF):
		return err
	case n < length:
		return short()
	case !bytes.Equal(h.Sum(nil), a.SHA256):
		return immutable()
	}
	return nil
}

func short() error {
	return fault.New(fault.Invalid, "the body is shorter than its Content-Length; nothing was stored")
}

func immutable() error {
	return fault.New(fault.Conflict, "the attachment was uploaded with other bytes and cannot be changed; request another upload address")
}
