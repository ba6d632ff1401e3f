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
// match in all. The window's After goes with newest first only. A filter that
// nothing can match because it has control characters is fault.Invalid.
func (s *Service) List(ctx context.Context, tenantID uuid.UUID, filter Filter, sort Sort, window queries.Window) ([]*Authorization, int, error) {
	if details := filter.faults(); len(details) > 0 {
		return nil, 0, fault.InvalidRequest(details...)
	}
	db, borrower, key := queries.CustomPlan(s.Pool), queries.Optional(filter.BorrowerID), queries.Optional(filter.Key)
	search := queries.Optional(strings.ToLower(filter.Search))
	matching, err := s.q.AuthorizationCount(ctx, db, queries.AuthorizationCountParams{
		TenantID: tenantID, BorrowerID: borrower, Key: key, Search: search, CountMax: int64(window.CountMax),
	})
	if err != nil {
		return nil, 0, readError(err, "count authorizations")
	}
	total := int(matching.Total)
	if total <= window.Offset && total < window.CountMax {
		return nil, total, nil
	}
	if matching.Found != nil { // a search looks at all there is, once
		search = nil
	}
	var rows []queries.AuthorizationListNewestRow
	if sort.isNewestFirst() {
		rows, err = s.q.AuthorizationListNewest(ctx, db, queries.AuthorizationListNewestParams{
			TenantID: tenantID, BorrowerID: borrower, Key: key, Search: search, Found: matching.Found,
			Before: window.After, RowLimit: int32(window.Limit), RowOffset: int32(window.Offset),
		})
	} else {
		rows, err = s.listSorted(ctx, db, queries.AuthorizationListSortedParams{
			TenantID: tenantID, BorrowerID: borrower, Key: key, Search: search, Found: matching.Found, SortBy: sort.By, Descending: !sort.Ascending,
			RowLimit: int32(window.Limit), RowOffset: int32(window.Offset),
		})
	}
	if err != nil {
		return nil, 0, readError(err, "list authorizations")
	}
	found := make([]*Authorization, len(rows))
	for i, row := range rows {
		found[i] = fromRow(queries.AuthorizationGetRow(row))
	}
	return found, total, nil
}

func (s *Service) listSorted(ctx context.Context, db queries.DBTX, params queries.AuthorizationListSortedParams) ([]queries.AuthorizationListNewestRow, error) {
	rows, err := s.q.AuthorizationListSorted(ctx, db, params)
	same := make([]queries.AuthorizationListNewestRow, len(rows))
	for i, row := range rows {
		same[i] = queries.AuthorizationListNewestRow(row)
	}
	return same, err
}
