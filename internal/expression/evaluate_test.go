package expression_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tranche/internal/exactjson"
	"tranche/internal/expression"
)

// all is a scope in which every root but a column's $ exists.
var all = expression.Scope{Item: true, Last: true, Fields: true}

func decode(tb testing.TB, text string) any {
	tb.Helper()
	v, err := exactjson.Decode([]byte(text))
	require.NoError(tb, err, text)
	return v
}

func encode(tb testing.TB, v any) string {
	tb.Helper()
	text, err := exactjson.Encode(v)
	require.NoError(tb, err)
	return string(text)
}

// callbackAddress is the address of the wait of the task "wait".
const callbackAddress = "https://tranche.example/v1/callbacks/" +
	"H6q6uoAiHQZ8mshN8eMsI4XIzRB0U7jo_nauEJ3NdPYBl6GyanB8w51SP24NbBoBAZehsmpwfMOdUj9uDWwaEXdhaXQ"

func environment(tb testing.TB) *expression.Env {
	tb.Helper()
	object := func(text string) map[string]any {
		m, ok := decode(tb, text).(map[string]any)
		require.True(tb, ok)
		return m
	}
	return &expression.Env{
		Input: decode(tb, `{"amount": 1.10, "score": 700, "income": 3000, "installment": 450.50,
			"name": "Ana Núñez", "none": null, "approved": true, "big": 12345678901234567890.123456789,
			"items": [{"price": 0.1, "qty": 3, "tag": "a"}, {"price": 0.2, "qty": 1, "tag": "b"}, {"price": 2.50, "qty": 2, "tag": "a"}],
			"scores": [700, 650.5, 720], "nested": {"a-b": {"c": 1}}, "born": "2000-02-29", "exponent": 1e3}`),
		Custom: decode(tb, `{"campaign": "spring"}`),
		Item:   decode(tb, `{"id": "i1"}`),
		Index:  3,
		Last:   decode(tb, `{"status": 200}`),
		Fields: object(`{"total": 5.00}`),
		Tasks: map[string]expression.Task{
			"score": {Output: object(`{"value": 700.00}`), Status: "completed"},
			"a-b":   {Status: "failed", Error: object(`{"code": "X", "message": "m", "statusCode": 502}`)},
		},
		Execution:   &expression.Execution{ID: "e1", Attempt: 1, CreatedAt: time.Date(2026, 1, 31, 8, 0, 0, 0, time.UTC)},
		Now:         time.Date(2026, 1, 31, 8, 30, 0, 123456789, time.UTC),
		ExecutionID: "0190a6e0-0000-7000-8000-000000000001",
		Path:        "score",
		CallbackURL: func(task string) (string, error) {
			if task != "wait" {
				return "", errors.New("no such wait")
			}
			return callbackAddress, nil
		},
	}
}

// evaluated are expressions and their results as JSON text.
var evaluated = map[string][][2]string{
	"literals": {
		{`1.10`, `1.10`},
		{`.5`, `0.5`},
		{`5.`, `5`},
		{`007`, `7`},
		{`1_000_000.50`, `1000000.50`},
		{`0xff`, `255`},
		{`0b101`, `5`},
		{`1e3`, `1e3`},
		{`1E+400`, `1E+400`},
		{`12345678901234567890123456789.10`, `12345678901234567890123456789.10`},
		{`-1.10`, `-1.1`},
		{`"a\u00e9\n"`, "\"aé\\n\""},
		{`'single "quotes"'`, `"single \"quotes\""`},
		{"`raw \\n`", `"raw \\n"`},
		{`true`, `true`},
		{`nil`, `null`},
		{`null`, `null`},
		{`[1, 2.50, "x", null, true,]`, `[1,2.50,"x",null,true]`},
		{`{"a": 1, b: 2, 3: "c", ("d" + "e"): 4.0}`, `{"3":"c","a":1,"b":2,"de":4.0}`},
		{`{12345678901234567890: 1}`, `{"12345678901234567890":1}`},
		{`{}`, `{}`},
		{`1 // a comment`, `1`},
		{`1 /* } */ + 1`, `2`},
	},
	"arithmetic": {
		{`0.1 + 0.2`, `0.3`},
		{`0.1 + 0.2 == 0.3`, `true`},
		{`input.amount + 1`, `2.1`},
		{`1.10 - 0.10`, `1`},
		{`1.10 * 3`, `3.3`},
		{`1 / 3`, `0.3333333333333333333333333333333333`},
		{`2 / 3`, `0.6666666666666666666666666666666667`},
		{`14345946211162983565 / 4194304`, `3420340111532.922641038894653320312`}, // a half, to the even neighbour
		{`12992844599556312555 / 4194304`, `3097735547913.625849485397338867188`},
		{`10 / 4`, `2.5`},
		{`7 % 3`, `1`},
		{`1e40 % 7`, `4`},
		{`-7 % 3`, `-1`},
		{`5.5 % 2`, `1.5`},
		{`2 ** 10`, `1024`},
		{`2 ^ -2`, `0.25`},
		{`2 ** 0.5`, `1.414213562373095048801688724209698`},
		{`1.01 ** 2`, `1.0201`},
		{`1.000000000000001 ** 1e15`, `2.718281828459043876219373241831291`},
		{`0.999999999999979 ** -163945532897.5`, `1.003448789627592032714063145980322`},
		{`0 ** 0`, `1`},
		{`-2 ** 2`, `-4`},
		{`2 ** 3 ** 2`, `512`},
		{`+input.amount`, `1.10`},
		{`- -1`, `1`},
		{`0 * -5`, `0`},
		{`1 - 1.00`, `0`},
		{`input.big + 0`, `12345678901234567890.123456789`},
		{`9007199254740993 + 0`, `9007199254740993`},
		{`9999999999999999999 + 1`, `10000000000000000000`},
		{`100000000000000000000 + 1`, `100000000000000000001`},
		{`1e400 / 1e399`, `10`},
		{`1e-399 / 10`, `1e-400`},
		{`1e120 * 1`, `1e+120`},
		{`1e99 * 1`, `1` + strings.Repeat("0", 99)},
		{`1e-120 * 1`, `1e-120`},
		{`1234567890123456789012345678901234.5 + 0`, `1234567890123456789012345678901234`},
		{`1234567890123456789012345678901235.5 + 0`, `1234567890123456789012345678901236`},
		{`input.exponent * 1`, `1000`},
		{`"a" + "b"`, `"ab"`},
		{`2 + 3 * 4`, `14`},
		{`(2 + 3) * 4`, `20`},
	},
	"comparison": {
		{`1.10 == 1.1`, `true`},
		{`1.10 != 1.1`, `false`},
		{`1e3 == 1000`, `true`},
		{`0.1 + 0.2 > 0.3`, `false`},
		{`9007199254740993 > 9007199254740992`, `true`},
		{`1 < 2 and 2 <= 2 and 3 > 2 and 3 >= 3`, `true`},
		{`1 < input.score <= 700`, `true`},
		{`"a" < "b"`, `true`},
		{`"1" == 1`, `false`},
		{`null == null`, `true`},
		{`input.missing == null`, `true`},
		{`null == false`, `false`},
		{`[1, 2.0] == [1.0, 2]`, `true`},
		{`{"a": [1]} == {"a": [1.0]}`, `true`},
		{`{"a": 1} == {"b": 1}`, `false`},
		{`{"a": null} == {"b": null}`, `false`},
		{`[1] == [1, 2]`, `false`},
		{`[1] == {}`, `false`},
		{`date("2026-01-31") == "2026-01-31"`, `true`},
		{`"2026-01-31" == date("2026-01-31")`, `true`},
		{`date("2026-01-31") == "x"`, `false`},
		{`date("2026-01-31") < "2026-02-01"`, `true`},
		{`now() > date("2026-01-31")`, `true`},
	},
	"logic": {
		{`true and not false`, `true`},
		{`false || true && true`, `true`},
		{`!true`, `false`},
		{`false and input.missing > 1`, `false`},
		{`true or input.missing > 1`, `true`},
		{`input.score >= 650 ? "yes" : "no"`, `"yes"`},
		{`if input.score >= 800 { "high" } else if input.score >= 650 { "middle" } else { "low" }`, `"middle"`},
		{`input.missing ?? 5`, `5`},
		{`input.none ?? input.missing ?? "x"`, `"x"`},
		{`false ?? true`, `false`},
		{`let x = 2; let y = x * 3; x + y`, `8`},
		{`let x = 1; (let x = 2; x) + x`, `3`},
		{`1; 2`, `2`},
		{`input.approved ?: false`, `true`},
	},
	"members": {
		{`input.amount`, `1.10`},
		{`input.missing`, `null`},
		{`input.missing.deeper[0].still`, `null`},
		{`input.none.x`, `null`},
		{`input.none?.x`, `null`},
		{`input?.nested?.["a-b"].c`, `1`},
		{`input.nested["a-b"].c`, `1`},
		{`input["na" + "me"]`, `"Ana Núñez"`},
		{`input.name.first`, `null`},
		{`input.amount.first`, `null`},
		{`input.items[0].price`, `0.1`},
		{`input.items[-1].price`, `2.50`},
		{`input.items[9]`, `null`},
		{`input.items[-9]`, `null`},
		{`input.items.price`, `null`},
		{`input.items[input.none]`, `null`},
		{`input.items[1.0].tag`, `"b"`},
		{`input.scores[1:]`, `[650.5,720]`},
		{`input.scores[:-1]`, `[700,650.5]`},
		{`input.scores[5:9]`, `[]`},
		{`input.scores[2:1]`, `[]`},
		{`input.name[4:7]`, `"Núñ"`},
		{`input.name[-2:]`, `"ez"`},
		{`input.name[:0]`, `""`},
		{`input.none[1:]`, `null`},
		{`tasks.score.output.value`, `700.00`},
		{`tasks["a-b"].error.statusCode`, `502`},
		{`tasks["a-b"].output.x`, `null`},
		{`tasks.score.status`, `"completed"`},
		{`tasks.later.output`, `null`},
		{`execution.id`, `"e1"`},
		{`execution.borrowerId`, `null`},
		{`custom.campaign`, `"spring"`},
		{`item.id`, `"i1"`},
		{`index + 1`, `4`},
		{`last.status`, `200`},
		{`$.total`, `5.00`},
		{`$["total"] + 1`, `6`},
		{`get(input, "score")`, `700`},
	},
	"in": {
		{`1.0 in [1, 2]`, `true`},
		{`3 not in [1, 2]`, `true`},
		{`"a" in ["a"]`, `true`},
		{`null in [null]`, `true`},
		{`"score" in input and "none" in input`, `true`},
		{`1 in {"1": 1}`, `false`},
		{`1 in null`, `false`},
		{`[1] in [[1.0]]`, `true`},
		{`5 in 1..10`, `true`},
		{`5.5 in 1..10`, `false`},
		{`1..4`, `[1,2,3,4]`},
		{`-1..1`, `[-1,0,1]`},
		{`3..1`, `[]`},
	},
	"text": {
		{`"abc" contains "b"`, `true`},
		{`"abc" not contains "b"`, `false`},
		{`"abc" startsWith "a" and "abc" endsWith "c"`, `true`},
		{`"abc" matches "^a.c$"`, `true`},
		{`"abc" matches "^" + "b"`, `false`},
		{`upper("ñ") + lower("Ñ")`, `"Ññ"`},
		{`trim("  a ") + trim("xax", "x")`, `"aa"`},
		{`trimPrefix("abc", "a") + trimSuffix("abc", "c")`, `"bcab"`},
		{`split("a,b,c", ",")`, `["a","b","c"]`},
		{`split("a,b,c", ",", 2)`, `["a","b,c"]`},
		{`splitAfter("a,b", ",")`, `["a,","b"]`},
		{`join(["a", 1.10, null, true], "-")`, `"a-1.10--true"`},
		{`join(["a", "b"])`, `"ab"`},
		{`replace("aaa", "a", "b")`, `"bbb"`},
		{`replace("aaa", "a", "b", 2)`, `"bba"`},
		{`replace("ñ", "", "-")`, `"-ñ-"`},
		{`repeat("ab", 3)`, `"ababab"`},
		{`indexOf("ñandú", "a")`, `1`},
		{`lastIndexOf("abab", "b")`, `3`},
		{`indexOf("a", "b")`, `-1`},
		{`hasPrefix("abc", "ab") and hasSuffix("abc", "bc")`, `true`},
		{`len("ñandú")`, `5`},
		{`string(1.10) + string(null) + string([1.50]) + string(true)`, `"1.10[1.50]true"`},
		{`string(0.5 + 0.50)`, `"1"`},
		{`regexMatch("AB12", "^[A-Z]{2}[0-9]{2}$")`, `true`},
		{`regexReplace("2026-01", "(\\d+)-(\\d+)", "$2/$1")`, `"01/2026"`},
		{`regexReplace("abc", "[bc]", "")`, `"a"`},
		{`includes("abc", "b")`, `true`},
		{`includes([1, 2], 2.0)`, `true`},
		{`includes(null, 1)`, `false`},
	},
	"numbers": {
		{`round(2.5)`, `2`},
		{`round(3.5)`, `4`},
		{`round(2.345, 2)`, `2.34`},
		{`round(2.355, 2)`, `2.36`},
		{`round(-2.5)`, `-2`},
		{`round(1.10, 5)`, `1.1`},
		{`round(1250, -2)`, `1200`},
		{`round(1e400, 2) == 1e400`, `true`},
		{`floor(-1.1)`, `-2`},
		{`floor(1.19, 1)`, `1.1`},
		{`ceil(1.01)`, `2`},
		{`ceil(1.011, 2)`, `1.02`},
		{`ceil(-0.5)`, `0`},
		{`ceil(0.001)`, `1`},
		{`floor(-0.00001, 2)`, `-0.01`},
		{`floor(0.001)`, `0`},
		{`[round(2.50000000000000000001), ceil(2.00000000000000000001), floor(-2.00000000000000000001)]`, `[3,3,-3]`},
		{`[round(1e-39), ceil(1e-39), floor(-1e-39)]`, `[0,1,-1]`},
		{`abs(-1.50)`, `1.5`},
		{`abs(1.50)`, `1.50`},
		{`sum([0.1, 0.2])`, `0.3`},
		{`sum([])`, `0`},
		{`sum(input.items, .price * .qty)`, `5.5`},
		{`avg([1, 2])`, `1.5`},
		{`avg([])`, `null`},
		{`mean(1, 2, 6)`, `3`},
		{`median([3, 1, 2])`, `2`},
		{`median([4, 1, 2, 3])`, `2.5`},
		{`min(3, 1.50, 2)`, `1.50`},
		{`max([1, 3.0, 2])`, `3.0`},
		{`[max(1.0, 1), min([1.0, 1])]`, `[1.0,1.0]`},
		{`max([])`, `null`},
		{`min("b", "a")`, `"a"`},
		{`max(date("2026-01-01"), "2026-01-02")`, `"2026-01-02"`},
		{`pow(2, 10)`, `1024`},
		{`pow(1.05, 2)`, `1.1025`},
		{`pow(2, -1)`, `0.5`},
		{`round(pmt(0.01, 12, 1000), 2)`, `88.85`},
		{`pmt(0.0125, 48, 25000)`, `695.7687066619061801441010399954498`},
		{`pmt(1e-12, 12, 1200)`, `100.0000000006500000000011916666667`},
		{`pmt(0, 12, 1200)`, `100`},
		{`pmt(1e-60, 12, 1200)`, `100`},
		{`number("1.10")`, `1.10`},
		{`number(" +.5 ")`, `0.5`},
		{`number("-1e2") + 0`, `-100`},
		{`float("0.1") + 0.2`, `0.3`},
		{`int(2.9)`, `2`},
		{`int("-2.9")`, `-2`},
		{`[abs(number("-0.00")), abs(-1.50), abs(1.50)]`, `[0,1.5,1.50]`},
	},
	"lists": {
		{`map(input.items, .price)`, `[0.1,0.2,2.50]`},
		{`map(input.items, .price * .qty)`, `[0.3,0.2,5]`},
		{`map(1..3, # * 2)`, `[2,4,6]`},
		{`map(["a", "b"], {#index})`, `[0,1]`},
		{`filter(input.items, .tag == "a")`, `[{"price":0.1,"qty":3,"tag":"a"},{"price":2.50,"qty":2,"tag":"a"}]`},
		{`input.items | filter(.qty > 1) | map(.price) | sum()`, `2.6`},
		{`all(input.scores, # > 600)`, `true`},
		{`any(input.scores, # > 710)`, `true`},
		{`none(input.scores, # > 800)`, `true`},
		{`one(input.scores, # > 710)`, `true`},
		{`all([], false)`, `true`},
		{`any([], true)`, `false`},
		{`count(input.scores, # >= 700)`, `2`},
		{`count([true, false, true])`, `2`},
		{`find(input.items, .qty == 1).tag`, `"b"`},
		{`find(input.items, .qty == 9)`, `null`},
		{`findIndex(input.items, .tag == "b")`, `1`},
		{`findIndex(input.items, .tag == "z")`, `-1`},
		{`findLast(input.items, .tag == "a").qty`, `2`},
		{`findLastIndex(input.items, .tag == "a")`, `2`},
		{`groupBy(input.scores, # >= 700)`, `{"false":[650.5],"true":[700,720]}`},
		{`groupBy([1, 1.0, 2], #)`, `{"1":[1,1.0],"2":[2]}`},
		{`sortBy(input.items, .price, "desc") | map(.tag)`, `["a","b","a"]`},
		{`sortBy(input.items, .qty) | map(.qty)`, `[1,2,3]`},
		{`sortBy(1..40, # % 2) == concat(filter(1..40, # % 2 == 0), filter(1..40, # % 2 == 1))`, `true`},
		{`sort([3, 1.5, 2])`, `[1.5,2,3]`},
		{`sort(["b", "a"], "desc")`, `["b","a"]`},
		{`reduce(1..4, #acc + #)`, `10`},
		{`reduce(1..4, #acc * #, 1)`, `24`},
		{`reduce([], #acc + #)`, `null`},
		{`reduce(["a", "b"], #acc + # + string(#index), "")`, `"a0b1"`},
		{`map([[1, 2], [3]], sum(map(#, # * 10)))`, `[30,30]`},
		{`filter([[1, 5], [2]], {let m = max(#); any(#, # == m and m > 3)})`, `[[1,5]]`},
		{`len([1, 2]) + len({"a": 1})`, `3`},
		{`first([1, 2]) + last([1, 2])`, `3`},
		{`first([])`, `null`},
		{`take([1, 2, 3], 2)`, `[1,2]`},
		{`take([1], 5)`, `[1]`},
		{`reverse(input.scores)`, `[720,650.5,700]`},
		{`concat([1], [2, 3])`, `[1,2,3]`},
		{`flatten([1, [2, [3]]])`, `[1,2,3]`},
		{`uniq([{"a": 1}, ["a", 1]])`, `[{"a":1},["a",1]]`},
		{`len(reduce(1..64, [#acc], 1))`, `1`},
		{`uniq([1, 1.0, "1", "1", [1], [1.0], {"a": 1}, {"a": 1.0}, null, null])`, `[1,"1",[1],{"a":1},null]`},
	},
	"objects": {
		{`keys({"b": 1, "a": 2})`, `["a","b"]`},
		{`values({"b": 1, "a": 2})`, `[2,1]`},
		{`toPairs({"b": 1, "a": 2})`, `[["a",2],["b",1]]`},
		{`fromPairs([["a", 1.0]])`, `{"a":1.0}`},
		{`merge({"a": 1, "o": {"x": 1, "y": 2}}, null, {"b": 2, "o": {"y": 3}})`, `{"a":1,"b":2,"o":{"x":1,"y":3}}`},
		{`merge({"a": 1}, {"a": null, "b": null})`, `{"a":1}`},
		{`merge({"a": {"b": 1}}, {"a": 5})`, `{"a":5}`},
		{`merge({"a": {"b": 1}}, {"a": {"c": null}})`, `{"a":{"b":1}}`},
		{`merge(input, {"nested": {"d": 2}}).nested`, `{"a-b":{"c":1},"d":2}`},
		{`merge(null)`, `{}`},
		{`map([null, true, 1.5, "x", now(), [], {}], type(#))`, `["null","boolean","number","string","string","array","object"]`},
		{`type(now())`, `"date"`},
	},
	"dates": {
		{`now()`, `"2026-01-31T08:30:00.123Z"`},
		{`now() == "2026-01-31T08:30:00.123Z"`, `true`},
		{`format("2026-01-31T23:30:00-02:00", "D.M.")`, `"1.2."`},
		{`date("2026-01-31")`, `"2026-01-31T00:00:00.000Z"`},
		{`date("2026-01-31T10:00:00+02:00")`, `"2026-01-31T08:00:00.000Z"`},
		{`date("2026-01-31 10:00:00")`, `"2026-01-31T10:00:00.000Z"`},
		{`date("31/01/2026", "DD/MM/YYYY")`, `"2026-01-31T00:00:00.000Z"`},
		{`date("31/12/2026", "D/M/YYYY")`, `"2026-12-31T00:00:00.000Z"`},
		{`date("1/2/2026 7:05", "D/M/YYYY H:mm")`, `"2026-02-01T07:05:00.000Z"`},
		{`date("20260131T080000.123Z", "YYYYMMDDTHHmmss.SSSZ")`, `"2026-01-31T08:00:00.123Z"`},
		{`dateAdd("2026-01-31", 1, "months")`, `"2026-02-28T00:00:00.000Z"`},
		{`dateAdd(input.born, 1, "year")`, `"2001-02-28T00:00:00.000Z"`},
		{`dateAdd(input.born, 4, "years")`, `"2004-02-29T00:00:00.000Z"`},
		{`dateAdd("2026-01-31", -1, "weeks")`, `"2026-01-24T00:00:00.000Z"`},
		{`dateAdd(now(), 90, "seconds")`, `"2026-01-31T08:31:30.123Z"`},
		{`dateDiff("2026-01-01", "2026-01-31")`, `30`},
		{`dateDiff("2026-01-31", "2026-01-01", "days")`, `-30`},
		{`dateDiff("2026-01-01T12:00:00Z", "2026-01-02T11:59:59Z", "days")`, `0`},
		{`dateDiff(input.born, now(), "years")`, `25`},
		{`dateDiff("2026-01-31", "2026-02-28", "months")`, `1`},
		{`dateDiff("2026-02-28", "2026-01-31", "months")`, `0`},
		{`dateDiff("2026-03-31", "2026-01-30", "months")`, `-2`},
		{`dateDiff("2026-01-01", "2026-01-02", "hours")`, `24`},
		{`format(date("2026-01-05"), "DD/MM/YYYY HH:mm:ss.SSS 'at' D.M. H")`, `"05/01/2026 00:00:00.000 at 5.1. 0"`},
		{`format("2026-01-05", "YYYYMMDD")`, `"20260105"`},
		{`format(1234567.891, "#,##0.00")`, `"1,234,567.89"`},
		{`format(0.125, "0.00") + " " + format(0.135, "0.00") + " " + format(-0.126, "0.00")`, `"0.12 0.14 -0.13"`},
		{`format(-5, "$ 0.00 USD")`, `"$ -5.00 USD"`},
		{`format(1.5, "0.##")`, `"1.5"`},
		{`format(7, "000") + format(7, "00")`, `"00707"`},
		{`format(7, ".00") + format(-1234.5, "€.00")`, `"7.00€-1234.50"`},
		{`format(7, "Nr.000") + format(7, " Rs.0.00")`, `"Nr.007 Rs.7.00"`},
		{`format(7, "Nº.000 ") + format(7, "v2.000")`, `"Nº.007 v2.007"`},
		{`format(999, "#,##0")`, `"999"`},
	},
	"codes": {
		{`toJson({"b": [1.10, null], "a": "ñ<"})`, `"{\"a\":\"ñ<\",\"b\":[1.10,null]}"`},
		{`fromJson("{\"a\": 1.10}").a`, `1.10`},
		{`toJSON(fromJSON("[1]"))`, `"[1]"`},
		{`toBase64("ñ?>")`, `"w7E/Pg=="`},
		{`fromBase64("w7E/Pg==") + fromBase64("w7E_Pg")`, `"ñ?>ñ?>"`},
		{`sha256("abc")`, `"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"`},
		{`uuid() == uuid() and uuid() != uuid("second") and len(uuid()) == 36`, `true`},
		{`callbackUrl("wait")`, `"` + callbackAddress + `"`},
	},
}

func TestEval(t *testing.T) {
	t.Parallel()
	for group, cases := range evaluated {
		t.Run(group, func(t *testing.T) {
			t.Parallel()
			env := environment(t)
			before := encode(t, env.Input)
			for _, tc := range cases {
				x, err := expression.Compile(tc[0], all)
				require.NoError(t, err, tc[0])
				v, err := x.Eval(env)
				require.NoError(t, err, tc[0])
				require.Equal(t, tc[1], encode(t, v), tc[0])
			}
			require.Equal(t, before, encode(t, env.Input), "evaluation changes no input")
		})
	}
}

// An id is that of the execution, the task's path and the name, however often and by
// whichever version of the program it is asked for.
func TestUUIDDependsOnTaskRun(t *testing.T) {
	t.Parallel()
	x, err := expression.Compile(`uuid("a")`, expression.Scope{})
	require.NoError(t, err)
	seen := map[any]bool{}
	for _, env := range []expression.Env{
		{ExecutionID: "e1", Path: "score"},
		{ExecutionID: "e2", Path: "score"},
		{ExecutionID: "e1", Path: "each[0].score"},
		{ExecutionID: "e1", Path: "each[1].score"},
	} {
		id, err := x.Eval(&env)
		require.NoError(t, err)
		seen[id] = true
	}
	require.Len(t, seen, 4)
	require.Contains(t, seen, "5cc56ee7-3a3b-5df3-abf7-392b80ad8516", "an execution that goes on after an upgrade keeps its ids")
}
