package identity

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"tranche/internal/audit"
	"tranche/internal/fault"
	"tranche/internal/postgres"
	"tranche/queries"
)

// LimitCategory is a group of operations that share one rate limit (contract 1.12).
type LimitCategory string

// The categories.
const (
	LimitManagement     LimitCategory = "management"
	LimitSingle         LimitCategory = "single"
	LimitBatch          LimitCategory = "batch"
	LimitPolling        LimitCategory = "polling"
	LimitAuthorizations LimitCategory = "authorizations"
)

const (
	// Unlimited is the PerMinute of a category without a limit.
	Unlimited         = 0
	unlimitedText     = "unlimited"
	limitPerMinuteMax = 1_000_000
)

// Limit is the number of requests of a category that a tenant may make in any 60 s.
type Limit struct {
	Category  LimitCategory
	PerMinute int // Unlimited or more than 0
}

// String returns the number, or "unlimited".
func (l Limit) String() string {
	if l.PerMinute == Unlimited {
		return unlimitedText
	}
	return strconv.Itoa(l.PerMinute)
}

// DefaultLimits returns the limits of a tenant without limits of its own (contract A.8, 1.12).
func DefaultLimits() []Limit {
	return []Limit{{LimitManagement, 100}, {LimitSingle, 50}, {LimitBatch, 10}, {LimitPolling, 200}, {LimitAuthorizations, 100}}
}

// ParseLimit reads the name of a category and a number or "unlimited", as an operator
// writes them. It returns fault.Invalid for anything else.
func ParseLimit(category, perMinute string) (Limit, error) {
	limit := Limit{Category: LimitCategory(category)}
	if !slices.ContainsFunc(DefaultLimits(), func(l Limit) bool { return l.Category == limit.Category }) {
		return Limit{}, fault.New(fault.Invalid,
			"there is no such category; the categories are management, single, batch, polling, authorizations")
	}
	if perMinute == unlimitedText {
		return limit, nil
	}
	number, err := strconv.Atoi(perMinute)
	if err != nil || number < 1 || number > limitPerMinuteMax {
		return Limit{}, fault.New(fault.Invalid,
			"the limit of %s must be a whole number from 1 to %d, or %s", category, limitPerMinuteMax, unlimitedText)
	}
	limit.PerMinute = number
	return limit, nil
}

// SetLimits sets a tenant's limits for the given categories in one transaction.
func SetLimits(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, limits []Limit) error {
	for _, limit := range limits {
		params := queries.TenantLimitSetParams{TenantID: tenantID, Category: string(limit.Category)}
		if limit.PerMinute != Unlimited {
			number := int32(limit.PerMinute)
			params.PerMinute = &number
		}
		if err := queries.New().TenantLimitSet(ctx, tx, params); err != nil {
			return fmt.Errorf("set limit %s of tenant %s: %w", limit.Category, tenantID, err)
		}
	}
	if len(limits) == 0 {
		return nil
	}
	return audit.RecordTx(ctx, tx, tenantID, audit.TenantLimits, tenantID.String())
}

// Limits returns a tenant's limit for every category, its own or the default.
func Limits(ctx context.Context, db queries.DBTX, tenantID uuid.UUID) ([]Limit, error) {
	rows, err := queries.New().TenantLimitList(ctx, db, tenantID)
	if err != nil {
		return nil, fmt.Errorf("list limits of tenant %s: %w", tenantID, postgres.Translate(err))
	}
	limits := DefaultLimits()
	for _, row := range rows {
		setLimit(limits, row.Category, row.PerMinute)
	}
	return limits, nil
}

// setLimit sets one of the limits to the value of a row; NULL means unlimited.
func setLimit(limits []Limit, category string, perMinute *int32) {
	for i := range limits {
		if limits[i].Category != LimitCategory(category) {
			continue
		}
		limits[i].PerMinute = Unlimited
		if perMinute != nil {
			limits[i].PerMinute = int(*perMinute)
		}
	}
}
