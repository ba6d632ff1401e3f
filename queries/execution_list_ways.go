package queries

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/huandu/go-sqlbuilder"
)

// commonShare is the share of executions from which a tag is common: those that
// have it are not looked for one by one.
const commonShare = 0.01

// The conditions of the partial indexes of tags. The tags of most executions fit
// into an index beside status and workflow, so that common tags can be combined
// with other filters without reading the table; those of the others might not.
const (
	someTags = `e.tags <> '{}'`
	fewTags  = `cardinality(e.tags) BETWEEN 1 AND 8`
	manyTags = `cardinality(e.tags) > 8`
)

// way is one of the ways in which executions match tags and search: conditions
// that an index serves.
type way struct {
	conditions []condition
	scan       scan
}

// condition writes a condition and its values for a statement.
type condition func(b *sqlbuilder.SelectBuilder) string

// ways returns ways that together find all that match. Some may find the same.
func (p *ExecutionListParams) ways(ctx context.Context, db ListDB) ([]way, error) {
	switch {
	case p.Search == nil && len(p.Tags) == 0:
		return []way{{scan: inOrder}}, nil
	case p.BorrowerID != "" || p.BillableID != "": // which are few by themselves
		return []way{{conditions: []condition{p.matches}, scan: anyScan}}, nil
	case p.Search == nil:
		return waysTagged(ctx, db, p.Tags)
	}
	ways, err := waysTagged(ctx, db, append(slices.Clip(p.Tags), p.Search.Text))
	if err != nil {
		return nil, err
	}
	for _, column := range p.Search.columns() {
		w := way{conditions: []condition{column}, scan: anyScan}
		if len(p.Tags) > 0 {
			w.conditions = append(w.conditions, tagged(p.Tags))
		}
		ways = append(ways, w)
	}
	return ways, nil
}

// waysTagged are the ways to executions that have all of the tags.
func waysTagged(ctx context.Context, db DBTX, tags []string) ([]way, error) {
	var share float64 // of the rarest
	if err := db.QueryRow(ctx, tagShare, tags).Scan(&share); err != nil {
		return nil, err
	}
	if share < commonShare {
		return []way{{[]condition{tagged(tags), literal(someTags)}, byName}}, nil
	}
	return []way{{[]condition{tagged(tags), literal(fewTags)}, within}, {[]condition{tagged(tags), literal(manyTags)}, byName}}, nil
}

// tagShare is the greatest share that the rarest of some tags has in a partition,
// as far as PostgreSQL keeps count: 0 for a tag that is not among the commonest.
const tagShare = `
SELECT min(share)::float8 FROM (
    SELECT COALESCE(max(common.share), 0) AS share
    FROM unnest($1::text[]) AS tag
    LEFT JOIN (
        SELECT unnest(most_common_elems::text::text[]) AS tag, unnest(most_common_elem_freqs) AS share
        FROM pg_stats WHERE schemaname = current_schema() AND tablename LIKE 'executions\_2%' AND attname = 'tags'
    ) common USING (tag)
    GROUP BY tag
) AS tags`

// lead adds conditions that all executions meet on the first columns of an index,
// which make its later columns serve: the indexes of status and of tags are
// ordered by status, workflow and id.
func (p *ExecutionListParams) lead(b *sqlbuilder.SelectBuilder, s scan) {
	isDated := s == within && (!p.CreatedFrom.IsZero() || !p.CreatedBefore.IsZero())
	if p.Status == "" && (p.WorkflowIDs != nil || isDated) {
		b.Where("e.status = ANY ('{pending,running,completed,failed,cancelled,timeout}')")
	}
	if p.WorkflowIDs == nil && isDated {
		b.Where("e.workflow_id = ANY (ARRAY(SELECT w.id FROM workflows w WHERE w.tenant_id = " + b.Var(p.TenantID) + "))")
	}
}

func tagged(tags []string) condition {
	return func(b *sqlbuilder.SelectBuilder) string { return "e.tags @> " + b.Var(tags) + "::text[]" }
}

func literal(sql string) condition {
	return func(*sqlbuilder.SelectBuilder) string { return sql }
}

// matches is the condition of tags and search together.
func (p *ExecutionListParams) matches(b *sqlbuilder.SelectBuilder) string {
	var all []string
	if len(p.Tags) > 0 {
		all = append(all, tagged(p.Tags)(b))
	}
	if p.Search != nil {
		some := []string{tagged([]string{p.Search.Text})(b)}
		for _, column := range p.Search.columns() {
			some = append(some, column(b))
		}
		all = append(all, b.Or(some...))
	}
	return b.And(all...)
}

// columns are the conditions on other columns than the tags.
func (s *ExecutionSearch) columns() []condition {
	begins := func(column string) condition {
		return func(b *sqlbuilder.SelectBuilder) string { return binary(column) + " LIKE " + b.Var(likePrefix(s.Text)) }
	}
	columns := []condition{begins("e.borrower_id"), begins("e.billable_id")}
	if len(s.WorkflowIDs) > 0 {
		columns = append(columns, func(b *sqlbuilder.SelectBuilder) string {
			return "e.workflow_id = ANY (" + b.Var(s.WorkflowIDs) + "::uuid[])"
		})
	}
	if s.LastID != uuid.Nil {
		columns = append(columns, func(b *sqlbuilder.SelectBuilder) string {
			return "(e.id >= " + b.Var(s.FirstID) + " AND e.id <= " + b.Var(s.LastID) + ")"
		})
	}
	return columns
}

// binary is a column in the order of its index, which serves prefixes too.
func binary(column string) string { return column + ` COLLATE "C"` }

// likePrefix is the pattern of what begins with text.
func likePrefix(text string) string {
	return strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`).Replace(text) + "%"
}

// FirstIDAt returns the least UUIDv7 of a moment, or of the first millisecond
// after it.
func FirstIDAt(moment time.Time) (id uuid.UUID) {
	millis := max(moment.Add(time.Millisecond-1).UnixMilli(), 0)
	for i := range 6 {
		id[i] = byte(millis >> (40 - 8*i))
	}
	return id
}

// CreatedAt returns when the row of a UUIDv7 was made: the millisecond that the
// id begins with. Of executions it is the time that lists are ordered by.
func CreatedAt(id uuid.UUID) time.Time {
	var millis int64
	for _, b := range id[:6] {
		millis = millis<<8 | int64(b)
	}
	return time.UnixMilli(millis).UTC()
}
