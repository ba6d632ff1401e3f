package queries

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/huandu/go-sqlbuilder"
	"github.com/jackc/pgx/v5"
)

// clockSlack is how far the time in an execution's id may be from its
// created_at: bounds of the one serve to find rows, those of the other decide.
const clockSlack = time.Hour

// executionColumns are those of ExecutionGet.
const executionColumns = `e.id, e.principal_id, e.workflow_id, e.workflow_alias, e.workflow_version, e.workflow_type, e.batch_id, e.billable_id,
    e.borrower_id, e.status, e.is_success, e.is_test, e.rescore_of, e.tags, e.created_at,
    e.item_index, e.row_number, e.source_file_name, b.label AS batch_label, b.attempt AS batch_attempt`

// ExecutionListParams says which of a tenant's executions to list. Members that
// are zero do not narrow the list.
type ExecutionListParams struct {
	TenantID uuid.UUID
	// WorkflowIDs, unless nil, are the workflows whose executions are listed.
	WorkflowIDs []uuid.UUID
	BillableID  string
	BorrowerID  string
	Status      string
	Tags        []string // all of them
	Search      *ExecutionSearch
	// CreatedFrom is inclusive, CreatedBefore is not.
	CreatedFrom, CreatedBefore time.Time
	ExcludeTests               bool
	ExcludeBatches             bool // items of batches

	// Ascending lists the oldest first.
	Ascending bool
	// After is the id that the rows come after in their order; uuid.Nil begins
	// with the first.
	After  uuid.UUID
	Offset int
	Limit  int
	// CountMax is how far the matching rows are counted, whatever After says.
	CountMax int
}

// ExecutionSearch is a text that any of several columns may match.
type ExecutionSearch struct {
	// Text begins the borrower's or the billable id, or is one of the tags.
	Text string
	// WorkflowIDs are the workflows whose alias matches.
	WorkflowIDs []uuid.UUID
	// FirstID and LastID bound the ids that begin with the text; LastID is
	// uuid.Nil if none can.
	FirstID, LastID uuid.UUID
}

// BatchSender sends several statements in one flight: a pool, a connection or a
// transaction.
type BatchSender interface {
	SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults
}

// ExecutionList returns the executions that match and how many do, counted up to
// CountMax. The statements are built for the filters that are given and planned
// with their values: one plan for all of them would read a tenant's every row.
func (q *Queries) ExecutionList(ctx context.Context, db BatchSender, p ExecutionListParams) (found []ExecutionGetRow, total int, err error) {
	statements := p.Statements()
	batch := &pgx.Batch{}
	// It holds to the end of the flight, which is one transaction.
	batch.Queue(`SELECT set_config('plan_cache_mode', 'force_custom_plan', true)`)
	batch.Queue(statements[0].SQL, statements[0].Args...).Query(func(rows pgx.Rows) error {
		found, err = pgx.CollectRows(rows, pgx.RowToStructByName[ExecutionGetRow])
		return err
	})
	batch.Queue(statements[1].SQL, statements[1].Args...).QueryRow(func(row pgx.Row) error { return row.Scan(&total) })
	if err := db.SendBatch(ctx, batch).Close(); err != nil {
		return nil, 0, fmt.Errorf("list executions: %w", err)
	}
	return found, total, nil
}

// Statement is SQL with the values of its parameters.
type Statement struct {
	SQL  string
	Args []any
}

// Statements are what ExecutionList asks: the page, then the count.
func (p *ExecutionListParams) Statements() [2]Statement {
	return [2]Statement{p.page(), p.count()}
}

func (p *ExecutionListParams) page() Statement {
	b := sqlbuilder.PostgreSQL.NewSelectBuilder()
	b.Select(executionColumns).From("executions e").
		JoinWithOption(sqlbuilder.LeftJoin, "execution_batches b", "b.tenant_id = e.tenant_id", "b.id = e.batch_id").
		Limit(p.Limit).Offset(p.Offset)
	p.narrow(b)
	direction, after := "DESC", "e.id < "
	if p.Ascending {
		direction, after = "ASC", "e.id > "
	}
	if p.After != uuid.Nil {
		b.Where(after + b.Var(p.After))
	}
	b.OrderBy("e.id " + direction)
	return build(b)
}

func (p *ExecutionListParams) count() Statement {
	matching := sqlbuilder.PostgreSQL.NewSelectBuilder()
	matching.Select("1").From("executions e").Limit(p.CountMax)
	p.narrow(matching)
	b := sqlbuilder.PostgreSQL.NewSelectBuilder()
	b.Select("count(*)").From(b.BuilderAs(matching, "matching"))
	return build(b)
}

func build(b *sqlbuilder.SelectBuilder) Statement {
	sql, args := b.Build()
	return Statement{sql, args}
}

// narrow adds the conditions of the filters, each in the form that an index of
// table executions serves.
func (p *ExecutionListParams) narrow(b *sqlbuilder.SelectBuilder) {
	b.Where(b.Equal("e.tenant_id", p.TenantID))
	if p.WorkflowIDs != nil {
		b.Where("e.workflow_id = ANY (" + b.Var(p.WorkflowIDs) + "::uuid[])")
	}
	if p.BillableID != "" {
		b.Where(b.Equal(binary("e.billable_id"), p.BillableID))
	}
	if p.BorrowerID != "" {
		b.Where(b.Equal(binary("e.borrower_id"), p.BorrowerID))
	}
	if p.Status != "" {
		b.Where(b.Equal("e.status", p.Status))
	}
	if len(p.Tags) > 0 {
		b.Where("e.tags <> '{}'", "e.tags @> "+b.Var(p.Tags)+"::text[]")
	}
	if !p.CreatedFrom.IsZero() {
		b.Where("e.created_at >= "+b.Var(p.CreatedFrom), "e.id >= "+b.Var(FirstIDAt(p.CreatedFrom.Add(-clockSlack))))
	}
	if !p.CreatedBefore.IsZero() {
		b.Where("e.created_at < "+b.Var(p.CreatedBefore), "e.id < "+b.Var(FirstIDAt(p.CreatedBefore.Add(clockSlack))))
	}
	if p.ExcludeTests {
		b.Where("NOT e.is_test")
	}
	if p.ExcludeBatches {
		b.Where("e.batch_id IS NULL")
	}
	if p.Search != nil {
		b.Where(p.Search.condition(b))
	}
}

func (s *ExecutionSearch) condition(b *sqlbuilder.SelectBuilder) string {
	prefix := b.Var(likePrefix(s.Text))
	alternatives := []string{
		binary("e.borrower_id") + " LIKE " + prefix,
		binary("e.billable_id") + " LIKE " + prefix,
		"(e.tags <> '{}' AND e.tags @> ARRAY[" + b.Var(s.Text) + "::text])",
	}
	if len(s.WorkflowIDs) > 0 {
		alternatives = append(alternatives, "e.workflow_id = ANY ("+b.Var(s.WorkflowIDs)+"::uuid[])")
	}
	if s.LastID != uuid.Nil {
		alternatives = append(alternatives, "(e.id >= "+b.Var(s.FirstID)+" AND e.id <= "+b.Var(s.LastID)+")")
	}
	return b.Or(alternatives...)
}

// binary is a column in the order of its index, which serves prefixes too.
func binary(column string) string { return column + ` COLLATE "C"` }

// likePrefix is the pattern of what begins with text.
func likePrefix(text string) string {
	return strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`).Replace(text) + "%"
}

// FirstIDAt returns the least UUIDv7 of a moment.
func FirstIDAt(moment time.Time) (id uuid.UUID) {
	millis := max(moment.UnixMilli(), 0)
	for i := range 6 {
		id[i] = byte(millis >> (40 - 8*i))
	}
	return id
}
