package task

import (
	"cmp"
	"math/bits"
	"slices"
)

// prefilter holds a row of bits for each rule y: the rules x that may overlap it. To
// compare all pairs of a table of some thousand rules takes a second. The prefilter
// handles 64 pairs at a time and leaves only pairs with overlapping hulls.
type prefilter struct {
	words int
	rows  []uint64
}

// newPrefilter keeps the pairs for which, in every column, x's hull begins no later
// than most(y's) and ends no earlier than least(y's).
func (t *table) newPrefilter(most, least func(span) uint32) *prefilter {
	n := len(t.rules)
	s := &prefilter{words: (n + 63) / 64}
	s.rows = make([]uint64, n*s.words)
	for i := range s.rows {
		s.rows[i] = ^uint64(0)
	}
	for column := range t.columns {
		hull := func(rule int) span { return t.hulls[rule*len(t.columns)+column] }
		begins := order(n, func(x int) int64 { return int64(hull(x).low) })
		s.keep(begins, order(n, func(y int) int64 { return int64(most(hull(y))) }), func(x, y int) bool { return hull(x).low <= most(hull(y)) })
		ends := order(n, func(x int) int64 { return -int64(hull(x).high) })
		s.keep(ends, order(n, func(y int) int64 { return -int64(least(hull(y))) }), func(x, y int) bool { return hull(x).high >= least(hull(y)) })
	}
	return s
}

// order returns the rules in ascending order of a key.
func order(n int, key func(rule int) int64) []int {
	rules := make([]int, n)
	for i := range rules {
		rules[i] = i
	}
	slices.SortFunc(rules, func(a, b int) int { return cmp.Compare(key(a), key(b)) })
	return rules
}

// keep drops the pairs that do not match. In both orders, an x that matches one y matches
// every later y.
func (s *prefilter) keep(xs, ys []int, matches func(x, y int) bool) {
	seen, next := make([]uint64, s.words), 0
	for _, y := range ys {
		for next < len(xs) && matches(xs[next], y) {
			seen[xs[next]/64] |= 1 << (xs[next] % 64)
			next++
		}
		row := s.rows[y*s.words : (y+1)*s.words]
		for i, word := range seen {
			row[i] &= word
		}
	}
}

// before yields the rules before y that remain candidates.
func (s *prefilter) before(y int) func(yield func(x int) bool) {
	return func(yield func(int) bool) {
		for i, word := range s.rows[y*s.words : y*s.words+y/64+1] {
			if i == y/64 {
				word &= 1<<(y%64) - 1
			}
			for ; word != 0; word &= word - 1 {
				if !yield(i*64 + bits.TrailingZeros64(word)) {
					return
				}
			}
		}
	}
}
