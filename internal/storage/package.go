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

// PackageKind is the kind of the files in a package.
type PackageKind string

// The kinds of packages.
const (
	PackageRaw    PackageKind = "raw"    // uploaded files of a batch
	PackageOutput PackageKind = "output" // result files of a batch
)

// Role is the role of a file in its package (contract 6.8).
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
	// RowCount is the number of rows of data. Nil means that it is not known.
	RowCount *int32
}

// CreateRawPackage creates a package of uploaded files and keeps their order.
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

// CreatePackage creates an empty package.
func (s *Store) CreatePackage(ctx context.Context, db queries.DBTX, tenantID uuid.UUID, kind PackageKind) (uuid.UUID, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return uuid.Nil, err
	}
	err = s.q.PackageInsert(ctx, db, queries.PackageInsertParams{ID: id, TenantID: tenantID, Kind: string(kind)})
	if err != nil {
		return uuid.Nil, postgres.Translate(fmt.Errorf("create a package: %w", err))
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

// AddFile adds a new file to a package at a position and returns a writer for its bytes.
// The writer uses ctx, and may be used after the transaction has committed. The file is
// visible in the package when it is complete.
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

// SetRowCount records the number of rows of data in the file at a position.
func (s *Store) SetRowCount(ctx context.Context, tx pgx.Tx, tenantID, packageID uuid.UUID, position int, rows int32) error {
	err := s.q.PackageAttachmentSetRows(ctx, tx, queries.PackageAttachmentSetRowsParams{
		TenantID: tenantID, PackageID: packageID, Position: int32(position), RowCount: rows,
	})
	if err != nil {
		return postgres.Translate(fmt.Errorf("record the row count of package %s: %w", packageID, err))
	}
	return nil
}

// DeletePackage deletes a package with its files. It waits for transactions that add
// files; later ones find no package.
func (s *Store) DeletePackage(ctx context.Context, tx pgx.Tx, tenantID, id uuid.UUID) error {
	if err := s.q.PackageLock(ctx, tx, queries.PackageLockParams{TenantID: tenantID, ID: id}); err != nil {
		return postgres.Translate(fmt.Errorf("lock package %s: %w", id, err))
	}
	if err := s.q.PackageDelete(ctx, tx, queries.PackageDeleteParams{TenantID: tenantID, ID: id}); err != nil {
		return postgres.Translate(fmt.Errorf("delete package %s: %w", id, err))
	}
	return nil
}

// KnownPackages reports which of the packages exist.
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

// Package returns the complete files of a package in order. An unknown package is
// fault.NotFound.
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
