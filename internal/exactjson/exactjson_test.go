package exactjson_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

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

func TestEncode(t *testing.T) {
	t.Parallel()
	text, err := exactjson.Encode(map[string]any{"c": "<&>é\u2028", "a": []any{nil, true}, "b": json.Number("1.10"), "ab": map[string]any{}, "aa": "", "d": "x"})
	require.NoError(t, err)
	const want = `{"a":[null,true],"aa":"","ab":{},"b":1.10,"c":"<&>é` + "\u2028" + `","d":"x"}`
	require.Equal(t, want, string(text))
	_, err = exactjson.Encode(strings.Repeat("x", len(want)))
	require.NoError(t, err)
	require.Equal(t, want, string(text), "a text is changed by the next one")
	_, err = exactjson.Encode(map[string]any{"a": []any{1.5}})
	require.Error(t, err)
	require.Equal(t, "2026-01-31T08:30:00.120Z", exactjson.FormatTime(time.Date(2026, 1, 31, 10, 30, 0, 120_999_999, time.FixedZone("", 7200))))
}

func TestLimitsOfNumbers(t *testing.T) {
	t.Parallel()
	nines := strings.Repeat("9", exactjson.DigitsMax)
	for text, isWithin := range map[string]bool{
		nines: true, "-" + nines[1:] + ".9": true, nines + "9": false, nines + ".9": false, nines + "e400": true,
		"1e400": true, "1E-400": true, "1e401": false, "1e-401": false, "1e+0400": true,
	} {
		_, err := exactjson.Decode([]byte(text))
		require.Equal(t, isWithin, err == nil, text)
		require.Equal(t, isWithin, exactjson.NumberFits(text), text)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", exactjson.DepthMax+1) + strings.Repeat("]", exactjson.DepthMax+1)
	for name, tc := range map[string]struct{ text, path, message string }{
		"duplicate":      {`{"a":{"b":1,"b":2}}`, "a.b", "the name occurs twice in its object; names must be unique"},
		"NUL":            {`{"a":["x\u0000"]}`, "a[0]", "contain a NUL character"},
		"NUL in name":    {`{"a\u0000":1}`, "", "contain a NUL character"},
		"invalid UTF-8":  {"\"\xff\"", "", "invalid JSON at byte 1"},
		"deep":           {deep, "", "nested deeper than 64 levels"},
		"digits":         {`{"n":` + strings.Repeat("9", 101) + `}`, "n", "a number must have at most 100 digits"},
		"exponent":       {`{"n":1e1000000}`, "n", "exponent within ±400"},
		"two values":     {`{} {}`, "", "more than one JSON value"},
		"empty":          {``, "", "invalid JSON: the text ends before the value is complete"},
		"cut":            {`{"a":`, "", "invalid JSON"},
		"trailing comma": {`[1,]`, "", "invalid JSON"},
		"single quotes":  {`{'a':1}`, "", "invalid JSON"},
		"NaN":            {`NaN`, "", "invalid JSON"},
		"leading zero":   {`01`, "", ""},
		"half a pair":    {`{"a":"x\ud800"}`, "a", "invalid JSON at byte 7"},
		"control":        {"{\"a\":[\"x\ny\"]}", "a[0]", "invalid JSON at byte 8"},
		"never closed":   {`{"a":"x`, "a", "invalid JSON at byte 7"},
		"no member":      {`{"a":[1,2 3]}`, "a", "invalid JSON at byte 10"},
		"no point":       {`{"a":{"1":1.}}`, "a[1]", "invalid JSON at byte 12"},
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
		})
	}
}

// TestDecodeAgreesWithEncodingJSON reads texts of random fragments.
func TestDecodeAgreesWithEncodingJSON(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SampledFrom([]string{
			"{", "}", "[", "]", ":", ",", " ", "\n", `"a"`, `"b"`, `"é\n"`, `"\u00e9\ud83d\ude00"`, `"\ud800"`, `"\u0000"`, "\"\xff\"", `"`, `\`,
			"0", "1", "-", ".", "5", "e", "+", "null", "true", "false", `{"a":1,`, `"c":[`, "NaN", "\x00", "\u00a0",
		})
		requireAgrees(t, []byte(strings.Join(rapid.SliceOfN(parts, 1, 12).Draw(t, "text"), "")))
	})
	requireAgrees(t, []byte("["+strings.Repeat(small+",", 50)+small+"]"))
}

// requireAgrees checks that encoding/json reads the same value from any text
// that Decode accepts. Decode refuses more texts than encoding/json.
func requireAgrees(t require.TestingT, text []byte) {
	got, err := exactjson.Decode(text)
	if err != nil {
		return
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var want any
	require.NoError(t, decoder.Decode(&want), "%q", text)
	require.Equal(t, want, got)
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"a":[1,2.50,null,true,"x"]}`))
	f.Add([]byte(`{"\u00e9":{"a":"é\ud83d\ude00","a":-0.1E+5}} `))
	f.Fuzz(func(t *testing.T, text []byte) {
		requireAgrees(t, text)
		v, err := exactjson.Decode(text)
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

// drawObject draws an object with all kinds of values, nested up to a depth.
func drawObject(depth int) *rapid.Generator[map[string]any] {
	texts := rapid.StringMatching(`[a-z.:,"\\<>{}\[\] é\n=']{0,6}`)
	return rapid.Custom(func(t *rapid.T) map[string]any {
		object := map[string]any{}
		for _, name := range rapid.SliceOfN(texts, 0, 4).Draw(t, "names") {
			switch kind := rapid.IntRange(0, 6).Draw(t, "kind"); {
			case kind == 0 && depth > 0:
				object[name] = drawObject(depth-1).Draw(t, "object")
			case kind == 1 && depth > 0:
				object[name] = []any{texts.Draw(t, "item"), nil, drawObject(depth-1).Draw(t, "item")}
			case kind == 2:
				object[name] = json.Number(rapid.StringMatching(`-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,2})?`).Draw(t, "number"))
			case kind == 3:
				object[name] = rapid.Bool().Draw(t, "bool")
			case kind == 4:
				object[name] = nil
			default:
				object[name] = texts.Draw(t, "text")
			}
		}
		return object
	})
}

// TestMembersAndLeaves puts an object together again from its members and from
// its leaves, whatever the white space and the escapes of the text.
func TestMembersAndLeaves(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		object := drawObject(3).Draw(t, "object")
		compact, err := exactjson.Encode(object)
		require.NoError(t, err)
		var wide, html bytes.Buffer
		require.NoError(t, json.Indent(&wide, compact, " ", "\t"))
		json.HTMLEscape(&html, compact)
		for _, text := range [][]byte{compact, wide.Bytes(), html.Bytes()} {
			members := map[string]any{}
			require.NoError(t, exactjson.Members(text, func(name string, value []byte) (err error) {
				members[name], err = exactjson.Decode(value)
				return err
			}))
			require.Equal(t, object, members)
			leaves := map[string]any{}
			require.NoError(t, exactjson.Leaves(text, func(path []string, leaf any) error {
				at := leaves
				for _, name := range path[:len(path)-1] {
					if at[name] == nil {
						at[name] = map[string]any{}
					}
					at, _ = at[name].(map[string]any)
				}
				at[path[len(path)-1]] = leaf
				return nil
			}))
			require.Equal(t, object, leaves)
		}
	})
}

func TestMembersAndLeavesInOrder(t *testing.T) {
	t.Parallel()
	text := []byte(`{"b": 1.50, "a": {"d": {}, "c": [1, {"x": 2}]}, "e": {"f": "\u003c"}}`)
	var members, leaves []string
	require.NoError(t, exactjson.Members(text, func(name string, value []byte) error {
		members = append(members, name+"="+string(value))
		return nil
	}))
	require.Equal(t, []string{`b=1.50`, `a={"d": {}, "c": [1, {"x": 2}]}`, `e={"f": "\u003c"}`}, members)
	require.NoError(t, exactjson.Leaves(text, func(path []string, leaf any) error {
		value, err := exactjson.Encode(leaf)
		leaves = append(leaves, strings.Join(path, ".")+"="+string(value))
		return err
	}))
	require.Equal(t, []string{`b=1.50`, `a.d={}`, `a.c=[1,{"x":2}]`, `e.f="<"`}, leaves)
}

func TestMembersAndLeavesErrors(t *testing.T) {
	t.Parallel()
	noMember := func(string, []byte) error { return nil }
	noLeaf := func([]string, any) error { return nil }
	for _, text := range []string{
		``, `[]`, `null`, `{`, `{"a`, `{"a"`, `{"a":`, `{"a":1`, `{"a":"b`, `{"a":"b\`, `{"a":{"b":[1,2`, `{1:2}`, `{"a" 1}`, `{,}`, `{"a":"\ud800"}`, `{} {}`,
		`{"a":1,"a":2}`,
	} {
		var e *exactjson.Error
		require.ErrorAs(t, exactjson.Members([]byte(text), noMember), &e, text)
		require.ErrorAs(t, exactjson.Leaves([]byte(text), noLeaf), &e, text)
	}
	deep := strings.Repeat(`{"a":`, exactjson.DepthMax+1) + "1" + strings.Repeat("}", exactjson.DepthMax+1)
	require.ErrorContains(t, exactjson.Leaves([]byte(deep), noLeaf), "nested deeper than 64 levels")
	require.ErrorAs(t, exactjson.Members([]byte(`{"b":`+deep+`}`), noMember), new(*exactjson.Error))
	deepest := `{"output":` + strings.Repeat("[", exactjson.DepthMax) + strings.Repeat("]", exactjson.DepthMax) + `}`
	require.NoError(t, exactjson.Members([]byte(deepest), noMember), "a result may wrap an output of the greatest depth")
	stop := errors.New("stop")
	require.ErrorIs(t, exactjson.Members([]byte(`{"a":1}`), func(string, []byte) error { return stop }), stop)
	for _, text := range []string{`{"a":1}`, `{"a":{}}`, `{"a":{"b":1}}`} {
		require.ErrorIs(t, exactjson.Leaves([]byte(text), func([]string, any) error { return stop }), stop, text)
	}
}

// small is an object of 300 bytes, as inputs and results are.
const small = `{"borrowerId":"B-0001234","firstName":"Maria","lastName":"Santos-1234","email":"maria.santos.1234@example.com",` +
	`"income":3234.34,"debt":334.10,"amount":2234.00,"months":36,"score":684,"purpose":"home improvement",` +
	`"address":{"street":"12 Long Avenue","zip":"02234","city":"Springfield"}}`

func BenchmarkDecode(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := exactjson.Decode([]byte(small)); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEncode(b *testing.B) {
	v, err := exactjson.Decode([]byte(small))
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := exactjson.Encode(v); err != nil {
			b.Fatal(err)
		}
	}
}

func TestIsTooDeep(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ open, close string }{{"[", "]"}, {`{"a":`, "}"}} {
		text := strings.Repeat(c.open, exactjson.DepthMax) + "1" + strings.Repeat(c.close, exactjson.DepthMax)
		value, err := exactjson.Decode([]byte(text))
		require.NoError(t, err)
		require.False(t, exactjson.IsTooDeep(value))
		require.True(t, exactjson.IsTooDeep([]any{"flat", value}))
		require.True(t, exactjson.IsTooDeep(map[string]any{"deep": value}))
	}
	require.False(t, exactjson.IsTooDeep(nil))
}

func TestInteger(t *testing.T) {
	t.Parallel()
	for text, want := range map[json.Number]int64{
		"0": 0, "-0": 0, "-0.0": 0, "60": 60, "60.0": 60, "-60.000": -60, "6e1": 60, "6.0E+1": 60, "600e-1": 60, "0e400": 0,
		"9223372036854775807": math.MaxInt64, "-9223372036854775808.0": math.MinInt64,
	} {
		n, ok := exactjson.Integer(text)
		require.True(t, ok, text)
		require.Equal(t, want, n, text)
	}
	for _, text := range []json.Number{"", "60.5", "6e-1", "9223372036854775808", "1e400", "1e-400", "1e99999"} {
		_, ok := exactjson.Integer(text)
		require.False(t, ok, text)
	}
}
