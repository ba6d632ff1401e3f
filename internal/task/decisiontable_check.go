package task

import "slices"

// What the cells alone say about the rules, found at publish. Columns that
// read the same path are looked at together, others as if their values were
// independent, which an expression's value and a path within another path are
// not; such columns can only rule a pair out.

// comparisonsMax bounds the cells that publishing compares, to a fraction of a second.
// Only a table of thousands of rules that differ in lists within the same bounds exceeds
// it. Pairs that are not compared count as uncertain.
const comparisonsMax = 20_000_000

// ruleCheck compares the rules of a table.
type ruleCheck struct {
	*table
	left int // comparisons
}

// pair is two rules, the earlier first.
type pair struct{ earlier, later int }

// overlaps returns, for each rule that surely hits together with an earlier
// one for some input, the first such pair. Where an expression decides,
// nothing is sure, and evaluation finds out.
func (t *ruleCheck) overlaps() []pair {
	dependent := t.dependentColumns()
	decided := make([]bool, len(t.rules))
	for i := range t.rules {
		decided[i] = !t.undecided(i, dependent) && !t.neverHolds(i)
	}
	near := t.newPrefilter(func(s span) uint32 { return s.high }, func(s span) uint32 { return s.low })
	var found []pair
	for later := range t.rules {
		if !decided[later] {
			continue
		}
		for earlier := range near.before(later) {
			if t.left < 0 {
				return found
			}
			if decided[earlier] && !t.disjoint(earlier, later) && t.shareInput(earlier, later) {
				found = append(found, pair{earlier, later})
				break
			}
		}
	}
	return found
}

// dependentColumns tells which columns' values depend on another column's.
func (t *ruleCheck) dependentColumns() []bool {
	dependent := make([]bool, len(t.columns))
	for i, c := range t.columns {
		dependent[i] = c.path == nil
		for _, other := range t.columns {
			if startsWith(other.path, c.path) || startsWith(c.path, other.path) {
				dependent[i] = true
			}
		}
	}
	return dependent
}

func startsWith(path, prefix []string) bool {
	return len(prefix) > 0 && len(path) > len(prefix) && slices.Equal(path[:len(prefix)], prefix)
}

// undecided reports whether a rule's hits depend on more than independent columns.
func (t *ruleCheck) undecided(rule int, dependent []bool) bool {
	for i, c := range t.row(rule) {
		if c.expr >= 0 || dependent[i] && !covers(c.spans, []span{t.axes[t.columns[i].axis].all()}) {
			return true
		}
	}
	return false
}

// disjoint reports whether some column keeps two rules apart.
func (t *ruleCheck) disjoint(x, y int) bool {
	a, b := t.row(x), t.row(y)
	for i := range a {
		t.left--
		if !meet(a[i].spans, b[i].spans) {
			return true
		}
	}
	return false
}

// shareInput reports whether one input satisfies two rules, columns of the
// same path taken together.
func (t *ruleCheck) shareInput(x, y int) bool {
	left := make([][]span, len(t.axes))
	for i, a := range t.axes {
		left[i] = []span{a.all()}
	}
	for _, rule := range [...]int{x, y} {
		for i, c := range t.row(rule) {
			at := t.columns[i].axis
			if left[at] = intersect(left[at], c.spans); len(left[at]) == 0 {
				return false
			}
		}
	}
	return true
}

// neverHolds reports whether a rule's own cells contradict each other.
func (t *ruleCheck) neverHolds(rule int) bool { return !t.shareInput(rule, rule) }

// shadowed returns, for each rule that never comes to hit, why: the earlier
// rule that takes all its hits under policy first, or the rule itself where
// its own cells contradict each other.
func (t *ruleCheck) shadowed() []pair {
	var around *prefilter
	if t.policy == hitFirst {
		around = t.newPrefilter(func(s span) uint32 { return s.low }, func(s span) uint32 { return s.high })
	}
	var found []pair
	for later := range t.rules {
		if t.neverHolds(later) {
			found = append(found, pair{later, later})
			continue
		}
		if around == nil {
			continue
		}
		for earlier := range around.before(later) {
			if t.left < 0 {
				return found
			}
			if t.subsumes(earlier, later) {
				found = append(found, pair{earlier, later})
				break
			}
		}
	}
	return found
}

// subsumes reports whether x hits in every case in which y hits.
func (t *ruleCheck) subsumes(x, y int) bool {
	a, b := t.row(x), t.row(y)
	for i := range a {
		t.left--
		if a[i].expr >= 0 && a[i].expr != b[i].expr {
			return false
		}
		if !covers(a[i].spans, b[i].spans) {
			return false
		}
	}
	return true
}
