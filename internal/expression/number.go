package expression

import (
	"encoding/json"
	"strings"

	"github.com/cockroachdb/apd/v3"

	"tranche/internal/exactjson"
)

// Precision is the number of significant digits of a computed number, after
// IEEE 754 decimal128; results are rounded half to even.
const Precision = 34

const (
	errRange       problem = "the result is out of range: numbers lie between 1e-400 and 1e400"
	errDivideZero  problem = "division by zero"
	errNotComputed problem = "the result cannot be computed"
)

// The contexts of arithmetic are never written to, and too large to build for
// every operation.
//
//nolint:gochecknoglobals // constants that Go cannot express
var (
	exact = apd.Context{
		Precision: Precision, MaxExponent: apd.MaxExponent, MinExponent: apd.MinExponent,
		Rounding: apd.RoundHalfEven, Traps: apd.DefaultTraps,
	}
	// wide holds every number that is accepted, so that rounding to decimal
	// places never loses leading digits.
	wide  = *exact.WithPrecision(1000)
	guard = *exact.WithPrecision(100) // of intermediate results
)

// number is an exact decimal. Decimals are shared between evaluations and
// never changed once made.
type number struct {
	dec apd.Decimal
	// text is how a number that was not computed is written; "" if computed.
	text string
}

func newNumber(n int) *number {
	r := new(number)
	r.dec.SetInt64(int64(n))
	return r
}

// parseNumber reads a number as JSON writes it.
func parseNumber(text string) (*number, bool) {
	n := new(number)
	return n, n.parse(text)
}

// parse makes n, which is new, the number that JSON writes so.
func (n *number) parse(text string) bool {
	n.text = text
	if coefficient, places, ok := parseShort(text); ok {
		n.dec.SetFinite(coefficient, int32(-places))
		return true
	}
	if text == "" || strings.Trim(text, "+-.0123456789eE") != "" || !exactjson.NumberFits(text) {
		return false
	}
	_, _, err := n.dec.SetString(text)
	return err == nil && n.dec.Form == apd.Finite
}

// shortMax is the length up to which digits and a point fit an int64.
const shortMax = 18

// parseShort reads a number such as -123.45, as nearly all are written, as coefficient ×
// 10^-places. Both are below 10^18 and 19; any other number is not ok.
func parseShort(text string) (coefficient int64, places int, ok bool) {
	digits, negative := strings.CutPrefix(text, "-")
	if digits == "" || len(digits) > shortMax || digits[0] == '.' {
		return 0, 0, false
	}
	point := false
	for i := range len(digits) {
		switch c := digits[i]; {
		case c >= '0' && c <= '9':
			coefficient = coefficient*10 + int64(c-'0')
			if point {
				places++
			}
		case c == '.' && !point:
			point = true
		default:
			return 0, 0, false
		}
	}
	if negative {
		coefficient = -coefficient
	}
	return coefficient, places, true
}

// toNumber returns the number that v is.
func toNumber(v any) (*number, bool) {
	switch v := v.(type) {
	case *number:
		return v, true
	case json.Number:
		return parseNumber(string(v))
	default:
		return nil, false
	}
}

// String writes a computed number plainly and without trailing zeros, and one
// that was passed on as it was written. A number that would need more digits
// than JSON input may have is written with an exponent.
func (n *number) String() string {
	if n.text != "" {
		return n.text
	}
	var d apd.Decimal
	d.Reduce(&n.dec)
	digits := d.NumDigits()
	if d.Exponent > 0 {
		digits += int64(d.Exponent)
	} else {
		digits = max(digits, 1-int64(d.Exponent))
	}
	if digits > exactjson.DigitsMax {
		return d.Text('e')
	}
	return d.Text('f')
}

// plain writes a number without an exponent, however many digits it takes.
func (n *number) plain() string {
	var d apd.Decimal
	d.Reduce(&n.dec)
	return d.Text('f')
}

// whole returns the integer that n is, if it is one within ±10^15.
func (n *number) whole() (int, bool) {
	var d apd.Decimal
	d.Reduce(&n.dec)
	if d.Exponent < 0 || d.NumDigits()+int64(d.Exponent) > 15 {
		return 0, false
	}
	i, err := d.Int64()
	return int(i), err == nil
}

func (n *number) cmp(m *number) int { return n.dec.Cmp(&m.dec) }

// computed checks the range of a result and drops the sign of zero.
func computed(n *number, err error) (*number, error) {
	if err != nil {
		return nil, errNotComputed
	}
	if n.dec.Form != apd.Finite {
		return nil, errRange
	}
	if n.dec.IsZero() {
		n.dec.SetInt64(0)
		return n, nil
	}
	if magnitude := n.dec.NumDigits() + int64(n.dec.Exponent) - 1; magnitude > exactjson.ExponentMax || magnitude < -exactjson.ExponentMax {
		return nil, errRange
	}
	return n, nil
}

// The operations make n, which is new, their result and return it.

func add(n, a, b *number) (*number, error) {
	_, err := exact.Add(&n.dec, &a.dec, &b.dec)
	return computed(n, err)
}

func subtract(n, a, b *number) (*number, error) {
	_, err := exact.Sub(&n.dec, &a.dec, &b.dec)
	return computed(n, err)
}

func multiply(n, a, b *number) (*number, error) {
	_, err := exact.Mul(&n.dec, &a.dec, &b.dec)
	return computed(n, err)
}

func divide(n, a, b *number) (*number, error) {
	if b.dec.IsZero() {
		return nil, errDivideZero
	}
	_, err := exact.Quo(&n.dec, &a.dec, &b.dec)
	return computed(n, err)
}

// remainder has the sign of a, as in every language with %.
func remainder(n, a, b *number) (*number, error) {
	if b.dec.IsZero() {
		return nil, errDivideZero
	}
	_, err := wide.Rem(&n.dec, &a.dec, &b.dec)
	return computed(n, err)
}

func negate(n, a *number) (*number, error) {
	n.dec.Neg(&a.dec)
	return computed(n, nil)
}

// roundTo rounds to a number of decimal places, negative for tens and hundreds.
func roundTo(n, a *number, places int, rounding apd.Rounder) (*number, error) {
	if int64(a.dec.Exponent) >= -int64(places) {
		n.dec.Set(&a.dec)
		return computed(n, nil)
	}
	context := wide
	context.Rounding = rounding
	if _, err := context.Quantize(&n.dec, &a.dec, int32(-places)); err != nil {
		return nil, errNotComputed
	}
	// apd rounds a number below a tenth of the last place to zero in every direction.
	if n.dec.IsZero() && !a.dec.IsZero() {
		switch {
		case rounding == apd.RoundCeiling && !a.dec.Negative:
			n.dec.SetFinite(1, int32(-places))
		case rounding == apd.RoundFloor && a.dec.Negative:
			n.dec.SetFinite(-1, int32(-places))
		}
	}
	n.dec.Reduce(&n.dec)
	return computed(n, nil)
}

// powerGuard is how many digits more than a power's own are computed. What is
// rounded on the way counts as often as the exponent says, so each of its digits
// before the point asks for a further one.
const powerGuard = 10

// power raises a to b; 0 to the power of 0 is 1.
func power(a, b *number) (*number, error) {
	if a.dec.IsZero() {
		switch b.dec.Sign() {
		case 0:
			return newNumber(1), nil
		case -1:
			return nil, errDivideZero
		}
	}
	n := new(number)
	digits := Precision + powerGuard + max(0, b.dec.NumDigits()+int64(b.dec.Exponent))
	_, err := exact.WithPrecision(uint32(digits)).Pow(&n.dec, &a.dec, &b.dec)
	var fraction apd.Decimal
	b.dec.Modf(nil, &fraction)
	if err != nil && a.dec.Negative && !fraction.IsZero() {
		return nil, problem("a negative number can be raised only to a whole power")
	}
	if err != nil {
		return nil, errRange
	}
	_, err = exact.Round(&n.dec, &n.dec)
	return computed(n, err)
}

// rateTiny is the magnitude below which a rate changes no digit of a payment.
const rateTiny = -45

// payment is the equal payment at the end of each period that repays principal
// with interest: principal × rate ÷ (1 − (1 + rate)^−periods).
func payment(rate *number, periods int, principal *number) (*number, error) {
	n := new(number)
	ed := apd.MakeErrDecimal(&guard)
	var count, factor apd.Decimal
	count.SetInt64(int64(periods))
	if rate.dec.IsZero() || rate.dec.NumDigits()+int64(rate.dec.Exponent) < rateTiny {
		ed.Quo(&n.dec, &principal.dec, &count)
	} else {
		one := apd.New(1, 0)
		count.Negative = true
		ed.Add(&factor, one, &rate.dec)
		ed.Pow(&factor, &factor, &count)
		ed.Sub(&factor, one, &factor)
		ed.Mul(&n.dec, &principal.dec, &rate.dec)
		ed.Quo(&n.dec, &n.dec, &factor)
	}
	if ed.Err() != nil {
		return nil, errNotComputed
	}
	_, err := exact.Round(&n.dec, &n.dec)
	return computed(n, err)
}
