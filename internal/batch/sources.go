package batch

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"tranche/internal/fault"
	"tranche/internal/itemfile"
	"tranche/internal/storage"
)

// ContentType returns the content type with which a file of this name is uploaded. If the
// name is not valid or has no known format, the error is fault.Invalid with a detail for
// fileName.
func ContentType(fileName string) (string, error) {
	if reason := storage.CheckFileName(fileName); reason != "" {
		return "", fault.New(fault.Invalid, "the file name is not valid").
			WithDetails(fault.Detail{Field: "fileName", Message: reason})
	}
	return itemfile.ContentType(fileName)
}

// CheckSources checks the files and packages that the request names. Its errors are those of
// Start.
func (s *Service) CheckSources(ctx context.Context, tx pgx.Tx, r Request) error {
	if _, err := s.findPackages(ctx, tx, &r); err != nil {
		return err
	}
	_, err := s.findFiles(ctx, tx, &r)
	return err
}

// packFiles creates a package of the files that the request names.
func (s *Service) packFiles(ctx context.Context, tx pgx.Tx, r *Request) (*uuid.UUID, error) {
	if len(r.Files) == 0 {
		return nil, nil
	}
	files, err := s.findFiles(ctx, tx, r)
	if err != nil {
		return nil, err
	}
	id, err := s.Store.CreateRawPackage(ctx, tx, r.TenantID, files)
	return &id, err
}

// findFiles reads the records of the files that the request names.
func (s *Service) findFiles(ctx context.Context, tx pgx.Tx, r *Request) ([]storage.Attachment, error) {
	stored, err := s.Store.Stored(ctx, tx, r.TenantID, r.Files)
	if err != nil {
		return nil, err
	}
	files := make([]storage.Attachment, len(r.Files))
	var unknown, unreadable []fault.Detail
	for i, name := range r.Files {
		field := fmt.Sprintf("attachmentFileNames[%d]", i)
		file, ok := stored[name]
		if !ok {
			unknown = append(unknown, fault.Detail{Field: field, Message: "names no uploaded file"})
		} else if _, err := itemfile.ContentType(file.FileName); err != nil {
			unreadable = append(unreadable, fault.Detail{Field: field, Message: "names a file of a format from which no items can be read"})
		}
		files[i] = file
	}
	if len(unknown) > 0 {
		return nil, fault.New(fault.NotFound, "there is no such file").WithDetails(unknown...)
	}
	if len(unreadable) > 0 {
		return nil, fault.InvalidRequest(unreadable...)
	}
	return files, nil
}

// findPackages reads the ids of the packages that the request names.
func (s *Service) findPackages(ctx context.Context, tx pgx.Tx, r *Request) ([]uuid.UUID, error) {
	ids := make([]uuid.UUID, len(r.Packages))
	for i, text := range r.Packages {
		if id, err := uuid.Parse(text); err == nil && id.String() == text {
			ids[i] = id // else it stays the nil id, which no package has
		}
	}
	known, err := s.Store.KnownPackages(ctx, tx, r.TenantID, ids)
	if err != nil {
		return nil, err
	}
	var unknown []fault.Detail
	for i, id := range ids {
		if !known[id] {
			unknown = append(unknown, fault.Detail{Field: fmt.Sprintf("workflowInput.rawPackageIds[%d]", i), Message: "names no package"})
		}
	}
	if len(unknown) > 0 {
		return nil, fault.New(fault.NotFound, "there is no such package").WithDetails(unknown...)
	}
	return ids, nil
}
