package exactjson_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tranche/internal/exactjson"
)

func TestRoundTripKeepsEveryDigit(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`1.10`, `0.30000000000000000000000000001`, `1e10`, `1E+2`, `-0`, `{"a":1.10,"b":[1,2.50,null,true,"x"]}`,
		"\"<&>é\"", `[]`, `{}`, `""`,
	} {
		v, err := exactjson.Decode([]byte(text))
		require.NoError(t, err, text)
		out, err := exactjson.Encode(v)
		require.NoError(t, err, text)
		again, err := exactjson.Decode(out)
		require.NoError(t, err, text)
		require.Equal(t, v, again, text)
		if !strings.HasPrefix(text, `"`) {
			require.Equal(t, text, string(out))
		}
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", exactjson.DepthMax+1) + strings.Repeat("]", exactjson.DepthMax+1)
	for name, tc := range map[string]struct{ text, path, message string }{
		"duplicate":      {`{"a":{"b":1,"b":2}}`, "a.b", "the name occurs twice"},
		"NUL":            {`{"a":["x\u0000"]}`, "a[0]", "contains a NUL character"},
		"NUL in name":    {`{"a\u0000":1}`, "", "contains a NUL character"},
		"invalid UTF-8":  {"\"\xff\"", "", "invalid JSON at byte 1"},
		"deep":           {deep, "", "nested deeper than 64 levels"},
		"digits":         {`{"n":` + strings.Repeat("9", 101) + `}`, "n", "a number has at most 100 digits"},
		"exponent":       {`{"n":1e1000000}`, "n", "exponent within ±400"},
		"two values":     {`{} {}`, "", "more than one JSON value"},
		"empty":          {``, "", "invalid JSON: the text ends early"},
		"cut":            {`{"a":`, "", "invalid JSON"},
		"trailing comma": {`[1,]`, "", "invalid JSON"},
		"single quotes":  {`{'a':1}`, "", "invalid JSON"},
		"NaN":            {`NaN`, "", "invalid JSON"},
		"leading zero":   {`01`, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := exactjson.Decode([]byte(tc.text))
			var e *exactjson.Error
			require.ErrorAs(t, err, &e)
			require.Contains(t, e.Message, tc.message)
			if tc.path != "" {
				require.Equal(t, tc.path, e.Path)
			}
			require.Error(t, exactjson.Check([]byte(tc.text)))
		})
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"a":[1,2.50,null,true,"x"]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		v, err := exactjson.Decode(text)
		require.Equal(t, err == nil, exactjson.Check(text) == nil)
		if err != nil {
			return
		}
		out, err := exactjson.Encode(v)
		require.NoError(t, err)
		again, err := exactjson.Decode(out)
		require.NoError(t, err)
		require.Equal(t, v, again)
	})
}
