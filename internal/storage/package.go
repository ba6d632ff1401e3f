package storage

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"tranche/internal/fault"
	"tranche/internal/postgres"
	"tranche/queries"
)

// PackageKind says what a package holds.
type PackageKind string

// The kinds of packages.
const (
	PackageRaw    PackageKind = "raw"    // files that were uploaded for a batch
	PackageOutput PackageKind = "output" // files that a batch has written
)

// Role says what a file is to its package (decisions 6.8).
type Role string

// The roles.
const (
	RoleInput    Role = "input"
	RoleResults  Role = "results"
	RoleFailed   Role = "failed"
	RoleManifest Role = "manifest"
)

// Entry is one file of a package.
type Entry struct {
	Attachment
	Role Role
	// RowCount counts the rows of data; nil where they were not counted.
	RowCount *int32
}

// CreateRawPackage makes a package of uploaded files, in their order.
func (s *Store) CreateRawPackage(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, files []Attachment) (uuid.UUID, error) {
	id, err := s.CreatePackage(ctx, tx, tenantID, PackageRaw)
	if err != nil {
		return uuid.Nil, err
	}
	for i, file := range files {
		if err := s.addEntry(ctx, tx, tenantID, id, i, file.ID, RoleInput); err != nil {
			return uuid.Nil, err
		}
	}
	return id, nil
}

// CreatePackage makes an empty package.
func (s *Store) CreatePackage(ctx context.Context, db queries.DBTX, tenantID uuid.UUID, kind PackageKind) (uuid.UUID, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return uuid.Nil, err
	}
	err = s.q.PackageInsert(ctx, db, queries.PackageInsertParams{ID: id, TenantID: tenantID, Kind: string(kind)})
	if err != nil {
		return uuid.Nil, postgres.Translate(fmt.Errorf("make a package: %w", err))
	}
	return id, nil
}

func (s *Store) addEntry(ctx context.Context, db queries.DBTX, tenantID, packageID uuid.UUID, position int, attachmentID uuid.UUID, role Role) error {
	err := s.q.PackageAttachmentInsert(ctx, db, queries.PackageAttachmentInsertParams{
		TenantID: tenantID, PackageID: packageID, Position: int32(position), AttachmentID: attachmentID, Role: string(role),
	})
	if err != nil {
		return postgres.Translate(fmt.Errorf("add to package %s: %w", packageID, err))
	}
	return nil
}

// AddFile puts a new file into a package at a position and returns the writer
// of its bytes, which writes under ctx, once the transaction is committed. The file
// shows in the package once it is complete.
func (s *Store) AddFile(ctx context.Context, tx pgx.Tx, tenantID, packageID uuid.UUID, position int, role Role, fileName, contentType string) (*Writer, error) {
	a, err := s.Announce(ctx, tx, tenantID, fileName, contentType)
	if err != nil {
		return nil, err
	}
	if err := s.addEntry(ctx, tx, tenantID, packageID, position, a.ID, role); err != nil {
		return nil, err
	}
	return s.newWriter(ctx, tx, a)
}

// SetRowCount records how many rows of data the file at a position has.
func (s *Store) SetRowCount(ctx context.Context, tx pgx.Tx, tenantID, packageID uuid.UUID, position int, rows int32) error {
	err := s.q.PackageAttachmentSetRows(ctx, tx, queries.PackageAttachmentSetRowsParams{
		TenantID: tenantID, PackageID: packageID, Position: int32(position), RowCount: rows,
	})
	if err != nil {
		return postgres.Translate(fmt.Errorf("count the rows of package %s: %w", packageID, err))
	}
	return nil
}

// DeletePackage removes a package with its files, those too that are being
// added: who adds another finds no package.
func (s *Store) DeletePackage(ctx context.Context, tx pgx.Tx, tenantID, id uuid.UUID) error {
	if err := s.q.PackageLock(ctx, tx, queries.PackageLockParams{TenantID: tenantID, ID: id}); err != nil {
		return postgres.Translate(fmt.Errorf("lock package %s: %w", id, err))
	}
	if err := s.q.PackageDelete(ctx, tx, queries.PackageDeleteParams{TenantID: tenantID, ID: id}); err != nil {
		return postgres.Translate(fmt.Errorf("delete package %s: %w", id, err))
	}
	return nil
}

// KnownPackages says which of the packages exist.
func (s *Store) KnownPackages(ctx context.Context, db queries.DBTX, tenantID uuid.UUID, ids []uuid.UUID) (map[uuid.UUID]bool, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	found, err := s.q.PackageListExisting(ctx, db, queries.PackageListExistingParams{TenantID: tenantID, Ids: ids})
	if err != nil {
		return nil, postgres.Translate(fmt.Errorf("find packages: %w", err))
	}
	known := make(map[uuid.UUID]bool, len(found))
	for _, id := range found {
		known[id] = true
	}
	return known, nil
}

// Package returns the complete files of a package, in their order. An unknown
// package is fault.NotFound.
func (s *Store) Package(ctx context.Context, tenantID, id uuid.UUID) ([]Entry, error) {
	known, err := s.KnownPackages(ctx, s.pool, tenantID, []uuid.UUID{id})
	if err != nil {
		return nil, err
	}
	if !known[id] {
		return nil, fault.New(fault.NotFound, "there is no such package")
	}
	rows, err := s.q.PackageAttachmentList(ctx, s.pool, queries.PackageAttachmentListParams{TenantID: tenantID, PackageID: id})
	if err != nil {
		return nil, postgres.Translate(fmt.Errorf("list package %s: %w", id, err))
	}
	entries := make([]Entry, len(rows))
	for i, row := range rows {
		entries[i] = Entry{Role: Role(row.Role), RowCount: row.RowCount, Attachment: fromRow(queries.Attachment{
			ID: row.ID, TenantID: tenantID, StoredName: row.StoredName, FileName: row.FileName, ContentType: row.ContentType,
			Size: row.Size, Sha256: row.Sha256, CreatedAt: row.CreatedAt, StoredAt: row.StoredAt,
		})}
	}
	return entries, nil
}
