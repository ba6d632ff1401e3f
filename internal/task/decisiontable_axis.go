package task

import (
	"cmp"
	"encoding/json"
	"slices"

	"github.com/cockroachdb/apd/v3"
)

// axis orders all values that a column can take, so that cells become ranges of small
// integers. The constants in the column's cells divide the values of their kind. Each
// constant has a rank, and so has each gap between two constants. Evaluation finds the
// rank of a value once, by binary search. To test a cell is then to compare integers,
// independent of the number of digits.
//
// Ranks: null 0, false 1, true 2, then the numbers, then the texts, and last everything
// else.
type axis struct {
	numbers []*apd.Decimal // ascending, distinct
	texts   []string       // ascending, distinct
}

// span is a range of ranks, both ends included; empty if low > high.
type span struct{ low, high uint32 }

const (
	rankNull    = 0
	rankFalse   = 1
	rankTrue    = 2
	rankNumbers = 3
)

// rankTexts is the first rank of a text.
func (a *axis) rankTexts() uint32 { return rankNumbers + uint32(2*len(a.numbers)+1) }

// rankOther is the rank of arrays and objects, and the last of all.
func (a *axis) rankOther() uint32 { return a.rankTexts() + uint32(2*len(a.texts)+1) }

func (a *axis) all() span { return span{rankNull, a.rankOther()} }

// newAxis returns the axis on which the tests of cells can be placed.
func newAxis(cells []cell) *axis {
	a := &axis{}
	for _, c := range cells {
		for _, t := range c.tests {
			for _, end := range []*literal{t.low, t.high} {
				if end == nil {
					continue
				}
				switch end.kind {
				case kindNumber:
					a.numbers = append(a.numbers, end.number)
				case kindText:
					a.texts = append(a.texts, end.text)
				default: // the other kinds have fixed ranks
				}
			}
		}
	}
	slices.SortFunc(a.numbers, (*apd.Decimal).Cmp)
	a.numbers = slices.CompactFunc(a.numbers, func(x, y *apd.Decimal) bool { return x.Cmp(y) == 0 })
	slices.Sort(a.texts)
	a.texts = slices.Compact(a.texts)
	return a
}

// rank places a value.
func (a *axis) rank(v any) uint32 {
	switch v := v.(type) {
	case nil:
		return rankNull
	case bool:
		if v {
			return rankTrue
		}
		return rankFalse
	case json.Number:
		d := new(apd.Decimal)
		if _, _, err := d.SetString(v.String()); err != nil {
			return a.rankOther()
		}
		return a.rankNumber(d)
	case string:
		return a.rankText(v)
	}
	return a.rankOther()
}

func (a *axis) rankNumber(d *apd.Decimal) uint32 {
	i, found := slices.BinarySearchFunc(a.numbers, d, (*apd.Decimal).Cmp)
	return rankNumbers + gapOrConstant(i, found)
}

func (a *axis) rankText(s string) uint32 {
	i, found := slices.BinarySearch(a.texts, s)
	return a.rankTexts() + gapOrConstant(i, found)
}

// gapOrConstant numbers gap 0, constant 0, gap 1, constant 1, …
func gapOrConstant(i int, found bool) uint32 {
	if found {
		return uint32(2*i + 1)
	}
	return uint32(2 * i)
}

func (a *axis) rankLiteral(l *literal) uint32 {
	switch l.kind {
	case kindBool:
		return a.rank(l.truth)
	case kindNumber:
		return a.rankNumber(l.number)
	case kindText:
		return a.rankText(l.text)
	default:
		return rankNull
	}
}

// kindSpan is the span of all values of a kind that can be ordered.
func (a *axis) kindSpan(k kind) span {
	if k == kindNumber {
		return span{rankNumbers, a.rankTexts() - 1}
	}
	return span{a.rankTexts(), a.rankOther() - 1}
}

// place turns a cell into the spans of values for which it holds, ascending
// and apart from each other; none if it can never hold.
func (a *axis) place(c cell) []span {
	if c.any {
		return []span{a.all()}
	}
	var spans []span
	for _, t := range c.tests {
		s := a.placeTest(t)
		if t.outside {
			spans = append(spans, a.complement(merge([]span{s}))...)
		} else {
			spans = append(spans, s)
		}
	}
	spans = merge(spans)
	if c.negated {
		return a.complement(spans)
	}
	return spans
}

func (a *axis) placeTest(t test) span {
	end := t.low
	if end == nil {
		end = t.high
	}
	if end.kind != kindNumber && end.kind != kindText {
		r := a.rankLiteral(end)
		return span{r, r}
	}
	s := a.kindSpan(end.kind)
	if t.low != nil {
		s.low = a.rankLiteral(t.low)
		if t.lowOpen {
			s.low++
		}
	}
	if t.high != nil {
		s.high = a.rankLiteral(t.high)
		if t.highOpen {
			s.high-- // the rank of a constant is at least rankNumbers + 1
		}
	}
	return s
}

// nests reports whether an entry of a cell's list is within another, as it is in
// >= 1,500: at least 1, or 500.
func (a *axis) nests(c cell) bool {
	var spans []span
	for _, t := range c.tests {
		if s := a.placeTest(t); s.low <= s.high && !t.outside {
			spans = append(spans, s)
		}
	}
	slices.SortFunc(spans, func(x, y span) int { return cmp.Or(cmp.Compare(x.low, y.low), cmp.Compare(y.high, x.high)) })
	for i := 1; i < len(spans); i++ {
		if spans[i].high <= spans[i-1].high {
			return true
		}
	}
	return false
}

// merge sorts spans, drops empty ones and joins those that touch.
func merge(spans []span) []span {
	slices.SortFunc(spans, func(x, y span) int { return int(x.low) - int(y.low) })
	var out []span
	for _, s := range spans {
		switch {
		case s.low > s.high:
		case len(out) > 0 && s.low <= out[len(out)-1].high+1:
			out[len(out)-1].high = max(out[len(out)-1].high, s.high)
		default:
			out = append(out, s)
		}
	}
	return out
}

// complement returns the ranks that are in none of the merged spans.
func (a *axis) complement(spans []span) []span {
	var out []span
	next := uint32(rankNull)
	for _, s := range spans {
		if s.low > next {
			out = append(out, span{next, s.low - 1})
		}
		next = s.high + 1
	}
	if next <= a.rankOther() {
		out = append(out, span{next, a.rankOther()})
	}
	return out
}

// intersect returns the ranks that are in both of two merged lists.
func intersect(x, y []span) []span {
	var out []span
	for i, j := 0, 0; i < len(x) && j < len(y); {
		if s := (span{max(x[i].low, y[j].low), min(x[i].high, y[j].high)}); s.low <= s.high {
			out = append(out, s)
		}
		if x[i].high < y[j].high {
			i++
		} else {
			j++
		}
	}
	return out
}

// meet reports whether two merged lists have a rank in common.
func meet(x, y []span) bool {
	for i, j := 0, 0; i < len(x) && j < len(y); {
		switch {
		case x[i].high < y[j].low:
			i++
		case y[j].high < x[i].low:
			j++
		default:
			return true
		}
	}
	return false
}

func contain(spans []span, rank uint32) bool {
	for _, s := range spans {
		if rank <= s.high {
			return rank >= s.low
		}
	}
	return false
}

// covers reports whether every rank of y is in x; both are merged.
func covers(x, y []span) bool {
	i := 0
	for _, s := range y {
		for i < len(x) && x[i].high < s.low {
			i++
		}
		if i == len(x) || x[i].low > s.low || x[i].high < s.high {
			return false
		}
	}
	return true
}
