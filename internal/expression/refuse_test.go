package expression_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tranche/internal/expression"
)

// refused are sources that do not compile, with the column and a part of the
// message.
var refused = []struct {
	source  string
	column  int
	message string
}{
	{``, 1, "the expression is empty"},
	{"  \n ", 1, "the expression is empty"},
	{`1 +`, 3, "the expression ends too early"},
	{`1 + * 2`, 5, "“*” is not expected here"},
	{`(1 + 2`, 6, "the expression ends too early"},
	{`input.amount 12.50`, 14, "“12.50” is not expected here"},
	{`"abc`, 5, "never closed with its quotation mark"},
	{`"\q"`, 3, "unknown escape"},
	{`1 /* x`, 7, "never closed with */"},
	{`1 @ 2`, 3, "a character is not expected here"},
	{`12abc`, 3, "a number is written wrongly"},
	{`0x`, 2, "a number is written wrongly"},
	{`1e`, 2, "a number is written wrongly"},
	{`0xffffffffffffffffff`, 20, "a number is written wrongly"},
	{strings.Repeat("9", 101), 1, "a number must have at most 100 digits"},
	{`1e401`, 1, "an exponent within ±400"},
	{`1e99999999999999999999`, 1, "an exponent within ±400"},
	{`amount > 1`, 1, "“amount” does not exist; an expression can use input, tasks, execution, custom, item, index, last, $.name"},
	{`input.a + tasks.a-b`, 19, "“b” does not exist"},
	{`$env`, 1, "“$env” does not exist"},
	{`env`, 1, "“env” does not exist"},
	{`$`, 1, "$ must be followed by the name of a field"},
	{`$[input.a]`, 2, "the name of a field must be written out"},
	{`tasks`, 1, "tasks must be followed by the id of a task"},
	{`tasks[input.a]`, 6, "the id of a task must be written out"},
	{`tasks["a" + "b"].output`, 6, "the id of a task must be written out"},
	{`tasks[0]`, 6, "the id of a task must be written out"},
	{`let t = tasks; t.a`, 9, "tasks must be followed by"},
	{`get(tasks, "a")`, 5, "tasks must be followed by"},
	{`tasks.a.outptu`, 9, "a task has no “outptu”, only output, status, error"},
	{`execution.tenant`, 11, "execution has no “tenant”"},
	{`input.name.upper()`, 12, "only functions can be called"},
	{`input.date.Year()`, 12, "only functions can be called"},
	{`input["f"]()`, 11, "“(” is not expected here"},
	{`foo(1)`, 1, "unknown function “foo”"},
	{`::foo(1)`, 3, "unknown function “foo”"},
	{`duration("1h")`, 1, "unknown function “duration”"},
	{`timezone("UTC")`, 1, "unknown function “timezone”"},
	{`bitand(1, 2)`, 1, "unknown function “bitand”"},
	{`round()`, 1, "round takes 1 to 2 arguments, but there are 0"},
	{`upper("a", "b")`, 1, "upper takes one argument, but there are 2"},
	{`pow(1)`, 1, "pow takes 2 arguments, but there are 1"},
	{`merge()`, 1, "merge takes at least 1 and at most 100 arguments"},
	{`map(input.items)`, 16, "an argument is missing"},
	{`filter()`, 8, "an argument is missing"},
	{`#`, 1, "“#” is not expected here"},
	{`.price`, 1, "“.” is not expected here"},
	{`map(input.items, #acc)`, 18, "#acc is not known"},
	{`map(input.items, #foo)`, 18, "#foo is not known"},
	{`let input = 1; input`, 5, "“input” is already in use; choose another name"},
	{`"a" matches "("`, 13, "the regular expression is not valid"},
	{`regexMatch("a", "(")`, 17, "the regular expression is not valid"},
	{`regexReplace("a", "` + strings.Repeat("a", 1001) + `", "")`, 19, "at most 1000 characters"},
	{`"a" matches "(abcdefghijklmnopqrstuvwxyz){1000}"`, 13, "the regular expression repeats too much; use smaller repeat counts"},
	{`"a\u0000"`, 1, "a text must not contain a NUL character"},
	{`b"abc"`, 1, "remove the b"},
	{`{1 + 1: 2}`, 4, "“+” is not expected here"},
	{`{[1]: 2}`, 2, "the name of a member is a text, a name, a number"},
	{`input.`, 6, "the expression ends too early"},
	{`input.1`, 6, "is not expected here"},
	{`1 ?? 2 + 1`, 8, "?? cannot stand beside other operators"},
	{`filter([1], # > 1; true)`, 18, "put in { and }"},
	{"1 +\n  foo", 3, "“foo” does not exist"},
	{strings.Repeat("(", 5000) + "1" + strings.Repeat(")", 5000), 1, "at most 10000 characters"},
	{strings.Repeat("-", 2000) + "1", 1001, "nested deeper than 1000 levels"},
	{"1" + strings.Repeat("+1", 2000), 2000, "nested deeper than 1000 levels"},
	{"\"\xff\"", 1, "not valid UTF-8"},
}

func TestCompileRefuses(t *testing.T) {
	t.Parallel()
	for _, tc := range refused {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			_, err := expression.Compile(tc.source, all)
			requireError(t, err, tc.source, tc.message, tc.column)
		})
	}
}

func requireError(t *testing.T, err error, source, message string, column int) {
	t.Helper()
	var e *expression.Error
	require.ErrorAs(t, err, &e, source)
	require.Contains(t, e.Message, message, source)
	require.Equal(t, column, e.Position.Column, "%s: %s", source, e.Message)
	requireReadable(t, e)
}

// requireReadable holds that a message speaks of no Go type and no library.
func requireReadable(t *testing.T, e *expression.Error) {
	t.Helper()
	for _, word := range []string{
		"map[", "interface", "[]any", "string,", "float64", "int64", "nil pointer", "reflect", "runtime",
		"expression.", "strconv", "json.", "Operator(", "Bracket(", "EOF", "panic", "apd", "%!",
	} {
		require.NotContains(t, e.Message, word)
	}
	require.NotEmpty(t, e.Message)
}

func TestScopesRefuse(t *testing.T) {
	t.Parallel()
	for source, scope := range map[string]expression.Scope{
		"item":   {Item: true},
		"index":  {Item: true},
		"last":   {Last: true},
		"$":      {Column: true},
		"$.name": {Fields: true},
	} {
		_, err := expression.Compile(source, scope)
		require.NoError(t, err, source)
		_, err = expression.Compile(source, expression.Scope{})
		require.Error(t, err, source)
	}
	const source = "$ >= 650 and $.x == null"
	x, err := expression.Compile(source, expression.Scope{Column: true})
	require.NoError(t, err)
	require.Empty(t, fieldPaths(t, "{{ "+source+" }}", expression.Scope{Column: true}))
	met, err := x.EvalBool(&expression.Env{Column: json.Number("700")})
	require.NoError(t, err)
	require.True(t, met)
}

// failing are expressions whose evaluation is an error, with the column and a
// part of the message.
var failing = []struct {
	source  string
	column  int
	message string
}{
	{`input.missing + 1`, 15, "+ needs two numbers or two texts, but input.missing is null"},
	{`1 + input.missing`, 3, "but input.missing is null"},
	{`input.name + 1`, 12, "but its right side is a number"},
	{`input.missing + "a"`, 15, "but input.missing is null"},
	{`"a" * 2`, 5, "* needs two numbers, but its left side is text"},
	{`2 - input.items`, 3, "but input.items is a list"},
	{`-input.name`, 1, "- needs a number, but input.name is text"},
	{`-tasks["a-b"].output`, 1, "but tasks.a-b.output is null"},
	{`1 / 0`, 3, "division by zero"},
	{`1 % 0.0`, 3, "division by zero"},
	{`0 ** -1`, 3, "division by zero"},
	{`(-8) ** 0.5`, 6, "a negative number can be raised only to a whole power"},
	{`pow(-8, 1e9)`, 1, "the result is out of range"},
	{`(-8) ** 1e9`, 6, "the result is out of range"},
	{`1e400 * 10`, 7, "the result is out of range"},
	{`1e-400 / 10`, 8, "the result is out of range"},
	{`10 ** 100000000`, 4, "the result is out of range"},
	{`now() + 1`, 7, "but its left side is a date"},
	{`input.missing > 1`, 15, "> needs two numbers, two texts or two dates, but input.missing is null"},
	{`(input.missing > 1) ?? 5`, 16, "but input.missing is null"},
	{`1 < null`, 3, "but its right side is null"},
	{`"a" < 1`, 5, "but its left side is text and its right side is a number"},
	{`true > false`, 6, "but its left side is true or false"},
	{`[1] < [2]`, 5, "but its left side is a list"},
	{`now() > "soon"`, 7, "is a date and its right side is text"},
	{`input.score ? 1 : 2`, 7, "a condition must be true or false, but input.score is a number"},
	{`input.missing ? 1 : 2`, 7, "but input.missing is null"},
	{`true and 1`, 10, "but this is a number"},
	{`null or true`, 1, "but this is null"},
	{`not input.missing`, 11, "but input.missing is null"},
	{`not input.score == 1`, 11, "but input.score is a number"},
	{`filter(input.items, .price)`, 22, "but .price is a number"},
	{`all(input.items, null)`, 18, "but this is null"},
	{`map(input.missing, #)`, 1, "map needs a list, but input.missing is null"},
	{`sum(input.items, .tag)`, 1, "sum needs numbers, but the value of one element is text"},
	{`sum([1, null])`, 1, "sum needs numbers, but one of them is null"},
	{`sum(null)`, 1, "sum needs a list, but argument 1 is null"},
	{`avg(["a"])`, 1, "avg needs numbers"},
	{`max([1, "a"])`, 1, "max needs numbers only, texts only or dates only"},
	{`min(null)`, 1, "min needs numbers only"},
	{`sort([1, "a"])`, 1, "sort needs numbers only"},
	{`sort([1, 2], "up")`, 1, `the order of sort is "asc" or "desc"`},
	{`reduce(1..65, [#acc], 1)`, 1, "the result is nested deeper than 64 levels"},
	{`groupBy([null], #)`, 1, "groupBy needs text"},
	{`5 in 5`, 3, "in needs a list or an object, but its right side is a number"},
	{`"a" in "abc"`, 5, "in needs a list or an object, but its right side is text"},
	{`1..2.5`, 2, ".. needs two whole numbers"},
	{`1..input.name`, 2, "but input.name is text"},
	{`null contains "a"`, 6, "contains needs two texts, but its left side is null"},
	{`"a" matches input.missing`, 5, "matches needs two texts, but input.missing is null"},
	{`"a" matches "(" + ""`, 5, "the regular expression is not valid"},
	{`round("1")`, 1, "round needs a number, but argument 1 is text"},
	{`round(input.missing, 2)`, 1, "round needs a number, but input.missing is null"},
	{`round(1, 0.5)`, 1, "round needs a whole number of at most 400, but argument 2 is not"},
	{`round(1, 1e10)`, 1, "round needs a whole number of at most 400"},
	{`number("1,5")`, 1, "number cannot read a number from argument 1"},
	{`number("")`, 1, "cannot read a number"},
	{`number(".")`, 1, "cannot read a number"},
	{`number("+-5")`, 1, "cannot read a number"},
	{`number("NaN")`, 1, "cannot read a number"},
	{`number("1e1000000")`, 1, "cannot read a number"},
	{`number(null)`, 1, "number needs a number or text, but argument 1 is null"},
	{`pmt(0.01, 0, 100)`, 1, "pmt needs at least one period"},
	{`pmt(-1, 5, 100)`, 1, "pmt needs a rate above -1"},
	{`pmt(0.01, 1.5, 100)`, 1, "pmt needs a whole number of at most 10000"},
	{`input.items[0.5]`, 12, "whole number"},
	{`input.items[input.name]`, 12, "the index of a list must be a number, but it is text"},
	{`input[1]`, 6, "the name of an object's member must be text, but it is a number"},
	{`input.items["a" == "a":]`, 12, "a bound of [from:to] must be a number"},
	{`input.score[1:]`, 12, "[from:to] needs a list or text, but input.score is a number"},
	{`{(1): 2}`, 1, "the name of a member must be text, but it is a number"},
	{`len(5)`, 1, "len needs a list, an object or text"},
	{`len(input.missing)`, 1, "but input.missing is null"},
	{`first("abc")`, 1, "first needs a list"},
	{`take([1], -1)`, 1, "not negative"},
	{`repeat("a", -1)`, 1, "not negative"},
	{`fromPairs([1])`, 1, "a list of pairs"},
	{`merge(1)`, 1, "merge needs an object, but argument 1 is a number"},
	{`keys([1])`, 1, "keys needs an object"},
	{`date("soon")`, 1, "date needs a date, or text such as 2026-01-31"},
	{`date("2026-02-30")`, 1, "date needs a date"},
	{`date(null)`, 1, "but argument 1 is null"},
	{`date("31-02-2026", "DD-MM-YYYY")`, 1, "date cannot read argument 1 with that pattern"},
	{`date("2026-01-31 10:00", "YYYY-MM-DD")`, 1, "date cannot read argument 1 with that pattern"},
	{`date("1", "QQ")`, 1, "the pattern of a date has YYYY"},
	{`dateAdd("2026-01-01", 1, "fortnights")`, 1, "the unit of dateAdd must be years, months"},
	{`dateAdd("2026-01-01", 100000, "years")`, 1, "the year of a date must be from 0 to 9999"},
	{`dateAdd("2026-01-01", 400000000000000, "years")`, 1, "the year of a date must be from 0 to 9999"},
	{`dateAdd("2026-01-01", -400000000000000, "years")`, 1, "the year of a date must be from 0 to 9999"},
	{`dateAdd("2026-01-01", -30500568904, "weeks")`, 1, "the year of a date must be from 0 to 9999"},
	{`dateAdd("9999-12-31", 1, "days")`, 1, "the year of a date must be from 0 to 9999"},
	{`dateDiff("x", "2026-01-01")`, 1, "dateDiff needs a date"},
	{`format(true, "0")`, 1, "format needs a number or a date"},
	{`format(1, "x")`, 1, "the pattern of a number must look like"},
	{`format(1234.5, "#.##0,00")`, 1, "the pattern of a number must look like"},
	{`format(1, "0.0.0")`, 1, "the pattern of a number must look like"},
	{`format("2026-01-31", "DD MMM YYYY")`, 1, "but no “MMM”"},
	{`date("20260131", "YYYYMDDD")`, 1, "but no “DDD”"},
	{`format(now(), "'x")`, 1, "is not closed"},
	{`fromJson("{")`, 1, "fromJson cannot read the text as JSON"},
	{`fromJson("[1e999]")`, 1, "an exponent within ±400"},
	{`fromBase64("*")`, 1, "fromBase64 needs text in base64"},
	{`fromBase64("/w==")`, 1, "are not UTF-8"},
	{`fromBase64("AA==")`, 1, "are not UTF-8"},
	{`sha256(1)`, 1, "sha256 needs text"},
	{`callbackUrl("unknown")`, 1, "callbackUrl has no address for that task"},
	{"1 +\n input.missing", 3, "but input.missing is null"},
}

func TestEvalRefuses(t *testing.T) {
	t.Parallel()
	env := environment(t)
	for _, tc := range failing {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			x, err := expression.Compile(tc.source, all)
			require.NoError(t, err, tc.source)
			_, err = x.Eval(env)
			requireError(t, err, tc.source, tc.message, tc.column)
		})
	}
}

func TestEvalBool(t *testing.T) {
	t.Parallel()
	env := environment(t)
	for source, want := range map[string]bool{"input.score >= 650": true, "input.approved == false": false} {
		x, err := expression.Compile(source, all)
		require.NoError(t, err)
		met, err := x.EvalBool(env)
		require.NoError(t, err)
		require.Equal(t, want, met)
	}
	for _, source := range []string{"input.score", "input.missing", `"true"`, "1"} {
		x, err := expression.Compile(source, all)
		require.NoError(t, err)
		_, err = x.EvalBool(env)
		require.ErrorContains(t, err, "line 1, column 1: a condition must be true or false", source)
	}
}

func TestEvalWithoutEnvironment(t *testing.T) {
	t.Parallel()
	x, err := expression.Compile(`[input, input.x, tasks.a, execution.id, custom, item, index, last, $.x]`, all)
	require.NoError(t, err)
	v, err := x.Eval(nil)
	require.NoError(t, err)
	require.Equal(t, `[null,null,null,null,null,null,0,null,null]`, encode(t, v))
	x, err = expression.Compile(`callbackUrl("a")`, all)
	require.NoError(t, err)
	_, err = x.Eval(nil)
	require.ErrorContains(t, err, "callbackUrl has no address to give here")
}

func TestForeignValuesAreErrorsNotPanics(t *testing.T) {
	t.Parallel()
	env := &expression.Env{Input: map[string]any{"a": 1.5, "b": []string{"x"}, "n": json.Number("x")}}
	for _, source := range []string{
		`input.a + 1`, `input.a > 1`, `sum([input.a])`, `map(input.b, #)`, `input.n + 1`, `toJson(input)`, `string(input.b)`,
	} {
		x, err := expression.Compile(source, all)
		require.NoError(t, err)
		_, err = x.Eval(env)
		var e *expression.Error
		require.ErrorAs(t, err, &e, source)
		requireReadable(t, e)
	}
}

func TestRefs(t *testing.T) {
	t.Parallel()
	const source = `tasks.b.output + tasks["a-b"].output.x + $.total.x + $["net"] + (let q = tasks.b; 1) + map(input.l, tasks?.c)[0]`
	x, err := expression.Compile(source, all)
	require.NoError(t, err)
	require.Equal(t, []string{"a-b", "b", "c"}, x.TaskRefs())
	require.Equal(t, []string{"net", "total.x"}, fieldPaths(t, "{{ "+source+" }}", all))
	x, err = expression.Compile(`let q = input; q.tasks`, all)
	require.NoError(t, err)
	require.Empty(t, x.TaskRefs())
}

// fieldPaths are those of a tree that is a text and no more.
func fieldPaths(t *testing.T, text string, scope expression.Scope) []string {
	t.Helper()
	tree, faults := expression.CompileTree(text, scope)
	require.Empty(t, faults)
	return tree.FieldPaths()
}

func TestCheckCondition(t *testing.T) {
	t.Parallel()
	for source, message := range map[string]string{
		`1`: "column 1: a condition must be true or false, but this is a number", `"a"`: "this is text", `null`: "this is null", `nil`: "this is null",
		`[true]`: "this is a list", `1..5`: "this is a list", `{"a": true}`: "this is an object", `-input.a`: "this is a number",
		`input.a + input.b`: "column 9: a condition must be true or false, but this is a number or text", `input.a * 2`: "this is a number",
		`not 1`: "column 5: a condition", `input.a and 1`: "column 13: a condition", `"a" or input.a`: "column 1: a condition",
	} {
		x, err := expression.Compile(source, all)
		require.NoError(t, err)
		require.ErrorContains(t, x.CheckCondition(), message, source)
	}
	for _, source := range []string{
		`true`, `input.a`, `not input.a`, `1 < 2`, `1 in [1]`, `input.a ?? 1`, `input.a ? 1 : 2`, `input.a and true`, `any([1], # > 0)`,
	} {
		x, err := expression.Compile(source, all)
		require.NoError(t, err)
		require.NoError(t, x.CheckCondition(), source)
	}
}

func TestConstant(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]any{
		`1.10`: json.Number("1.10"), `-5`: json.Number("-5"), `"a"`: "a", `true`: true, `null`: nil, `nil`: nil,
	} {
		x, err := expression.Compile(source, all)
		require.NoError(t, err)
		v, ok := x.Literal()
		require.True(t, ok, source)
		require.Equal(t, want, v)
	}
	for _, source := range []string{`1 + 1`, `input`, `-input.a`, `now()`, `[1]`} {
		x, err := expression.Compile(source, all)
		require.NoError(t, err)
		_, ok := x.Literal()
		require.False(t, ok, source)
	}
}
