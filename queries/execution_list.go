package queries

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/huandu/go-sqlbuilder"
	"github.com/jackc/pgx/v5"
)

// executionColumns are the columns of ExecutionGet.
const executionColumns = `e.id, e.principal_id, e.workflow_id, e.workflow_alias, e.workflow_version, e.workflow_type, e.batch_id, e.billable_id,
    e.borrower_id, e.status, e.is_success, e.is_test, e.rescore_of, e.tags,
    e.item_index, e.row_number, e.source_file_name, b.label AS batch_label, b.attempt AS batch_attempt`

// ExecutionListParams are the filters of a list of executions. A zero field does not
// filter.
type ExecutionListParams struct {
	TenantID uuid.UUID
	// WorkflowIDs are the workflows of the listed executions. Nil means all workflows.
	WorkflowIDs []uuid.UUID
	BillableID  string
	BorrowerID  string
	Status      string
	Tags        []string // an execution must have all of them
	Search      *ExecutionSearch
	// CreatedFrom is inclusive, CreatedBefore is exclusive.
	CreatedFrom, CreatedBefore time.Time
	ExcludeTests               bool
	ExcludeBatches             bool // exclude items of batches

	// Ascending lists the oldest first.
	Ascending bool
	Window
}

// ExecutionSearch is a search text. It can match any of several columns.
type ExecutionSearch struct {
	// Text is a prefix of the borrower's or the billable id, or one of the tags.
	Text string
	// WorkflowIDs are the workflows with a matching alias.
	WorkflowIDs []uuid.UUID
	// FirstID and LastID are the bounds of the ids that begin with the text. LastID is
	// uuid.Nil if no id can begin with it.
	FirstID, LastID uuid.UUID
}

// ListDB is a pool, a connection or a transaction.
type ListDB interface {
	DBTX
	SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults
}

// ExecutionList returns a page of the matching executions and their total number,
// counted up to CountMax. It builds statements for the given filters and has them
// planned with their values, because one plan for all filters would read every row of
// the tenant.
//
// It counts first. If there are fewer than CountMax matches, the count has found their
// ids, and the page is read by id; reading in the list's order could pass over millions of
// other rows. If there are more, reading in the list's order finds a page soon.
func (q *Queries) ExecutionList(ctx context.Context, db ListDB, p ExecutionListParams) (found []ExecutionGetRow, total int, err error) {
	ids, counted, err := p.find(ctx, db)
	if err != nil {
		return nil, 0, fmt.Errorf("count executions: %w", err)
	}
	total, page := p.CountMax, p.page()
	if counted {
		total, page = len(ids), p.pageOf(ids)
	}
	batch := &pgx.Batch{}
	page.queue(batch, func(rows pgx.Rows) error {
		found, err = pgx.CollectRows(rows, pgx.RowToStructByName[ExecutionGetRow])
		return err
	})
	if err := db.SendBatch(ctx, batch).Close(); err != nil {
		return nil, 0, fmt.Errorf("list executions: %w", err)
	}
	return found, total, nil
}

// find returns the ids of all matching executions. Counted is false if there are
// CountMax or more.
func (p *ExecutionListParams) find(ctx context.Context, db ListDB) (ids []uuid.UUID, counted bool, err error) {
	plans, err := p.plans(ctx, db)
	if err != nil {
		return nil, false, err
	}
	batch := &pgx.Batch{}
	counted = true
	for i := range plans {
		statement := p.count(&plans[i])
		statement.queue(batch, func(rows pgx.Rows) error {
			var total int
			var some []uuid.UUID
			_, err := pgx.ForEachRow(rows, []any{&total, &some}, func() error {
				counted = counted && total < p.CountMax
				ids = append(ids, some...)
				return nil
			})
			return err
		})
	}
	if err := db.SendBatch(ctx, batch).Close(); err != nil {
		return nil, false, err
	}
	if len(plans) > 1 { // they can find the same executions
		slices.SortFunc(ids, func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) })
		ids = slices.Compact(ids)
	}
	return ids, counted && len(ids) < p.CountMax, nil
}

// statement is SQL with the values of its parameters and the scans that it may use.
type statement struct {
	SQL  string
	Args []any
	scan scan
}

// scan says how a statement may read tables. The planner has no statistics of rare
// values and of the correlation between columns. Without limits it may choose a plan
// that is a thousand times slower than the best.
type scan int

const (
	inOrder scan = iota // one index, until there are enough rows
	paged               // the same, in the list's order
	within              // one index that has all columns, without the table
	byName              // the few rows that one or more indexes find
	anyScan             // the planner's choice
)

// settings returns the statement that limits the planner to the scans and to custom
// plans until the end of the transaction.
func (s *statement) settings() (sql string, args []any) {
	rows, covered, bitmaps := s.scan == inOrder || s.scan == paged, s.scan != byName, s.scan == byName
	if s.scan == anyScan {
		rows, bitmaps = true, true
	}
	return `SELECT set_config('plan_cache_mode', 'force_custom_plan', true), set_config('jit', 'off', true),
		set_config('work_mem', '64MB', true), set_config('random_page_cost', '1', true), set_config('enable_seqscan', 'off', true), set_config('enable_indexscan', $1, true),
		set_config('enable_indexonlyscan', $2, true), set_config('enable_bitmapscan', $3, true), set_config('enable_sort', (` + sorts + `)::text, true)`,
		[]any{strconv.FormatBool(rows), strconv.FormatBool(covered), strconv.FormatBool(bitmaps), s.scan == paged}
}

// sorts selects whether the planner may sort. After a large batch begins, a partition
// can be more than twice as large as when it was analyzed. The planner then expects few
// rows and sorts them all. A page must be read in the list's order instead.
const sorts = `
SELECT NOT $4::boolean OR NOT EXISTS (
    SELECT FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    WHERE i.inhparent = 'executions'::regclass AND pg_relation_size(c.oid) > 2 * c.relpages * current_setting('block_size')::bigint)`

// queue adds the statement to a batch of statements, which is one transaction.
func (s *statement) queue(batch *pgx.Batch, read func(pgx.Rows) error) {
	settings, args := s.settings()
	batch.Queue(settings, args...)
	batch.Queue(s.SQL, s.Args...).Query(read)
}

// page returns a statement that reads in the list's order until the page is full.
func (p *ExecutionListParams) page() statement {
	b := p.rows()
	p.narrow(b)
	if len(p.Tags) > 0 || p.Search != nil {
		b.Where(p.matches(b))
	}
	if p.After != nil && p.Ascending {
		b.Where("e.id > " + b.Var(*p.After))
	} else if p.After != nil {
		b.Where("e.id < " + b.Var(*p.After))
	}
	b.Limit(p.Limit).Offset(p.Offset)
	return p.inOrder(b, paged)
}

// pageOf returns a statement that reads the page from the ids of all matches.
func (p *ExecutionListParams) pageOf(ids []uuid.UUID) statement {
	order := func(a, b uuid.UUID) int {
		if p.Ascending {
			return bytes.Compare(a[:], b[:])
		}
		return bytes.Compare(b[:], a[:])
	}
	slices.SortFunc(ids, order)
	if p.After != nil {
		after, found := slices.BinarySearchFunc(ids, *p.After, order)
		if found {
			after++
		}
		ids = ids[after:]
	}
	ids = ids[min(p.Offset, len(ids)):]
	b := p.rows()
	b.Where(b.Equal("e.tenant_id", p.TenantID), "e.id = ANY ("+b.Var(ids[:min(p.Limit, len(ids))])+"::uuid[])")
	return p.inOrder(b, inOrder)
}

// count returns a statement that counts the matches of one plan up to CountMax, and
// selects their ids if there are fewer.
func (p *ExecutionListParams) count(plan *queryPlan) statement {
	b := sqlbuilder.PostgreSQL.NewSelectBuilder()
	b.Select("e.id").From("executions e")
	p.narrow(b)
	p.lead(b, plan.scan)
	for _, condition := range plan.conditions {
		b.Where(condition(b))
	}
	b.Limit(p.CountMax)
	sql, args := sqlbuilder.WithFlavor(sqlbuilder.Build(
		"SELECT count(*), CASE WHEN count(*) < $? THEN array_agg(id) END FROM ($?) AS matching", p.CountMax, b), sqlbuilder.PostgreSQL).Build()
	return statement{sql, args, plan.scan}
}

func (p *ExecutionListParams) rows() *sqlbuilder.SelectBuilder {
	b := sqlbuilder.PostgreSQL.NewSelectBuilder()
	return b.Select(executionColumns).From("executions e").
		JoinWithOption(sqlbuilder.LeftJoin, "execution_batches b", "b.tenant_id = e.tenant_id", "b.id = e.batch_id")
}

// inOrder returns a statement that selects rows in the list's order.
func (p *ExecutionListParams) inOrder(b *sqlbuilder.SelectBuilder, s scan) statement {
	if p.Ascending {
		b.OrderBy("e.id")
	} else {
		b.OrderBy("e.id DESC")
	}
	sql, args := b.Build()
	return statement{sql, args, s}
}

// narrow adds the conditions of the filters in a form that an index of table executions
// serves.
func (p *ExecutionListParams) narrow(b *sqlbuilder.SelectBuilder) {
	b.Where(b.Equal("e.tenant_id", p.TenantID))
	if len(p.WorkflowIDs) == 1 { // an index always serves it; with an array the planner may filter rows instead
		b.Where(b.Equal("e.workflow_id", p.WorkflowIDs[0]))
	} else if p.WorkflowIDs != nil {
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
	if !p.CreatedFrom.IsZero() {
		b.Where("e.id >= " + b.Var(FirstIDAt(p.CreatedFrom)))
	}
	if !p.CreatedBefore.IsZero() {
		b.Where("e.id < " + b.Var(FirstIDAt(p.CreatedBefore)))
	}
	if p.ExcludeTests {
		b.Where("NOT e.is_test")
	}
	if p.ExcludeBatches {
		b.Where("e.batch_id IS NULL")
	}
}
