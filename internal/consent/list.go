package consent

import (
	"context"
	"strings"
	"unicode"

	"github.com/google/uuid"

	"tranche/internal/fault"
	"tranche/queries"
)

// Filter narrows a list; empty members do not.
type Filter struct {
	BorrowerID string
	Key        string
	// Search is matched without regard to case anywhere in key, label,
	// identityValue, borrowerId, externalId and the tags.
	Search string
}

// Sort is the order of a list; the zero Sort is newest first.
type Sort struct {
	// By is createdAt, updatedAt, expiresAt, authorizedAt, key or label.
	By        string
	Ascending bool
}

func (s Sort) isNewestFirst() bool { return (s.By == "" || s.By == "createdAt") && !s.Ascending }

// Window says which part of a list to read.
type Window struct {
	// Before is the id that the part comes after; uuid.Nil begins at the newest.
	// It goes with newest first only.
	Before uuid.UUID
	Offset int
	Limit  int
}

// faults are what is wrong with the filter: control characters stand between
// the fields that a search looks through.
func (f *Filter) faults() (details []fault.Detail) {
	for _, part := range []field{{"borrower-id", f.BorrowerID}, {"key", f.Key}, {"search", f.Search}} {
		if strings.ContainsFunc(part.text, unicode.IsControl) {
			details = append(details, fault.Detail{Field: part.name, Message: "must not have control characters"})
		}
	}
	return details
}

// List returns the authorizations of the tenant within a window, and how many
// match in all, counted up to countMax. A filter that nothing can match because
// it has control characters is fault.Invalid.
func (s *Service) List(ctx context.Context, tenantID uuid.UUID, filter Filter, sort Sort, window Window, countMax int) ([]*Authorization, int, error) {
	if details := filter.faults(); len(details) > 0 {
		return nil, 0, fault.New(fault.Invalid, "the request is invalid").WithDetails(details...)
	}
	borrower, key := optional(filter.BorrowerID), optional(filter.Key)
	search := optional(strings.ToLower(filter.Search))
	var rows []queries.AuthorizationListNewestRow
	var err error
	if sort.isNewestFirst() {
		params := queries.AuthorizationListNewestParams{
			TenantID: tenantID, BorrowerID: borrower, Key: key, Search: search,
			RowLimit: int32(window.Limit), RowOffset: int32(window.Offset),
		}
		if window.Before != uuid.Nil {
			params.Before = &window.Before
		}
		rows, err = s.q.AuthorizationListNewest(ctx, s.Pool, params)
	} else {
		rows, err = s.listSorted(ctx, queries.AuthorizationListSortedParams{
			TenantID: tenantID, BorrowerID: borrower, Key: key, Search: search, SortBy: sort.By, Descending: !sort.Ascending,
			RowLimit: int32(window.Limit), RowOffset: int32(window.Offset),
		})
	}
	if err != nil {
		return nil, 0, readError(err, "list authorizations")
	}
	total, err := s.q.AuthorizationCount(ctx, s.Pool, queries.AuthorizationCountParams{
		TenantID: tenantID, BorrowerID: borrower, Key: key, Search: search, CountMax: int64(countMax),
	})
	if err != nil {
		return nil, 0, readError(err, "count authorizations")
	}
	found := make([]*Authorization, len(rows))
	for i, row := range rows {
		found[i] = fromRow(queries.AuthorizationGetRow(row))
	}
	return found, int(total), nil
}

func (s *Service) listSorted(ctx context.Context, params queries.AuthorizationListSortedParams) ([]queries.AuthorizationListNewestRow, error) {
	if params.SortBy == "" {
		params.SortBy = "createdAt"
	}
	rows, err := s.q.AuthorizationListSorted(ctx, s.Pool, params)
	same := make([]queries.AuthorizationListNewestRow, len(rows))
	for i, row := range rows {
		same[i] = queries.AuthorizationListNewestRow(row)
	}
	return same, err
}
