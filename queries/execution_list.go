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
// created_at: ids find the rows, and created_at decides about those near a bound.
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
//
// The count goes first and decides how the page is found. Where it ends below
// CountMax its rows are all that match, and the page is sorted out of them:
// reading in the list's order until enough match would pass over millions of
// others. Where it does not, so many match that this is soon done.
func (q *Queries) ExecutionList(ctx context.Context, db BatchSender, p ExecutionListParams) (found []ExecutionGetRow, total int, err error) {
	ids := []uuid.UUID{}
	if err := p.planned(ctx, db, p.count(), func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&total, &ids}, func() error { return nil })
		return err
	}); err != nil {
		return nil, 0, fmt.Errorf("count executions: %w", err)
	}
	page := p.page()
	if total < p.CountMax {
		page = pageOf(&p, ids)
	}
	if err := p.planned(ctx, db, page, func(rows pgx.Rows) error {
		found, err = pgx.CollectRows(rows, pgx.RowToStructByName[ExecutionGetRow])
		return err
	}); err != nil {
		return nil, 0, fmt.Errorf("list executions: %w", err)
	}
	return found, total, nil
}

// planned runs a statement that is planned with its values. Tags and searches
// need bitmaps of several indexes; anything else is read in the order of one
// index, which stops once there is enough, though the planner thinks that dear:
// it knows how a table lies by the first column of an index alone.
func (p *ExecutionListParams) planned(ctx context.Context, db BatchSender, s Statement, read func(pgx.Rows) error) error {
	bitmaps := "off"
	if len(p.Tags) > 0 || p.Search != nil {
		bitmaps = "on"
	}
	batch := &pgx.Batch{}
	// They hold to the end of the flight, which is one transaction.
	batch.Queue(`SELECT set_config('plan_cache_mode', 'force_custom_plan', true), set_config('work_mem', '64MB', true),
		set_config('enable_seqscan', $1, true), set_config('enable_bitmapscan', $1, true)`, bitmaps)
	batch.Queue(s.SQL, s.Args...).Query(read)
	return db.SendBatch(ctx, batch).Close()
}

// Statement is SQL with the values of its parameters.
type Statement struct {
	SQL  string
	Args []any
}

// Statements are what ExecutionList may ask: the count, and the page by reading
// in the list's order.
func (p *ExecutionListParams) Statements() [2]Statement {
	return [2]Statement{p.count(), p.page()}
}

// page reads in the list's order until the page is full.
func (p *ExecutionListParams) page() Statement {
	b := p.rows()
	p.narrow(b)
	p.cut(b, "e.id")
	return build(b)
}

// pageOf reads the executions of a page that has been found.
func pageOf(p *ExecutionListParams, ids []uuid.UUID) Statement {
	b := p.rows()
	b.Where(b.Equal("e.tenant_id", p.TenantID), "e.id = ANY ("+b.Var(ids)+"::uuid[])")
	b.OrderBy("e.id " + p.direction())
	return build(b)
}

// count counts what matches and sorts the page's ids out of it.
func (p *ExecutionListParams) count() Statement {
	matching := sqlbuilder.PostgreSQL.NewSelectBuilder()
	matching.Select("e.id").From("executions e").Limit(p.CountMax)
	p.narrow(matching)
	page := sqlbuilder.PostgreSQL.NewSelectBuilder()
	page.Select("id").From("matching")
	p.cut(page, "id")
	sql, args := sqlbuilder.WithFlavor(sqlbuilder.Build(
		"WITH matching AS MATERIALIZED ($?) SELECT count(*), ARRAY($?) FROM matching", matching, page), sqlbuilder.PostgreSQL).Build()
	return Statement{sql, args}
}

func (p *ExecutionListParams) rows() *sqlbuilder.SelectBuilder {
	b := sqlbuilder.PostgreSQL.NewSelectBuilder()
	return b.Select(executionColumns).From("executions e").
		JoinWithOption(sqlbuilder.LeftJoin, "execution_batches b", "b.tenant_id = e.tenant_id", "b.id = e.batch_id")
}

// cut adds the order and the part of the list.
func (p *ExecutionListParams) cut(b *sqlbuilder.SelectBuilder, id string) {
	if p.After != uuid.Nil && p.Ascending {
		b.Where(id + " > " + b.Var(p.After))
	} else if p.After != uuid.Nil {
		b.Where(id + " < " + b.Var(p.After))
	}
	b.OrderBy(id + " " + p.direction()).Limit(p.Limit).Offset(p.Offset)
}

func (p *ExecutionListParams) direction() string {
	if p.Ascending {
		return "ASC"
	}
	return "DESC"
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
		b.Where("e.tags @> " + b.Var(p.Tags) + "::text[]")
	}
	if from := p.CreatedFrom; !from.IsZero() {
		b.Where("e.id >= "+b.Var(FirstIDAt(from.Add(-clockSlack))),
			b.Or("e.id >= "+b.Var(FirstIDAt(from.Add(clockSlack))), "e.created_at >= "+b.Var(from)))
	}
	if before := p.CreatedBefore; !before.IsZero() {
		b.Where("e.id < "+b.Var(FirstIDAt(before.Add(clockSlack))),
			b.Or("e.id < "+b.Var(FirstIDAt(before.Add(-clockSlack))), "e.created_at < "+b.Var(before)))
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
		"e.tags @> ARRAY[" + b.Var(s.Text) + "::text]",
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
