package task

import (
	"fmt"
	"slices"
	"strings"
)

// gapStepsMax bounds the search for a gap to a fraction of a second; where it
// ends early, nothing is said.
const gapStepsMax = 2_000_000

// gapSearch looks for values for which no rule holds. It asks only for values of
// the kinds that the cells of a column name: any number between or beyond the
// numbers, but of texts, and null, those that are named, because few tables mean
// to answer for every text there is. A cell that is an expression counts as if
// it held.
type gapSearch struct {
	*table
	domains [][]span   // by axis
	spans   [][][]span // by rule, then by axis
	left    int        // steps
	at      []uint32   // the ranks looked at, by axis
}

// gap describes values for which no rule holds; empty if there are none, or
// none was found in time.
func (t *table) gap() string {
	if len(t.columns) == 0 || len(t.rules) == 0 {
		return ""
	}
	g := &gapSearch{table: t, left: gapStepsMax, at: make([]uint32, len(t.axes))}
	for i, a := range t.axes {
		var kinds kind
		for _, c := range t.columns {
			if c.axis == i {
				kinds |= c.kinds
			}
		}
		g.domains = append(g.domains, a.named(kinds))
	}
	rules := make([]int, len(t.rules))
	for i := range t.rules {
		rules[i] = i
		own := slices.Clone(g.domains)
		for j, c := range t.row(i) {
			axis := t.columns[j].axis
			own[axis] = intersect(own[axis], c.spans)
		}
		g.spans = append(g.spans, own)
	}
	if !g.search(0, rules) {
		return ""
	}
	return g.describe()
}

// named is the values of an axis that a table is expected to have an answer for;
// everything if its cells name none.
func (a *axis) named(kinds kind) []span {
	var spans []span
	if kinds&kindNull != 0 {
		spans = append(spans, span{rankNull, rankNull})
	}
	if kinds&kindBool != 0 {
		spans = append(spans, span{rankFalse, rankTrue})
	}
	if kinds&kindNumber != 0 {
		spans = append(spans, a.kindSpan(kindNumber))
	}
	if kinds&kindText != 0 {
		for i := range a.texts {
			rank := a.rankTexts() + gapOrConstant(i, true)
			spans = append(spans, span{rank, rank})
		}
	}
	if len(spans) == 0 {
		return []span{a.all()}
	}
	return merge(spans)
}

// search continues with an axis and the rules that hold on all earlier axes.
func (g *gapSearch) search(axis int, rules []int) bool {
	if g.left -= len(rules) + 1; g.left < 0 {
		return false
	}
	if len(rules) == 0 {
		for i := axis; i < len(g.axes); i++ {
			g.at[i] = g.domains[i][0].low
		}
		return true
	}
	if slices.ContainsFunc(rules, func(rule int) bool { return g.coversFrom(axis, rule) }) {
		return false
	}
	for _, rank := range g.turns(axis, rules) {
		var holding []int
		for _, rule := range rules {
			if contain(g.spans[rule][axis], rank) {
				holding = append(holding, rule)
			}
		}
		if g.at[axis] = rank; g.search(axis+1, holding) {
			return true
		}
	}
	return false
}

// coversFrom reports whether a rule holds for all values from an axis on.
func (g *gapSearch) coversFrom(axis, rule int) bool {
	for i := axis; i < len(g.axes); i++ {
		if !covers(g.spans[rule][i], g.domains[i]) {
			return false
		}
	}
	return true
}

// turns are the ranks of an axis at which other rules begin to hold, or cease to.
func (g *gapSearch) turns(axis int, rules []int) []uint32 {
	var ranks []uint32
	for _, domain := range g.domains[axis] {
		ranks = append(ranks, domain.low)
	}
	for _, rule := range rules {
		for _, s := range g.spans[rule][axis] {
			ranks = append(ranks, s.low)
			if contain(g.domains[axis], s.high+1) {
				ranks = append(ranks, s.high+1)
			}
		}
	}
	slices.Sort(ranks)
	return slices.Compact(ranks)
}

// describe writes the text of a rank for a warning.
func (g *gapSearch) describe() string {
	var parts []string
	for i, a := range g.axes {
		column := slices.IndexFunc(g.columns, func(c column) bool { return c.axis == i })
		if g.domains[i][0] != a.all() {
			name := strings.Join(g.columns[column].path, ".")
			if name == "" {
				name = fmt.Sprintf("inputs[%d]", column)
			}
			parts = append(parts, name+" is "+a.describe(g.at[i]))
		}
	}
	return strings.Join(parts, " and ")
}

// describe writes the text of a rank for a warning.
func (a *axis) describe(rank uint32) string {
	switch {
	case rank == rankNull:
		return "null"
	case rank == rankFalse:
		return "false"
	case rank == rankTrue:
		return "true"
	case rank >= a.rankTexts():
		return quote(a.texts[(rank-a.rankTexts())/2])
	}
	i := int(rank-rankNumbers) / 2
	switch {
	case (rank-rankNumbers)%2 == 1:
		return a.numbers[i].Text('f')
	case i == 0:
		return "less than " + a.numbers[0].Text('f')
	case i == len(a.numbers):
		return "more than " + a.numbers[i-1].Text('f')
	default:
		return "between " + a.numbers[i-1].Text('f') + " and " + a.numbers[i].Text('f')
	}
}
