package expression_test

import (
	"encoding/json"
	"math/big"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tranche/internal/exactjson"
	"tranche/internal/expression"
)

// decimalText draws numbers as JSON writes them: short money amounts, long
// ones, and ones with an exponent.
func decimalText() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.StringMatching(`-?(0|[1-9][0-9]{0,6})(\.[0-9]{1,3})?`),
		rapid.StringMatching(`-?(0|[1-9][0-9]{0,39})(\.[0-9]{1,40})?`),
		rapid.StringMatching(`-?[1-9](\.[0-9]{1,20})?[eE][+-]?[0-9]{1,2}`),
	)
}

func rational(t require.TestingT, text string) *big.Rat {
	r, ok := new(big.Rat).SetString(text)
	require.True(t, ok, text)
	return r
}

// rounded is the independent model of a computed number: exact, then 34
// significant digits, half to even.
func rounded(exact *big.Rat) *big.Rat {
	if exact.Sign() == 0 {
		return exact
	}
	ten := big.NewInt(10)
	low := new(big.Int).Exp(ten, big.NewInt(expression.Precision-1), nil)
	high := new(big.Int).Mul(low, ten)
	scale := new(big.Rat).SetInt64(1)
	up, down := big.NewRat(10, 1), big.NewRat(1, 10)
	magnitude := new(big.Rat).Abs(exact)
	scaled := new(big.Rat).Set(magnitude)
	for scaled.Cmp(new(big.Rat).SetInt(low)) < 0 {
		scaled.Mul(scaled, up)
		scale.Mul(scale, down)
	}
	for scaled.Cmp(new(big.Rat).SetInt(high)) >= 0 {
		scaled.Mul(scaled, down)
		scale.Mul(scale, up)
	}
	whole, rest := new(big.Int).QuoRem(scaled.Num(), scaled.Denom(), new(big.Int))
	half := rest.Lsh(rest, 1).Cmp(scaled.Denom())
	if half > 0 || half == 0 && whole.Bit(0) == 1 {
		whole.Add(whole, big.NewInt(1))
	}
	result := new(big.Rat).Mul(new(big.Rat).SetInt(whole), scale)
	if exact.Sign() < 0 {
		result.Neg(result)
	}
	return result
}

func evalWith(t require.TestingT, source, a, b string) any {
	x, err := expression.Compile(source, expression.Scope{})
	require.NoError(t, err, source)
	v, err := x.Eval(&expression.Env{Input: map[string]any{"a": json.Number(a), "b": json.Number(b)}})
	require.NoError(t, err, "%s with %s and %s", source, a, b)
	return v
}

func TestArithmeticIsExact(t *testing.T) {
	t.Parallel()
	operators := map[string]func(z, x, y *big.Rat) *big.Rat{
		"+": (*big.Rat).Add, "-": (*big.Rat).Sub, "*": (*big.Rat).Mul, "/": (*big.Rat).Quo,
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := decimalText().Draw(t, "a"), decimalText().Draw(t, "b")
		operator := rapid.SampledFrom([]string{"+", "-", "*", "/"}).Draw(t, "operator")
		x, y := rational(t, a), rational(t, b)
		if operator == "/" && y.Sign() == 0 {
			return
		}
		want := rounded(operators[operator](new(big.Rat), x, y))
		// The same through input and through literals.
		for _, source := range []string{
			"input.a " + operator + " input.b",
			"(" + a + ") " + operator + " (" + b + ")",
		} {
			text, ok := evalWith(t, source, a, b).(json.Number)
			require.True(t, ok)
			require.Zero(t, want.Cmp(rational(t, string(text))), "%s: got %s, want %s", source, text, want.FloatString(50))
			requirePlain(t, string(text))
		}
	})
}

// requirePlain holds that a computed number is valid JSON, within the limits
// of what is read, and without needless zeros.
func requirePlain(t require.TestingT, text string) {
	v, err := exactjson.Decode([]byte(text))
	require.NoError(t, err, text)
	require.Equal(t, json.Number(text), v)
	require.NotEqual(t, "-0", text)
	if strings.ContainsAny(text, "e") {
		return
	}
	if strings.Contains(text, ".") {
		require.False(t, strings.HasSuffix(text, "0"), text)
	}
}

func TestComparisonIsExact(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b := decimalText().Draw(t, "a"), decimalText().Draw(t, "b")
		if rapid.Bool().Draw(t, "near") && !strings.ContainsAny(a, "eE.") {
			b = a + ".0000000000000000000000000000000000000" + rapid.SampledFrom([]string{"0", "1"}).Draw(t, "last")
		}
		order := rational(t, a).Cmp(rational(t, b))
		require.Equal(t, order < 0, evalWith(t, "input.a < input.b", a, b))
		require.Equal(t, order <= 0, evalWith(t, "input.a <= input.b", a, b))
		require.Equal(t, order > 0, evalWith(t, "("+a+") > ("+b+")", a, b))
		require.Equal(t, order >= 0, evalWith(t, "input.a >= ("+b+")", a, b))
		require.Equal(t, order == 0, evalWith(t, "input.a == input.b", a, b))
		require.Equal(t, order == 0, evalWith(t, "input.a in [input.b]", a, b))
		got, err := expression.Compare(json.Number(a), json.Number(b))
		require.NoError(t, err)
		require.Equal(t, order, got)
		require.Equal(t, order == 0, expression.Equal(json.Number(a), json.Number(b)))
	})
}

func TestRoundingIsExact(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.StringMatching(`-?(0|[1-9][0-9]{0,20})(\.[0-9]{1,10})?`).Draw(t, "a")
		places := rapid.IntRange(-3, 8).Draw(t, "places")
		x := rational(t, a)
		unit := new(big.Rat).SetFrac(big.NewInt(1), new(big.Int).Exp(big.NewInt(10), big.NewInt(8), nil))
		for range 8 - places {
			unit.Mul(unit, big.NewRat(10, 1))
		}
		number := func(source string) *big.Rat {
			text, ok := evalWith(t, source, a, strconv.Itoa(places)).(json.Number)
			require.True(t, ok)
			requirePlain(t, string(text))
			return rational(t, string(text))
		}
		low, near, high := number("floor(input.a, input.b)"), number("round(input.a, input.b)"), number("ceil(input.a, input.b)")
		require.LessOrEqual(t, low.Cmp(x), 0)
		require.GreaterOrEqual(t, high.Cmp(x), 0)
		require.Negative(t, new(big.Rat).Sub(x, low).Cmp(unit))
		require.Negative(t, new(big.Rat).Sub(high, x).Cmp(unit))
		require.True(t, near.Cmp(low) == 0 || near.Cmp(high) == 0)
		distance := new(big.Rat).Abs(new(big.Rat).Sub(x, near))
		half := distance.Add(distance, distance).Cmp(unit)
		require.LessOrEqual(t, half, 0)
		if half == 0 {
			even := new(big.Rat).Quo(near, unit)
			require.True(t, even.IsInt())
			require.Zero(t, even.Num().Bit(0), "a half goes to the even neighbour")
		}
	})
}

func TestSumIsExactInAnyOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		texts := rapid.SliceOf(rapid.StringMatching(`-?(0|[1-9][0-9]{0,9})(\.[0-9]{1,4})?`)).Draw(t, "numbers")
		want := new(big.Rat)
		values := make([]any, len(texts))
		for i, text := range texts {
			want.Add(want, rational(t, text))
			values[i] = json.Number(text)
		}
		got, err := expression.Sum(values)
		require.NoError(t, err)
		total, ok := got.(json.Number)
		require.True(t, ok)
		require.Zero(t, want.Cmp(rational(t, string(total))))
	})
}

func TestPassedOnNumbersKeepTheirText(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a := decimalText().Draw(t, "a")
		for _, source := range []string{"input.a", "[input.a][0]", "{\"x\": input.a}.x", "false ? 0 : input.a", "max([input.a])", "map([input.a], #)[0]"} {
			require.Equal(t, json.Number(a), evalWith(t, source, a, "0"), source)
		}
	})
}

func TestHelpers(t *testing.T) {
	t.Parallel()
	numbers := []any{json.Number("2.50"), json.Number("-1"), json.Number("3.0")}
	least, err := expression.Min(numbers)
	require.NoError(t, err)
	require.Equal(t, json.Number("-1"), least)
	most, err := expression.Max(numbers)
	require.NoError(t, err)
	require.Equal(t, json.Number("3.0"), most)
	total, err := expression.Sum(nil)
	require.NoError(t, err)
	require.Equal(t, json.Number("0"), total)
	none, err := expression.Max(nil)
	require.NoError(t, err)
	require.Nil(t, none)
	order, err := expression.Compare("a", "b")
	require.NoError(t, err)
	require.Equal(t, -1, order)

	_, err = expression.Sum([]any{json.Number("1"), nil})
	require.EqualError(t, err, "only numbers can be added, but an element is null")
	for _, pair := range [][2]any{{nil, nil}, {json.Number("1"), nil}, {json.Number("1"), "1"}, {true, false}, {[]any{}, []any{}}} {
		_, err = expression.Compare(pair[0], pair[1])
		require.EqualError(t, err, "only two numbers, two texts or two dates can be compared")
		_, err = expression.Min([]any{pair[0], pair[1]})
		require.Error(t, err)
	}
	require.True(t, expression.Equal(nil, nil))
	require.True(t, expression.Equal([]any{json.Number("1.0")}, []any{json.Number("1")}))
	require.False(t, expression.Equal("1", json.Number("1")))
	require.False(t, expression.Equal(nil, false))
}
