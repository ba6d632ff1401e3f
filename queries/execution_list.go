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

// executionColumns are those of ExecutionGet.
const executionColumns = `e.id, e.principal_id, e.workflow_id, e.workflow_alias, e.workflow_version, e.workflow_type, e.batch_id, e.billable_id,
    e.borrower_id, e.status, e.is_success, e.is_test, e.rescore_of, e.tags,
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
	Window
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

// ListDB is a pool, a connection or a transaction.
type ListDB interface {
	DBTX
	SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults
}

// ExecutionList returns the executions that match and how many do, counted up to
// CountMax. The statements are built for the filters that are given and planned
// with their values: one plan for all of them would read a tenant's every row.
//
// Counting goes first and decides how the page is found. Where it ends below
// CountMax it has found all that match, and the page is among them: reading in
// the list's order until enough match would pass over millions of others. Where
// it does not, so many match that this is soon done.
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

// find returns the ids of all executions that match; counted is false where they
// are CountMax or more.
func (p *ExecutionListParams) find(ctx context.Context, db ListDB) (ids []uuid.UUID, counted bool, err error) {
	ways, err := p.ways(ctx, db)
	if err != nil {
		return nil, false, err
	}
	batch := &pgx.Batch{}
	counted = true
	for i := range ways {
		way := p.along(&ways[i])
		way.queue(batch, func(rows pgx.Rows) error {
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
	if len(ways) > 1 { // which may find the same
		slices.SortFunc(ids, func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) })
		ids = slices.Compact(ids)
	}
	return ids, counted && len(ids) < p.CountMax, nil
}

// statement is SQL with the values of its parameters, and how it may be run.
type statement struct {
	SQL  string
	Args []any
	scan scan
}

// scan is how a statement may read tables. The planner does not know how many
// rows have what it has not met, nor how the columns of a table belong together,
// and so it chooses between plans that are a thousandfold apart by chance.
type scan int

const (
	inOrder scan = iota // one index, until there is enough
	paged               // the same in the list's order
	within              // one index that has every column, without the table
	byName              // the few rows that one or several indexes name
	anyScan             // what the planner thinks best
)

// settings returns the statement that makes the planner keep to the scans and plan
// with the values, until the end of the transaction.
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

// sorts is whether the planner may sort. Where a partition has more than doubled
// since it was analyzed, as it does in the minute after a large batch has begun,
// the planner takes what is there for a few rows that are soon sorted: then a page
// must be read in the list's order, which finds it at once among so many.
const sorts = `
SELECT NOT $4::boolean OR NOT EXISTS (
    SELECT FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    WHERE i.inhparent = 'executions'::regclass AND pg_relation_size(c.oid) > 2 * c.relpages * current_setting('block_size')::bigint)`

// queue adds the statement to a flight, which is one transaction.
func (s *statement) queue(batch *pgx.Batch, read func(pgx.Rows) error) {
	settings, args := s.settings()
	batch.Queue(settings, args...)
	batch.Queue(s.SQL, s.Args...).Query(read)
}

// page reads in the list's order until the page is full.
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

// pageOf reads the executions of the page that is among all that match.
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

// along finds all that match in one way, or counts them up to CountMax.
func (p *ExecutionListParams) along(w *way) statement {
	b := sqlbuilder.PostgreSQL.NewSelectBuilder()
	b.Select("e.id").From("executions e")
	p.narrow(b)
	p.lead(b, w.scan)
	for _, condition := range w.conditions {
		b.Where(condition(b))
	}
	b.Limit(p.CountMax)
	sql, args := sqlbuilder.WithFlavor(sqlbuilder.Build(
		"SELECT count(*), CASE WHEN count(*) < $? THEN array_agg(id) END FROM ($?) AS matching", p.CountMax, b), sqlbuilder.PostgreSQL).Build()
	return statement{sql, args, w.scan}
}

func (p *ExecutionListParams) rows() *sqlbuilder.SelectBuilder {
	b := sqlbuilder.PostgreSQL.NewSelectBuilder()
	return b.Select(executionColumns).From("executions e").
		JoinWithOption(sqlbuilder.LeftJoin, "execution_batches b", "b.tenant_id = e.tenant_id", "b.id = e.batch_id")
}

// inOrder makes a statement of rows in the list's order.
func (p *ExecutionListParams) inOrder(b *sqlbuilder.SelectBuilder, s scan) statement {
	if p.Ascending {
		b.OrderBy("e.id")
	} else {
		b.OrderBy("e.id DESC")
	}
	sql, args := b.Build()
	return statement{sql, args, s}
}

// narrow adds the conditions of the filters, each in the form that an index of
// table executions serves.
func (p *ExecutionListParams) narrow(b *sqlbuilder.SelectBuilder) {
	b.Where(b.Equal("e.tenant_id", p.TenantID))
	if len(p.WorkflowIDs) == 1 { // which an index always serves; of an array the planner may make a filter
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
