package consent

import (
	"context"
	"strings"
	"unicode"

	"github.com/google/uuid"

	"tranche/internal/fault"
	"tranche/queries"
)

// Filter filters a list. An empty member does not filter.
type Filter struct {
	BorrowerID string
	Key        string
	// Search is a case-insensitive substring of key, label, identityValue, borrowerId,
	// externalId or a tag.
	Search string
}

// Sort is the order of a list. The zero Sort is newest first.
type Sort struct {
	// By is createdAt, updatedAt, expiresAt, authorizedAt, key or label.
	By        string
	Ascending bool
}

func (s Sort) isNewestFirst() bool { return (s.By == "" || s.By == "createdAt") && !s.Ascending }

// faults returns the faults of the filter. Control characters are invalid because one of
// them separates the fields of the search text.
func (f *Filter) faults() (details []fault.Detail) {
	for _, part := range []field{{"borrower-id", f.BorrowerID}, {"key", f.Key}, {"search", f.Search}} {
		if strings.ContainsFunc(part.text, unicode.IsControl) {
			details = append(details, fault.Detail{Field: part.name, Message: "must not contain control characters"})
		}
	}
	return details
}

// List returns the matching authorizations within a window, and the number of all
// matches. The window's After requires the order newest first. A filter with control
// characters is fault.Invalid.
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
	if matching.Found != nil { // the count has already searched all rows
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
