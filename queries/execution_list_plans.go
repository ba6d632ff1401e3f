package queries

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/huandu/go-sqlbuilder"
)

// commonShare is the share of executions from which on a tag is common. Executions
// with a common tag are not looked up one by one.
const commonShare = 0.01

// The conditions of the partial indexes on tags. The tags of most executions fit into
// an index together with status and workflow, so that common tags and other filters
// need no table reads. Long lists of tags have an index of their own.
const (
	someTags = `e.tags <> '{}'`
	fewTags  = `cardinality(e.tags) BETWEEN 1 AND 8`
	manyTags = `cardinality(e.tags) > 8`
)

// queryPlan is one of the query plans that find executions by tags and search text. An
// index serves its conditions.
type queryPlan struct {
	conditions []condition
	scan       scan
}

// condition writes a condition and its values for a statement.
type condition func(b *sqlbuilder.SelectBuilder) string

// plans returns query plans that together find all matching executions. Several plans
// can find the same execution.
func (p *ExecutionListParams) plans(ctx context.Context, db ListDB) ([]queryPlan, error) {
	switch {
	case p.Search == nil && len(p.Tags) == 0:
		return []queryPlan{{scan: inOrder}}, nil
	case p.BorrowerID != "" || p.BillableID != "": // few executions
		return []queryPlan{{conditions: []condition{p.matches}, scan: anyScan}}, nil
	case p.Search == nil:
		return tagPlans(ctx, db, p.Tags)
	}
	plans, err := tagPlans(ctx, db, append(slices.Clip(p.Tags), p.Search.Text))
	if err != nil {
		return nil, err
	}
	for _, column := range p.Search.columns() {
		plan := queryPlan{conditions: []condition{column}, scan: anyScan}
		if len(p.Tags) > 0 {
			plan.conditions = append(plan.conditions, tagged(p.Tags))
		}
		plans = append(plans, plan)
	}
	return plans, nil
}

// tagPlans returns the plans that find executions with all of the tags.
func tagPlans(ctx context.Context, db DBTX, tags []string) ([]queryPlan, error) {
	var share float64 // of the rarest
	if err := db.QueryRow(ctx, tagShare, tags).Scan(&share); err != nil {
		return nil, err
	}
	if share < commonShare {
		return []queryPlan{{[]condition{tagged(tags), literal(someTags)}, byName}}, nil
	}
	return []queryPlan{{[]condition{tagged(tags), literal(fewTags)}, within}, {[]condition{tagged(tags), literal(manyTags)}, byName}}, nil
}

// tagShare selects the share of executions that have the rarest of the tags, in the
// partition where it is greatest. PostgreSQL keeps statistics of the most common tags
// only; the share of any other tag is 0.
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

// lead adds conditions that all executions meet on the first columns of an index. With
// them the later columns of the index are usable: the indexes of status and tags are
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

// matches writes the condition of tags and search together.
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

// columns returns the conditions on columns other than the tags.
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

// binary returns a column in the order of its index, which also serves prefixes.
func binary(column string) string { return column + ` COLLATE "C"` }

// likePrefix returns the pattern of texts that begin with the given one.
func likePrefix(text string) string {
	return strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`).Replace(text) + "%"
}

// FirstIDAt returns the least UUIDv7 of a time, rounded up to a millisecond.
func FirstIDAt(moment time.Time) (id uuid.UUID) {
	millis := max(moment.Add(time.Millisecond-1).UnixMilli(), 0)
	for i := range 6 {
		id[i] = byte(millis >> (40 - 8*i))
	}
	return id
}

// CreatedAt returns the time in a UUIDv7, in milliseconds. Lists of executions are
// ordered by it.
func CreatedAt(id uuid.UUID) time.Time {
	var millis int64
	for _, b := range id[:6] {
		millis = millis<<8 | int64(b)
	}
	return time.UnixMilli(millis).UTC()
}
