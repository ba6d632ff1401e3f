package expression

import (
	"math/big"
	"math/bits"
	"strconv"

	"github.com/cockroachdb/apd/v3"
)

// Money and rates have few digits. What follows divides, rounds and writes such
// numbers in two machine words and without garbage; each function reports
// whether it could, else apd does it. The results are the same.

// chunkDigits are the most digits that one word holds whatever they are.
const chunkDigits = 19

// powers are those of ten that fit a word.
//
//nolint:gochecknoglobals // a constant that Go cannot express
var powers = func() (p [chunkDigits + 1]uint64) {
	p[0] = 1
	for i := range chunkDigits {
		p[i+1] = 10 * p[i]
	}
	return p
}()

// double is a whole number of two words.
type double struct{ high, low uint64 }

// coefficient returns the digits of a number if two words hold them.
func coefficient(d *apd.Decimal) (double, bool) {
	if bits.UintSize != 64 || d.Form != apd.Finite {
		return double{}, false
	}
	switch words := d.Coeff.Bits(); len(words) {
	case 0:
		return double{}, true
	case 1:
		return double{low: uint64(words[0])}, true
	case 2:
		return double{uint64(words[1]), uint64(words[0])}, true
	default:
		return double{}, false
	}
}

// put makes u × 10^exponent the value of d.
func (u double) put(d *apd.Decimal, negative bool, exponent int32) {
	d.Form, d.Negative, d.Exponent = apd.Finite, negative, exponent
	if u.high == 0 {
		d.Coeff.SetUint64(u.low)
		return
	}
	words := [...]big.Word{big.Word(u.low), big.Word(u.high)}
	var whole big.Int
	d.Coeff.SetMathBigInt(whole.SetBits(words[:]))
}

func (u double) divide(by uint64) (quotient double, rest uint64) {
	quotient.high, rest = u.high/by, u.high%by
	quotient.low, rest = bits.Div64(rest, u.low, by)
	return quotient, rest
}

// shift is u × by + plus, which must fit.
func (u double) shift(by, plus uint64) double {
	high, low := bits.Mul64(u.low, by)
	low, carry := bits.Add64(low, plus, 0)
	return double{u.high*by + high + carry, low}
}

func (u double) increment() double { return u.shift(1, 1) }

// digits counts those of a number below 10^38; 0 has none.
func (u double) digits() int {
	n := 0
	if u.high > 0 {
		u, _ = u.divide(powers[chunkDigits])
		n = chunkDigits
	}
	for i := 0; i <= chunkDigits && u.low >= powers[i]; i++ {
		n++
	}
	return n
}

// divideShort is Context.Quo of exact where a and b are words.
func divideShort(n, a, b *apd.Decimal) bool {
	x, okX := coefficient(a)
	y, okY := coefficient(b)
	if !okX || !okY || x.high > 0 || y.high > 0 || y.low == 0 {
		return false
	}
	exponent := a.Exponent - b.Exponent
	quotient, rest := double{low: x.low / y.low}, x.low%y.low
	for digits := quotient.digits(); rest > 0 && digits < Precision; digits = quotient.digits() {
		step := min(chunkDigits, Precision-digits)
		high, low := bits.Mul64(rest, powers[step])
		var next uint64
		next, rest = bits.Div64(high, low, y.low)
		quotient = quotient.shift(powers[step], next)
		exponent -= int32(step)
	}
	if more := y.low - rest; rest > more || rest == more && quotient.low%2 == 1 {
		quotient = quotient.increment()
	}
	quotient.put(n, a.Negative != b.Negative, exponent)
	return true
}

// roundShort rounds a to that many places, of which it has more.
func roundShort(n, a *apd.Decimal, places int, rounding apd.Rounder) bool {
	whole, ok := coefficient(a)
	drop := -int64(places) - int64(a.Exponent)
	if !ok || drop > 2*chunkDigits {
		return false
	}
	more := false // whether there is anything below the last digit that is looked at
	if drop > chunkDigits {
		var rest uint64
		whole, rest = whole.divide(powers[drop-chunkDigits])
		more, drop = rest > 0, chunkDigits
	}
	whole, rest := whole.divide(powers[drop])
	half := powers[drop] / 2
	up := false
	switch rounding {
	case apd.RoundHalfEven:
		up = rest > half || rest == half && (more || whole.low%2 == 1)
	case apd.RoundCeiling:
		up = (rest > 0 || more) && !a.Negative
	case apd.RoundFloor:
		up = (rest > 0 || more) && a.Negative
	case apd.RoundDown:
	default:
		return false
	}
	if up {
		whole = whole.increment()
	}
	whole.put(n, a.Negative, int32(-places))
	return true
}

// textShort writes a number whose coefficient is a word, plainly and without
// trailing zeros; not one that would be long.
func textShort(d *apd.Decimal) (string, bool) {
	whole, ok := coefficient(d)
	if !ok || whole.high > 0 || d.Exponent > 0 || d.Exponent < -2*chunkDigits {
		return "", false
	}
	value, places := whole.low, int(-d.Exponent)
	for places > 0 && value%10 == 0 {
		value /= 10
		places--
	}
	var room [3*chunkDigits + 4]byte
	text := room[:0]
	if d.Negative {
		text = append(text, '-')
	}
	var digitsRoom [chunkDigits + 1]byte
	digits := strconv.AppendUint(digitsRoom[:0], value, 10)
	if places == 0 {
		return string(append(text, digits...)), true
	}
	point := len(digits) - places
	if point <= 0 {
		text = append(text, "0."...)
		for range -point {
			text = append(text, '0')
		}
		return string(append(text, digits...)), true
	}
	text = append(text, digits[:point]...)
	text = append(text, '.')
	return string(append(text, digits[point:]...)), true
}
