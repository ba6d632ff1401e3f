package task

import (
	"encoding/json"
	"fmt"
	"math/big"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func num(s string) any { return json.Number(s) }

// holds places one cell on its own axis and asks for one value.
func holds(t require.TestingT, source string, v any) bool {
	c, err := parseCell(source)
	require.NoError(t, err, source)
	a := newAxis([]cell{c})
	return contain(a.place(c), a.rank(v))
}

func TestCells(t *testing.T) {
	t.Parallel()
	object := map[string]any{}
	for _, c := range []struct {
		source  string
		hits    []any
		hitsNot []any
	}{
		{"", []any{nil, true, num("1"), "a", object}, nil},
		{" - ", []any{nil, false, num("-1"), "", object}, nil},
		{"650", []any{num("650"), num("650.00"), num("6.5e2")}, []any{nil, "650", num("650.000000000000000000000000000001"), true, object}},
		{"-1.5", []any{num("-1.50")}, []any{num("1.5")}},
		{">= -1", []any{num("-1"), num("-0.5")}, []any{num("-1.5"), num("-1.0000001")}},
		{"< -1", []any{num("-1.5")}, []any{num("-1"), num("-0.5")}},
		{">= 0.5", []any{num("999999999999999999"), num("0.50")}, []any{num("-999999999999999999")}},
		{`"a"`, []any{"a"}, []any{"A", nil, "a "}},
		{`'it\'s'`, []any{"it's"}, nil},
		{`"say \"hi\"\nä"`, []any{"say \"hi\"\nä"}, nil},
		{`'"'`, []any{`"`}, nil},
		{`""`, []any{""}, []any{nil, "a"}},
		{"true", []any{true}, []any{false, nil, "true", num("1")}},
		{"false", []any{false}, []any{nil}},
		{"null", []any{nil}, []any{false, num("0"), "", object}},
		{`"a","b" , "c"`, []any{"a", "b", "c"}, []any{"d", nil}},
		{`1, true, null, "x"`, []any{num("1"), true, nil, "x"}, []any{false, num("2"), "y"}},
		{">= 650", []any{num("650"), num("651")}, []any{num("649.99"), nil, object}},
		{">650", []any{num("650.01")}, []any{num("650")}},
		{"<= -1", []any{num("-1"), num("-2")}, []any{num("0"), nil}},
		{"< 0.3", []any{num("0.29999999999999999999999999")}, []any{num("0.30")}},
		{"= 5", []any{num("5")}, []any{num("4")}},
		{"== 5", []any{num("5")}, []any{num("4")}},
		{"!= 5", []any{num("4"), nil, "5"}, []any{num("5.0")}},
		{`>= "2026-01-01"`, []any{"2026-01-01", "2026-11-21"}, []any{"2025-12-31", nil}},
		{"[1..5]", []any{num("1"), num("3"), num("5")}, []any{num("0.99"), num("5.01"), nil}},
		{"(1..5)", []any{num("1.01"), num("4.99")}, []any{num("1"), num("5")}},
		{"[600..700)", []any{num("600"), num("699.99")}, []any{num("700")}},
		{"(600..700]", []any{num("700")}, []any{num("600")}},
		{"]1..5[", []any{num("2")}, []any{num("1"), num("5")}},
		{"[1.5..2.5]", []any{num("1.5"), num("2")}, []any{num("1.4")}},
		{"[650..]", []any{num("650"), num("1e30")}, []any{num("649"), nil, "700"}},
		{"[..5)", []any{num("-1e30"), num("4")}, []any{num("5"), nil}},
		{"( .. 5 ]", []any{num("5")}, []any{num("6")}},
		{`["a".."c"]`, []any{"a", "bzz", "c"}, []any{"ca", "A"}},
		{"[1..2], [4..5], > 10", []any{num("1"), num("4.5"), num("11")}, []any{num("3"), num("10")}},
		{"not(5)", []any{num("4"), nil, "5", object}, []any{num("5")}},
		{`not("a", "b")`, []any{"c", nil}, []any{"a", "b"}},
		{"not ( [1..5] )", []any{num("0"), num("6"), nil}, []any{num("1"), num("5")}},
		{"not(null)", []any{false, num("0"), "", object}, []any{nil}},
		{"[5..1]", nil, []any{num("1"), num("3"), num("5"), nil}},
		{"(5..5)", nil, []any{num("5")}},
		{"not([5..1])", []any{num("1"), nil}, nil},
		{"!= 5, 5", []any{num("5"), num("4"), nil}, nil},
	} {
		for _, v := range c.hits {
			require.True(t, holds(t, c.source, v), "%s should hold for %v", c.source, v)
		}
		for _, v := range c.hitsNot {
			require.False(t, holds(t, c.source, v), "%s should not hold for %v", c.source, v)
		}
	}
}

func TestTextsThatAreExpressions(t *testing.T) {
	t.Parallel()
	for _, source := range []string{
		"$ > 5", "input.x", "$ > input.limit", `includes($, "a")`, "5 + 1", "(5)", "[1, 2]", "5..10", "[..]", "gold", "not gold",
		"not($ > 5)", `not("a") && true`, "notable", "1_000", "01", ">=", ">= input.x", `"open`, `"a" "b"`, "1,", ",1", "trueish", "- 5",
		"not(-)", "not()", "[1..5", "1..5]", "$", "+5", ".5", "5.", "1e", `"\q"`, "\"a\nb\"",
	} {
		_, err := parseCell(source)
		require.ErrorIs(t, err, errNotCell, source)
	}
	for source, want := range map[string]error{
		`["a"..5]`: errRangeKinds, `[1.."5")`: errRangeKinds, ">= true": errOrder, "< null": errOrder, "[null..5]": errOrder, "(..true]": errOrder,
	} {
		_, err := parseCell(source)
		require.ErrorIs(t, err, want, source)
	}
}

// A cell of numbers means what arithmetic says, for any constants and values.
func TestCellsAgainstRationals(t *testing.T) {
	t.Parallel()
	decimal := rapid.Custom(func(t *rapid.T) string {
		return fmt.Sprintf("%d.%02d", rapid.IntRange(-3, 3).Draw(t, "whole"), rapid.IntRange(0, 2).Draw(t, "cents"))
	})
	rapid.Check(t, func(t *rapid.T) {
		low, high, value := decimal.Draw(t, "low"), decimal.Draw(t, "high"), decimal.Draw(t, "value")
		open, shut := rapid.SampledFrom([]string{"[", "("}).Draw(t, "open"), rapid.SampledFrom([]string{"]", ")"}).Draw(t, "shut")
		l, h, v := rational(low), rational(high), rational(value)
		inside := (v.Cmp(l) > 0 || open == "[" && v.Cmp(l) == 0) && (v.Cmp(h) < 0 || shut == "]" && v.Cmp(h) == 0)
		interval := open + low + ".." + high + shut
		require.Equal(t, inside, holds(t, interval, num(value)))
		require.Equal(t, !inside, holds(t, "not("+interval+")", num(value)))
		require.Equal(t, inside || v.Cmp(l) < 0, holds(t, interval+", < "+low, num(value)))
		require.Equal(t, v.Cmp(h) != 0, holds(t, "!= "+high, num(value)))
	})
}

func rational(s string) *big.Rat {
	r, _ := new(big.Rat).SetString(s)
	return r
}

// FuzzCell checks that no text upsets the parser, and that whatever it reads
// can be placed, together with its opposite covers every value once.
func FuzzCell(f *testing.F) {
	for _, seed := range []string{"", "-", ">= 650", "[1..5)", `not("a",'b')`, "1e400", "]..5[", `"\u00e4"`, "!= null, true"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, source string) {
		c, err := parseCell(source)
		if err != nil {
			return
		}
		a := newAxis([]cell{c})
		spans := a.place(c)
		opposite := c
		opposite.negated, opposite.any = !c.negated, false
		if c.any {
			require.Equal(t, []span{a.all()}, spans)
			return
		}
		rest := a.place(opposite)
		require.Empty(t, intersect(spans, rest))
		require.Equal(t, []span{a.all()}, merge(append(append([]span{}, spans...), rest...)))
		require.True(t, covers(spans, spans))
		require.False(t, meet(spans, rest))
	})
}

func TestLiteralsKeepManyDigits(t *testing.T) {
	t.Parallel()
	long := "0." + strings.Repeat("3", 98)
	require.True(t, holds(t, long, num(long)))
	require.False(t, holds(t, long, num(long[:len(long)-1])))
	_, err := parseCell("1e401")
	require.ErrorIs(t, err, errNotCell)
}
