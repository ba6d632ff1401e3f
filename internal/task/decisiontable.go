package task

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"tranche/internal/expression"
	"tranche/internal/workflow"
)

// Limits of a table.
const (
	tableRulesMax   = 10_000
	tableColumnsMax = 100 // inputs, and outputs
)

// decisionTableType finds the rules that hold for a set of values.
type decisionTableType struct{}

func (decisionTableType) Compile(c *workflow.ConfigReader) workflow.Program {
	c.Require("outputs", "rules")
	b := &tableBuilder{c: c, compiled: map[cellKey]int{}}
	b.policy = hitPolicy(c.Choice("hitPolicy", string(hitFirst), string(hitUnique), string(hitPriority), string(hitCollect)))
	b.aggregate = aggregate(c.Choice("aggregate", string(aggregateNone), string(aggregateSum), string(aggregateMin), string(aggregateMax), string(aggregateCount)))
	if b.policy != hitCollect && b.aggregate != aggregateNone {
		c.Fault("aggregate", "is allowed only with the hit policy collect")
	}
	b.readInputs()
	b.readOutputs()
	b.readRules()
	if !b.faulty && !c.Drafting() {
		b.place()
		b.check()
	}
	return &b.table
}

// Effect is false: a table only computes.
func (*table) Effect() bool { return false }

// Run evaluates the table.
func (t *table) Run(ctx context.Context, call *workflow.Call) (workflow.Result, error) {
	output, err := t.evaluate(ctx, call.Env)
	return workflow.Result{Output: output}, err
}

// tableBuilder reads a table's config. Cells can only be placed on their axes
// when all of a column's cells are known, so they are kept until then.
type tableBuilder struct {
	table
	c         *workflow.ConfigReader
	cells     [][]cell        // by column, then by rule
	cellExprs [][]int         // likewise: of table.expressions, or -1
	compiled  map[cellKey]int // of table.expressions
	faulty    bool            // some cell could not be read, so rules cannot be compared
}

type cellKey struct {
	column int
	source string
}

func (b *tableBuilder) fault(at *workflow.ConfigReader, path, format string, args ...any) {
	b.faulty = true
	at.Fault(path, format, args...)
}

func (b *tableBuilder) readInputs() {
	axisOf := map[string]int{}
	for i, in := range b.c.Objects("inputs") {
		if i == tableColumnsMax {
			b.fault(b.c, "inputs", "must have at most %d columns", tableColumnsMax)
			break
		}
		in.Text("name") // for readers of the table
		field := in.Text("field")
		at := column{expr: in.Expression("expr"), axis: len(b.axes), valueless: !in.Has("field") && !in.Has("expr")}
		b.faulty = b.faulty || in.Has("expr") && at.expr == nil
		switch {
		case field != "" && in.Has("expr"):
			b.fault(in, "", "must have field or expr, not both")
		case field != "":
			at.path = b.readField(in, field)
			if same, known := axisOf[field]; known {
				at.axis = same
			}
			axisOf[field] = at.axis
		}
		if at.axis == len(b.axes) {
			b.axes = append(b.axes, nil)
		}
		b.columns = append(b.columns, at)
	}
	b.cells = make([][]cell, len(b.columns))
	b.cellExprs = make([][]int, len(b.columns))
}

// readField checks a dotted path by compiling the expression that means the
// same, which also records the tasks that it reads.
func (b *tableBuilder) readField(in *workflow.ConfigReader, field string) []string {
	path := strings.Split(field, ".")
	if slices.Contains(path, "") {
		b.fault(in, "field", "must be a dotted path such as input.score")
		return nil
	}
	var source strings.Builder
	source.WriteString(path[0])
	for _, segment := range path[1:] {
		fmt.Fprintf(&source, "[%s]", quote(segment))
	}
	if in.ExpressionAt("field", source.String()) == nil {
		b.faulty = true
		return nil
	}
	return path
}

func quote(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text) + `"`
}

func (b *tableBuilder) readOutputs() {
	outputs := b.c.Objects("outputs")
	if b.c.Has("outputs") && (len(outputs) == 0 || len(outputs) > tableColumnsMax) {
		b.fault(b.c, "outputs", "must have 1 to %d columns", tableColumnsMax)
		return
	}
	for _, out := range outputs {
		out.Require("name")
		o := output{name: out.Text("name"), values: out.List("values")}
		o.path = strings.Split(o.name, ".")
		if o.name != "" && slices.Contains(o.path, "") {
			b.fault(out, "name", "must be a name or names joined by dots")
		}
		for _, earlier := range b.outputs {
			if o.name != "" && clash(o.path, earlier.path) {
				b.fault(out, "name", "conflicts with the output %s", earlier.name)
			}
		}
		if o.values != nil && b.policy != hitPriority {
			b.fault(out, "values", "is allowed only with the hit policy priority")
		}
		b.outputs = append(b.outputs, o)
	}
}

// clash reports whether one path is the other or leads through it.
func clash(x, y []string) bool {
	n := min(len(x), len(y))
	return slices.Equal(x[:n], y[:n])
}

func (b *tableBuilder) readRules() {
	rules := b.c.Objects("rules")
	if len(rules) > tableRulesMax {
		b.fault(b.c, "rules", "must have at most %d rules", tableRulesMax)
		return
	}
	b.faulty = b.faulty || len(rules) != len(b.c.List("rules"))
	for _, r := range rules {
		r.Require("when", "then")
		when, then := r.List("when"), r.List("then")
		switch {
		case len(when) != len(b.columns) && r.Has("when"):
			b.fault(r, "when", "must have one cell for each input; it has %d cells for %d inputs", len(when), len(b.columns))
			continue
		case len(then) != len(b.outputs) && r.Has("then"):
			b.fault(r, "then", "must have one cell for each output; it has %d cells for %d outputs", len(then), len(b.outputs))
			continue
		case !r.Has("when") || !r.Has("then"):
			b.faulty = true
			continue
		}
		for j, v := range when {
			b.readCondition(r, j, v)
		}
		compiled := rule{then: make([]conclusion, len(then))}
		for j, v := range then {
			compiled.then[j] = b.readConclusion(r, j, v)
		}
		b.rules = append(b.rules, compiled)
	}
}

func (b *tableBuilder) readCondition(r *workflow.ConfigReader, index int, v any) {
	at := fmt.Sprintf("when[%d]", index)
	read := cell{any: true}
	expr := -1
	switch source, isText := v.(string); {
	case v == nil:
	case isText:
		parsed, err := parseCell(source)
		if errors.Is(err, errNotCell) {
			expr = b.cellExpression(r, index, source)
		} else if err != nil {
			b.fault(r, at, "%s", err)
		} else {
			read = parsed
		}
	default:
		constant, err := literalOf(v)
		if err != nil {
			b.fault(r, at, "%s", err)
			break
		}
		read = cell{tests: []test{equals(constant)}}
	}
	col := &b.columns[index]
	if !read.any && col.valueless {
		b.fault(r, at, "must be a condition, because the column has neither field nor expr")
	}
	col.note(read)
	b.cells[index] = append(b.cells[index], read)
	b.cellExprs[index] = append(b.cellExprs[index], expr)
}

// note remembers which kinds of values the cells of a column name.
func (c *column) note(read cell) {
	for _, t := range read.tests {
		c.ordered = c.ordered || t.low != t.high
		for _, end := range []*literal{t.low, t.high} {
			if end != nil {
				c.kinds |= end.kind
			}
		}
	}
}

// cellExpression compiles an expression cell; equal ones of a column are one.
func (b *tableBuilder) cellExpression(r *workflow.ConfigReader, index int, source string) int {
	key := cellKey{index, strings.TrimSpace(source)}
	if known, ok := b.compiled[key]; ok {
		return known
	}
	compiled := r.With(expression.Scope{Column: !b.columns[index].valueless}).ConditionAt(fmt.Sprintf("when[%d]", index), source)
	if compiled == nil {
		b.faulty = true
		return -1
	}
	b.expressions = append(b.expressions, cellExpression{column: index, expr: compiled})
	b.compiled[key] = len(b.expressions) - 1
	return b.compiled[key]
}

func (b *tableBuilder) readConclusion(r *workflow.ConfigReader, index int, v any) conclusion {
	at := fmt.Sprintf("then[%d]", index)
	read := conclusion{present: true, value: v}
	if source, isText := v.(string); isText {
		if trimmed := strings.TrimSpace(source); trimmed == "" || trimmed == "-" {
			return conclusion{}
		}
		read.expr = r.ExpressionAt(at, source)
		if read.expr == nil {
			b.faulty = true
			return conclusion{}
		}
		written, ok := read.expr.Literal()
		if !ok {
			return read
		}
		read = conclusion{present: true, value: written}
	}
	if values := b.outputs[index].values; values != nil && indexOf(values, read.value) < 0 {
		b.fault(r, at, "must be one of the output's values")
	}
	return read
}

// place orders the values of each axis and puts every cell on its own.
func (b *tableBuilder) place() {
	for i := range b.axes {
		var together []cell
		for j, c := range b.columns {
			if c.axis == i {
				together = append(together, b.cells[j]...)
			}
		}
		b.axes[i] = newAxis(together)
	}
	b.conditions = make([]condition, 0, len(b.rules)*len(b.columns))
	b.hulls = make([]span, 0, len(b.rules)*len(b.columns))
	for i := range b.rules {
		for j, c := range b.columns {
			axis, read := b.axes[c.axis], b.cells[j][i]
			if axis.nests(read) {
				b.c.Warn(fmt.Sprintf("rules[%d].when[%d]", i, j), "has an entry that another entry includes; write numbers without a thousands separator")
			}
			placed := condition{spans: axis.place(read), expr: b.cellExprs[j][i]}
			b.conditions = append(b.conditions, placed)
			b.hulls = append(b.hulls, placed.hull())
		}
	}
}

// check reports faults and warnings of the rules as a whole.
func (b *tableBuilder) check() {
	rules := ruleCheck{table: &b.table, left: comparisonsMax}
	if b.policy == hitUnique {
		for _, p := range rules.overlaps() {
			b.c.Fault(fmt.Sprintf("rules[%d]", p.later), "can hit together with rules[%d], but the hit policy is unique", p.earlier)
		}
	}
	for _, p := range rules.shadowed() {
		if p.earlier == p.later {
			b.c.Warn(fmt.Sprintf("rules[%d]", p.later), "can never hit: its conditions contradict each other")
			continue
		}
		b.c.Warn(fmt.Sprintf("rules[%d]", p.later), "can never hit: rules[%d] hits before it", p.earlier)
	}
	if b.policy == hitCollect {
		return // to which nothing may be added
	}
	if gap := b.gap(); gap != "" {
		b.c.Warn("rules", "leave a gap: no rule hits if %s", gap)
	}
}
