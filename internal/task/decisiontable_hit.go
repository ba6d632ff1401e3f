package task

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"tranche/internal/expression"
)

func (e *evaluation) firstHit() (any, error) {
	i, err := e.next(0)
	if err != nil {
		return nil, err
	}
	if i < 0 {
		return map[string]any{}, nil
	}
	return e.conclude(i)
}

func (e *evaluation) unique() (any, error) {
	i, err := e.next(0)
	if err != nil {
		return nil, err
	}
	if i < 0 {
		return map[string]any{}, nil
	}
	j, err := e.next(i + 1)
	if err != nil {
		return nil, err
	}
	if j >= 0 {
		return nil, failure(codeDecisionTable, "rules[%d] and rules[%d] both hit, but the hit policy is unique", i, j)
	}
	return e.conclude(i)
}

// priority returns the hit with the outputs that stand first in the outputs' lists of
// values, compared output by output. If they are equal, or no output has a list, the
// earlier rule wins.
func (e *evaluation) priority() (any, error) {
	var best []any
	var bestOrder []int
	for i, err := e.next(0); i >= 0 || err != nil; i, err = e.next(i + 1) {
		if err != nil {
			return nil, err
		}
		values, err := e.conclusions(i)
		if err != nil {
			return nil, err
		}
		order, err := e.order(i, values)
		if err != nil {
			return nil, err
		}
		if best == nil || slices.Compare(order, bestOrder) < 0 {
			best, bestOrder = values, order
		}
	}
	return e.nest(best), nil
}

// order returns the position of each output that has a list of values. A value that the
// rule omits comes after all others.
func (e *evaluation) order(ruleIndex int, values []any) ([]int, error) {
	var order []int
	for i, o := range e.outputs {
		if o.values == nil {
			continue
		}
		position := len(o.values)
		if !isAbsent(values[i]) {
			if position = indexOf(o.values, values[i]); position < 0 {
				return nil, failure(codeDecisionTable, "rules[%d].then[%d]: the result must be one of the output's values", ruleIndex, i)
			}
		}
		order = append(order, position)
	}
	return order, nil
}

func indexOf(values []any, v any) int {
	for i := range values {
		if expression.Equal(values[i], v) {
			return i
		}
	}
	return -1
}

// collect returns all hits in the order of the rules, or one object with each output
// aggregated over the hits that have it.
func (e *evaluation) collect() (any, error) {
	hits := []any{}
	columns := make([][]any, len(e.outputs))
	for i, err := e.next(0); i >= 0 || err != nil; i, err = e.next(i + 1) {
		if err != nil {
			return nil, err
		}
		values, err := e.conclusions(i)
		if err != nil {
			return nil, err
		}
		if e.aggregate == aggregateNone {
			hits = append(hits, e.nest(values))
			continue
		}
		for j, v := range values {
			if v != nil && !isAbsent(v) {
				columns[j] = append(columns[j], v)
			}
		}
	}
	if e.aggregate == aggregateNone {
		return hits, nil
	}
	totals := make([]any, len(e.outputs))
	for j, column := range columns {
		total, err := e.aggregate.of(column)
		if err != nil {
			return nil, failureAt(codeDecisionTable, fmt.Sprintf("outputs[%d]", j), err)
		}
		totals[j] = total
	}
	return e.nest(totals), nil
}

// of aggregates the values of one output. Of none, sum and count are 0, min
// and max null.
func (a aggregate) of(values []any) (any, error) {
	switch a {
	case aggregateSum:
		return expression.Sum(values)
	case aggregateMin:
		return expression.Min(values)
	case aggregateMax:
		return expression.Max(values)
	default:
		return json.Number(strconv.Itoa(len(values))), nil
	}
}

// absent stands for an output that a rule leaves out; no result holds it.
type absent struct{}

func isAbsent(v any) bool {
	_, is := v.(absent)
	return is
}

func (e *evaluation) conclude(ruleIndex int) (any, error) {
	values, err := e.conclusions(ruleIndex)
	if err != nil {
		return nil, err
	}
	return e.nest(values), nil
}

// conclusions evaluates the then cells of a rule.
func (e *evaluation) conclusions(ruleIndex int) ([]any, error) {
	then := e.rules[ruleIndex].then
	values := make([]any, len(then))
	if err := e.ctx.Err(); err != nil {
		return nil, err
	}
	for i := range then {
		switch c := &then[i]; {
		case !c.present:
			values[i] = absent{}
		case c.expr == nil:
			values[i] = c.value
		default:
			v, err := c.expr.Eval(e.env)
			if err != nil {
				return nil, failureAt(codeDecisionTable, fmt.Sprintf("rules[%d].then[%d]", ruleIndex, i), err)
			}
			values[i] = v
		}
	}
	return values, nil
}

// nest builds the result: dotted output names become nested objects.
func (e *evaluation) nest(values []any) map[string]any {
	result := map[string]any{}
	for i, v := range values {
		if isAbsent(v) {
			continue
		}
		set(result, e.outputs[i].path, v)
	}
	return result
}
