package task

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"tranche/internal/expression"
)

// table is a compiled decision table. It is safe for concurrent use.
type table struct {
	policy    hitPolicy
	aggregate aggregate
	columns   []column
	axes      []*axis
	outputs   []output
	rules     []rule
	// conditions holds every rule's cells, one rule after the other. hulls are
	// theirs: the scan over rules reads only these, in one stretch of memory,
	// and asks the conditions of the few rules that they leave.
	conditions []condition
	hulls      []span
	// expressions are the distinct expression cells; each is evaluated at most
	// once per evaluation of the table.
	expressions []cellExpression
}

type (
	hitPolicy string
	aggregate string
)

const (
	hitFirst    hitPolicy = "first"
	hitUnique   hitPolicy = "unique"
	hitPriority hitPolicy = "priority"
	hitCollect  hitPolicy = "collect"

	aggregateNone  aggregate = "none"
	aggregateSum   aggregate = "sum"
	aggregateMin   aggregate = "min"
	aggregateMax   aggregate = "max"
	aggregateCount aggregate = "count"
)

// column is where a condition's value comes from: a path from a root, an
// expression, or, with neither, nowhere.
type column struct {
	path      []string
	expr      *expression.Expression
	valueless bool // neither
	axis      int  // of table.axes; columns of the same path share one
	// ordered says that a cell compares or has a range. A value of a kind that
	// no cell of the column names is then an error and not a rule that silently
	// does not hit; null only never hits.
	ordered bool
	kinds   kind
}

// condition is a cell of a rule: spans of the column's axis, and for an
// expression cell also the expression.
type condition struct {
	spans []span
	expr  int // of table.expressions, or -1
}

// row returns a rule's conditions.
func (t *table) row(rule int) []condition {
	return t.conditions[rule*len(t.columns) : (rule+1)*len(t.columns)]
}

// hull is the smallest span around all of a condition's.
func (c *condition) hull() span {
	if len(c.spans) == 0 {
		return span{low: 1, high: 0}
	}
	return span{c.spans[0].low, c.spans[len(c.spans)-1].high}
}

type cellExpression struct {
	column int
	expr   *expression.Expression
}

// output is a result of the table. The hit policy priority orders by values, highest
// priority first.
type output struct {
	path   []string
	name   string
	values []any
}

type rule struct{ then []conclusion }

// conclusion is a then cell: absent, a constant, or an expression.
type conclusion struct {
	present bool
	value   any
	expr    *expression.Expression
}

// evaluation is one run of a table.
type evaluation struct {
	*table
	ctx    context.Context // its end stops the run between two expressions
	env    *expression.Env
	values []any
	ranks  []uint32
	memo   []memo // by expression
}

type memo struct{ known, holds bool }

func (t *table) evaluate(ctx context.Context, env *expression.Env) (any, error) {
	e := &evaluation{table: t, ctx: ctx, env: env}
	if err := e.readColumns(); err != nil {
		return nil, err
	}
	switch t.policy {
	case hitUnique:
		return e.unique()
	case hitPriority:
		return e.priority()
	case hitCollect:
		return e.collect()
	default:
		return e.firstHit()
	}
}

func (e *evaluation) readColumns() error {
	e.values = make([]any, len(e.columns))
	e.ranks = make([]uint32, len(e.columns))
	e.memo = make([]memo, len(e.expressions))
	for i := range e.columns {
		c := &e.columns[i]
		v, err := c.value(e.env)
		if err != nil {
			return failureAt(codeDecisionTable, fmt.Sprintf("inputs[%d].expr", i), err)
		}
		if k := kindOf(v); c.ordered && k != kindNull && k&c.kinds == 0 {
			return failure(codeDecisionTable, "inputs[%d]: the value is %s, which no cell of the column can be compared with", i, k)
		}
		e.values[i] = v
		e.ranks[i] = e.axes[c.axis].rank(v)
	}
	return nil
}

func (c *column) value(env *expression.Env) (any, error) {
	switch {
	case c.expr != nil:
		return c.expr.Eval(env)
	case c.path != nil:
		return lookup(env, c.path), nil
	}
	return nil, nil
}

// lookup follows a dotted path from a root; a missing value is null.
func lookup(env *expression.Env, path []string) any {
	var v any
	switch path[0] {
	case "input":
		v = env.Input
	case "custom":
		v = env.Custom
	case "tasks": // is followed by an id
		if len(path) == 2 {
			return env.Tasks[path[1]].Value()
		}
		v, path = env.Tasks[path[1]].Member(path[2]), path[2:]
	case "execution":
		if len(path) == 1 {
			return env.Execution.Value()
		}
		v, path = env.Execution.Member(path[1]), path[1:]
	case "item":
		v = env.Item
	case "index":
		v = json.Number(strconv.Itoa(env.Index))
	case "last":
		v = env.Last
	}
	for _, segment := range path[1:] {
		switch holder := v.(type) {
		case map[string]any:
			v = holder[segment]
		case []any:
			i, err := strconv.Atoi(segment)
			if err != nil || i < 0 || i >= len(holder) {
				return nil
			}
			v = holder[i]
		default:
			return nil
		}
	}
	return v
}

func kindOf(v any) kind {
	switch v.(type) {
	case nil:
		return kindNull
	case bool:
		return kindBool
	case json.Number:
		return kindNumber
	case string:
		return kindText
	}
	return kindOther
}

// String names the kind as an author of tables would.
func (k kind) String() string {
	switch k {
	case kindNull:
		return "null"
	case kindBool:
		return "a boolean"
	case kindNumber:
		return "a number"
	case kindText:
		return "a text"
	default:
		return "an object or an array"
	}
}

// next returns the first rule from an index on that holds, or -1.
func (e *evaluation) next(from int) (int, error) {
	columns := len(e.columns)
rules:
	for i := from; i < len(e.rules); i++ {
		for j, hull := range e.hulls[i*columns : (i+1)*columns] {
			if rank := e.ranks[j]; rank < hull.low || rank > hull.high {
				continue rules
			}
		}
		if hit, err := e.hits(i); err != nil || hit {
			return i, err
		}
	}
	return -1, nil
}

// hits reports whether a rule holds. Expressions are only asked when every
// other cell of the rule holds.
func (e *evaluation) hits(ruleIndex int) (bool, error) {
	row := e.row(ruleIndex)
	for i := range row {
		if !contain(row[i].spans, e.ranks[i]) {
			return false, nil
		}
	}
	for i := range row {
		if row[i].expr < 0 {
			continue
		}
		holds, err := e.ask(row[i].expr)
		if err != nil {
			return false, e.stopped(fmt.Sprintf("rules[%d].when[%d]", ruleIndex, i), err)
		}
		if !holds {
			return false, nil
		}
	}
	return true, nil
}

// stopped makes the failure of a cell, unless the run was stopped.
func (e *evaluation) stopped(path string, err error) error {
	if e.ctx.Err() != nil {
		return err
	}
	return failureAt(codeDecisionTable, path, err)
}

func (e *evaluation) ask(expr int) (bool, error) {
	if m := e.memo[expr]; m.known {
		return m.holds, nil
	}
	if err := e.ctx.Err(); err != nil {
		return false, err
	}
	env := *e.env
	env.Column = e.values[e.expressions[expr].column]
	holds, err := e.expressions[expr].expr.EvalBool(&env)
	if err != nil {
		return false, err
	}
	e.memo[expr] = memo{known: true, holds: holds}
	return holds, nil
}
