package consent

import (
	"context"
	"encoding/hex"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"tranche/internal/fault"
	"tranche/internal/postgres"
	"tranche/internal/storage"
	"tranche/queries"
)

// attachmentsMax is the most files of one authorization.
const attachmentsMax = 20

// contentType returns the media type for the extension of a file name.
func contentType(fileName string) (string, error) {
	if reason := storage.CheckFileName(fileName); reason != "" {
		return "", fault.InvalidRequest(fault.Detail{Field: "fileName", Message: reason})
	}
	switch strings.ToLower(path.Ext(fileName)) {
	case ".pdf":
		return "application/pdf", nil
	case ".png":
		return "image/png", nil
	case ".jpg", ".jpeg":
		return "image/jpeg", nil
	case ".tif", ".tiff":
		return "image/tiff", nil
	case ".txt":
		return "text/plain", nil
	default:
		return "", fault.InvalidRequest(fault.Detail{Field: "fileName", Message: "must end in .pdf, .png, .jpg, .jpeg, .tif, .tiff or .txt"})
	}
}

// Attach announces a file of an unsigned authorization. The caller uploads its bytes
// before it requests a code. An open code is superseded.
func (s *Service) Attach(ctx context.Context, tenantID, authorizationID uuid.UUID, actor Actor, fileName string) (file storage.Attachment, err error) {
	err = postgres.InTx(ctx, s.Pool, func(tx pgx.Tx) error {
		if _, err := s.lockUnsigned(ctx, tx, tenantID, authorizationID, "changed"); err != nil {
			return err
		}
		kind, err := contentType(fileName)
		if err != nil {
			return err
		}
		count, err := s.q.AuthorizationAttachmentCount(ctx, tx, queries.AuthorizationAttachmentCountParams{TenantID: tenantID, AuthorizationID: authorizationID})
		if err != nil {
			return fmt.Errorf("count the attachments of authorization %s: %w", authorizationID, err)
		}
		if count >= attachmentsMax {
			return fault.New(fault.Conflict, "an authorization can have at most %d attachments", attachmentsMax)
		}
		if file, err = s.Store.Announce(ctx, tx, tenantID, fileName, kind); err != nil {
			return err
		}
		err = s.q.AuthorizationAttachmentInsert(ctx, tx, queries.AuthorizationAttachmentInsertParams{
			TenantID: tenantID, AuthorizationID: authorizationID, AttachmentID: file.ID,
		})
		if err != nil {
			return fmt.Errorf("attach %s to authorization %s: %w", file.ID, authorizationID, err)
		}
		content := map[string]any{"attachmentId": file.ID.String(), "fileName": fileName, "contentType": kind, "by": actor.content()}
		if err := s.supersedeTx(ctx, tx, tenantID, authorizationID, content); err != nil {
			return err
		}
		return s.appendTx(ctx, tx, tenantID, authorizationID, KindAttachmentAnnounced, content)
	})
	return file, err
}

// closeAttachmentsTx withdraws incomplete files and returns the evidence of the others. A
// running upload fails because its attachment no longer exists. An upload that has just
// completed is among the others.
func (s *Service) closeAttachmentsTx(ctx context.Context, tx pgx.Tx, tenantID, authorizationID uuid.UUID) ([]map[string]any, error) {
	err := s.q.AuthorizationAttachmentDeleteUnstored(ctx, tx, queries.AuthorizationAttachmentDeleteUnstoredParams{TenantID: tenantID, AuthorizationID: authorizationID})
	if err != nil {
		return nil, fmt.Errorf("withdraw incomplete uploads of authorization %s: %w", authorizationID, err)
	}
	files, err := s.q.AuthorizationAttachmentList(ctx, tx, queries.AuthorizationAttachmentListParams{TenantID: tenantID, AuthorizationID: authorizationID})
	if err != nil {
		return nil, fmt.Errorf("list the attachments of authorization %s: %w", authorizationID, err)
	}
	attached := make([]map[string]any, len(files))
	for i, f := range files {
		attached[i] = map[string]any{"attachmentId": f.ID.String(), "fileName": f.FileName, "sha256": hex.EncodeToString(f.Sha256)}
	}
	return attached, nil
}

// Attachments returns the complete files of an authorization.
func (s *Service) Attachments(ctx context.Context, tenantID, authorizationID uuid.UUID) ([]storage.Attachment, error) {
	if _, err := s.Get(ctx, tenantID, authorizationID); err != nil {
		return nil, err
	}
	rows, err := s.q.AuthorizationAttachmentList(ctx, s.Pool, queries.AuthorizationAttachmentListParams{TenantID: tenantID, AuthorizationID: authorizationID})
	if err != nil {
		return nil, readError(err, "list the attachments of authorization %s", authorizationID)
	}
	names := make([]string, len(rows))
	for i, row := range rows {
		names[i] = row.StoredName
	}
	stored, err := s.Store.Stored(ctx, s.Pool, tenantID, names)
	if err != nil {
		return nil, err
	}
	files := make([]storage.Attachment, 0, len(names))
	for _, name := range names {
		if file, ok := stored[name]; ok { // otherwise it was just deleted
			files = append(files, file)
		}
	}
	return files, nil
}

// Attachment returns one complete file of an authorization.
func (s *Service) Attachment(ctx context.Context, tenantID, authorizationID, attachmentID uuid.UUID) (storage.Attachment, error) {
	files, err := s.Attachments(ctx, tenantID, authorizationID)
	if err != nil {
		return storage.Attachment{}, err
	}
	for _, file := range files {
		if file.ID == attachmentID {
			return file, nil
		}
	}
	return storage.Attachment{}, errUnknownAttachment()
}

func errUnknownAttachment() error { return fault.New(fault.NotFound, "there is no such attachment") }

// Detach removes a complete or incomplete file from an unsigned authorization. An open
// code is superseded.
func (s *Service) Detach(ctx context.Context, tenantID, authorizationID, attachmentID uuid.UUID, actor Actor) error {
	return postgres.InTx(ctx, s.Pool, func(tx pgx.Tx) error {
		if _, err := s.lockUnsigned(ctx, tx, tenantID, authorizationID, "changed"); err != nil {
			return err
		}
		all, err := s.q.AuthorizationAttachmentListAll(ctx, tx, queries.AuthorizationAttachmentListAllParams{TenantID: tenantID, AuthorizationID: authorizationID})
		if err != nil {
			return fmt.Errorf("list the attachments of authorization %s: %w", authorizationID, err)
		}
		if !slices.Contains(all, attachmentID) {
			return errUnknownAttachment()
		}
		if err := s.Store.Delete(ctx, tx, tenantID, attachmentID); err != nil {
			return err
		}
		content := map[string]any{"attachmentId": attachmentID.String(), "by": actor.content()}
		if err := s.supersedeTx(ctx, tx, tenantID, authorizationID, content); err != nil {
			return err
		}
		return s.appendTx(ctx, tx, tenantID, authorizationID, KindAttachmentRemoved, content)
	})
}
