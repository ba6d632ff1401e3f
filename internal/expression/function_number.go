package expression

import (
	"regexp"
	"strings"

	"github.com/cockroachdb/apd/v3"
)

// Limits of arguments.
const (
	placesMax  = 400    // decimal places
	periodsMax = 10_000 // of pmt
	// typedLengthMax bounds the text that number reads, in bytes.
	typedLengthMax = 200
)

func numberFunction(name string) function {
	switch name {
	case "round":
		return function{1, 2, rounding(apd.RoundHalfEven)}
	case "floor":
		return function{1, 2, rounding(apd.RoundFloor)}
	case "ceil":
		return function{1, 2, rounding(apd.RoundCeiling)}
	case "abs":
		return function{1, 1, absolute}
	case "pow":
		return function{2, 2, pow}
	case "pmt":
		return function{3, 3, pmt}
	case "sum":
		return function{1, 1, total}
	case "avg", "mean":
		return function{1, anyNumber, average}
	case "median":
		return function{1, anyNumber, median}
	case "min":
		return function{1, anyNumber, outermost(-1)}
	case "max":
		return function{1, anyNumber, outermost(+1)}
	case "number", "float":
		return function{1, 1, func(c *call) (any, error) { return boxed(c.typed()) }}
	case "int":
		return function{1, 1, asInteger}
	default:
		return function{}
	}
}

func rounding(to apd.Rounder) func(*call) (any, error) {
	return func(c *call) (any, error) {
		n, err := c.number(0)
		if err != nil {
			return nil, err
		}
		places, err := c.whole(1, 0, placesMax)
		if err != nil {
			return nil, err
		}
		return boxed(roundTo(c.run.newNumber(), n, places, to))
	}
}

func absolute(c *call) (any, error) {
	n, err := c.number(0)
	if err != nil {
		return nil, err
	}
	if !strings.HasPrefix(n.String(), "-") { // which -0 has
		return n, nil
	}
	return boxed(negate(c.run.newNumber(), n))
}

func pow(c *call) (any, error) {
	base, err := c.number(0)
	if err != nil {
		return nil, err
	}
	exponent, err := c.number(1)
	if err != nil {
		return nil, err
	}
	return boxed(c.run.power(base, exponent))
}

func pmt(c *call) (any, error) {
	rate, err := c.number(0)
	if err != nil {
		return nil, err
	}
	periods, err := c.whole(1, 0, periodsMax)
	if err != nil {
		return nil, err
	}
	principal, err := c.number(2)
	if err != nil {
		return nil, err
	}
	if periods < 1 {
		return nil, problem("pmt needs at least one period")
	}
	if rate.cmp(newNumber(-1)) <= 0 {
		return nil, problem("pmt needs a rate above -1")
	}
	if err := c.run.step(powerSteps); err != nil {
		return nil, err
	}
	return boxed(payment(rate, periods, principal))
}

// values are the elements of the one list that was given, or the arguments.
func (c *call) values() ([]any, error) {
	if list, ok := c.args[0].([]any); ok && len(c.args) == 1 {
		return list, c.run.step(len(list))
	}
	if len(c.args) == 1 && !isNumber(c.args[0]) {
		return nil, c.wrong(0, "a list")
	}
	return c.args, nil
}

// numbers are the values, each a number.
func (c *call) numbers() ([]any, error) {
	values, err := c.values()
	if err != nil {
		return nil, err
	}
	for _, v := range values {
		if !isNumber(v) {
			return nil, problemf("%s needs numbers, but one of them is %s", c.name, kind(v))
		}
	}
	return values, nil
}

func total(c *call) (any, error) {
	values, err := c.numbers()
	if err != nil {
		return nil, err
	}
	return boxed(sum(values))
}

// average of nothing is null.
func average(c *call) (any, error) {
	values, err := c.numbers()
	if err != nil || len(values) == 0 {
		return nil, err
	}
	total, err := sum(values)
	if err != nil {
		return nil, err
	}
	return boxed(divide(new(number), total, newNumber(len(values))))
}

// median of nothing is null.
func median(c *call) (any, error) {
	values, err := c.numbers()
	if err != nil || len(values) == 0 {
		return nil, err
	}
	if err := c.run.list(2 * len(values)); err != nil {
		return nil, err
	}
	ordered, err := c.run.sort(c.name, values, values, nil)
	if err != nil {
		return nil, err
	}
	middle := len(ordered) / 2
	high, _ := toNumber(ordered[middle])
	if len(ordered)%2 == 1 {
		return high, nil
	}
	low, _ := toNumber(ordered[middle-1])
	both, err := add(new(number), low, high)
	if err != nil {
		return nil, err
	}
	return boxed(divide(new(number), both, newNumber(2)))
}

// outermost is min or max, of numbers, texts or dates; of nothing it is null.
func outermost(sign int) func(*call) (any, error) {
	return func(c *call) (any, error) {
		values := c.args
		if list, ok := c.args[0].([]any); ok && len(c.args) == 1 {
			values = list
		}
		if err := c.run.step(len(values)); err != nil {
			return nil, err
		}
		v, err := c.run.extreme(values, sign)
		if err == errNotOrdered { //nolint:errorlint // a constant that is never wrapped
			return nil, problemf("%s needs numbers only, texts only or dates only", c.name)
		}
		return v, err
	}
}

// typed reads a number, or text that is one.
func (c *call) typed() (*number, error) {
	if n, ok := toNumber(c.args[0]); ok {
		return n, nil
	}
	text, ok := c.args[0].(string)
	if !ok {
		return nil, c.wrong(0, "a number or text")
	}
	plain, ok := plainText(text)
	n, isNumber := parseNumber(plain)
	if !ok || !isNumber {
		return nil, problemf("%s cannot read a number from %s", c.name, c.labels[0])
	}
	return n, nil
}

// numberText is how people type a number.
var numberText = regexp.MustCompile(`^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$`)

// plainText writes a number that was typed as JSON would.
func plainText(text string) (string, bool) {
	text = strings.TrimSpace(text)
	if len(text) > typedLengthMax || !numberText.MatchString(text) {
		return "", false
	}
	if digits, ok := strings.CutPrefix(text, "-"); ok {
		return "-" + plainLiteral(digits), true
	}
	return plainLiteral(strings.TrimPrefix(text, "+")), true
}

// asInteger drops the decimal places.
func asInteger(c *call) (any, error) {
	n, err := c.typed()
	if err != nil {
		return nil, err
	}
	return boxed(roundTo(new(number), n, 0, apd.RoundDown))
}
