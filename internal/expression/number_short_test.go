package expression

import (
	"testing"

	"github.com/cockroachdb/apd/v3"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// coefficients draws digits of all lengths, with many zeros and halves.
func coefficients() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.StringMatching(`-?[1-9][0-9]{0,18}`),
		rapid.StringMatching(`-?[1-9][0-9]{0,38}`),
		rapid.StringMatching(`-?[1-9][0-9]{0,10}[05]0{0,20}`),
		rapid.SampledFrom([]string{"0", "1", "5", "9999999999999999999", "10000000000000000000", "18446744073709551615", "18446744073709551616", "-340282366920938463463374607431768211455", "340282366920938463463374607431768211456"}),
	)
}

func drawDecimal(t *rapid.T, label string) *apd.Decimal {
	d, _, err := apd.NewFromString(coefficients().Draw(t, label))
	require.NoError(t, err)
	d.Exponent = int32(rapid.IntRange(-45, 6).Draw(t, label+" exponent"))
	return d
}

// TestShortNumbers compares what is done in machine words with apd.
func TestShortNumbers(t *testing.T) {
	t.Parallel()
	done := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		var got, want apd.Decimal
		a, b := drawDecimal(t, "a"), drawDecimal(t, "b")
		if divideShort(&got, a, b) {
			done["divide"]++
			_, err := exact.Quo(&want, a, b)
			require.NoError(t, err)
			require.Zero(t, want.Cmp(&got), "%s / %s = %s, not %s", a, b, &want, &got)
		}
		places := rapid.IntRange(-5, 12).Draw(t, "places")
		context := wide
		context.Rounding = rapid.SampledFrom([]apd.Rounder{apd.RoundHalfEven, apd.RoundCeiling, apd.RoundFloor, apd.RoundDown}).Draw(t, "rounding")
		// Below a tenth of the last place apd is not to be compared with.
		isTiny := a.NumDigits()+int64(a.Exponent) < -int64(places)
		if int64(a.Exponent) < -int64(places) && roundShort(&got, a, places, context.Rounding) && !isTiny {
			done["round"]++
			_, err := context.Quantize(&want, a, int32(-places))
			require.NoError(t, err)
			require.Zero(t, want.Cmp(&got), "%s to %d places %s is %s, not %s", a, places, context.Rounding, &want, &got)
		}
		if text, ok := textShort(a); ok {
			done["text"]++
			want.Reduce(a)
			require.Equal(t, want.Text('f'), text)
		}
	})
	for _, name := range []string{"divide", "round", "text"} {
		require.Greater(t, done[name], 10, name)
	}
}
