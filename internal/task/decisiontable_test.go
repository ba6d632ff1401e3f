package task

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tranche/internal/fault"
	"tranche/internal/workflow"
)

// scoring is the table of most cases, with a hit policy to be filled in.
const scoring = `{"hitPolicy":%q,
	"inputs":[{"field":"input.score","name":"Score"},{"field":"input.region"},{}],
	"outputs":[{"name":"decision"},{"name":"limit.amount"},{"name":"limit.note"}],
	"rules":[
		{"when":[">= 700","-",null],                  "then":["\"approve\"","input.income * 3",""]},
		{"when":["[600..700)","\"north\",\"east\"",""],"then":["\"refer\"",1.10,null]},
		{"when":["[600..)","not(\"west\")",""],        "then":["\"refer\"",5000,{"a":1}]},
		{"when":["","","input.vip == true"],           "then":["\"approve\"","-","\"vip\""]},
		{"when":["null","",""],                        "then":["\"ask\"","",""]}
	]}`

func TestDecisionTablePolicies(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ policy, input, want string }{
		{"first", `{"score":700,"income":1000.10}`, `{"decision":"approve","limit":{"amount":3000.3}}`},
		{"first", `{"score":650.5,"region":"east"}`, `{"decision":"refer","limit":{"amount":1.10,"note":null}}`},
		{"first", `{"score":650,"region":"south"}`, `{"decision":"refer","limit":{"amount":5000,"note":{"a":1}}}`},
		{"first", `{"score":650,"region":"west"}`, `{}`},
		{"first", `{"score":650,"region":"west","vip":true}`, `{"decision":"approve","limit":{"note":"vip"}}`},
		{"first", `{}`, `{"decision":"ask"}`},
		{"first", `{"score":null,"vip":true}`, `{"decision":"approve","limit":{"note":"vip"}}`},
		{"collect", `{"score":1}`, `[]`},
		{
			"collect", `{"score":600,"region":"north"}`,
			`[{"decision":"refer","limit":{"amount":1.10,"note":null}},{"decision":"refer","limit":{"amount":5000,"note":{"a":1}}}]`,
		},
		{"priority", `{"score":600,"region":"north"}`, `{"decision":"refer","limit":{"amount":1.10,"note":null}}`},
	} {
		p := program(t, "decision-table", fmt.Sprintf(scoring, c.policy))
		require.False(t, p.Effect())
		output, result := run(t, p, c.input)
		require.Equal(t, c.want, output, "%s %s", c.policy, c.input)
		require.Nil(t, result.Targets)
	}
}

// An expression is asked once for the value of its own column, and keeps its answer.
func TestDecisionTableExpressionsOfColumns(t *testing.T) {
	t.Parallel()
	p := program(t, "decision-table", `{"inputs":[{"field":"input.a"},{"field":"input.b"}],"outputs":[{"name":"hit"}],
		"rules":[{"when":["$ * 2 > 10",""],"then":[1]},{"when":["$ * 2 > 10","< 0"],"then":[2]},{"when":["","$ * 2 > 10"],"then":[3]},{"when":["$ * 2 > 10",""],"then":[4]}]}`)
	for input, want := range map[string]string{
		`{"a":9,"b":1}`: `{"hit":1}`, `{"a":1,"b":9}`: `{"hit":3}`, `{"a":1,"b":-9}`: `{}`, `{"a":1,"b":1}`: `{}`,
	} {
		output, _ := run(t, p, input)
		require.Equal(t, want, output, input)
	}
}

func TestDecisionTablePriority(t *testing.T) {
	t.Parallel()
	p := program(t, "decision-table", `{"hitPolicy":"priority",
		"inputs":[{"field":"input.n"}],
		"outputs":[{"name":"grade","values":["reject","refer","accept"]},{"name":"rate","values":[9,7]},{"name":"note"}],
		"rules":[
			{"when":[""],   "then":["\"accept\"",7,"\"always\""]},
			{"when":["> 5"],"then":["\"refer\"","3 + 4","\"first\""]},
			{"when":["> 5"],"then":["\"refer\"",9,"\"second\""]},
			{"when":["> 5"],"then":["\"refer\"",9,"\"third\""]},
			{"when":["> 9"],"then":["","input.rate","\"no grade\""]},
			{"when":["> 8"],"then":["input.grade",7,"\"computed\""]}
		]}`)
	for input, want := range map[string]string{
		`{"n":1}`:                           `{"grade":"accept","note":"always","rate":7}`,
		`{"n":6}`:                           `{"grade":"refer","note":"second","rate":9}`,
		`{"n":9,"grade":"reject"}`:          `{"grade":"reject","note":"computed","rate":7}`,
		`{"n":10,"rate":9,"grade":"refer"}`: `{"grade":"refer","note":"second","rate":9}`,
		`{"n":10,"rate":7,"grade":7}`:       "",
	} {
		if want == "" {
			failed := failing(t, p, input)
			require.Equal(t, codeDecisionTable, failed.Code)
			require.Contains(t, failed.Message, "rules[5].then[0]: the result must be one of the output's values")
			continue
		}
		output, _ := run(t, p, input)
		require.Equal(t, want, output, input)
	}
}

func TestDecisionTableAggregates(t *testing.T) {
	t.Parallel()
	const config = `{"hitPolicy":"collect","aggregate":%q,"inputs":[{"field":"input.n"}],"outputs":[{"name":"points"},{"name":"x.y"}],
		"rules":[{"when":["> 1"],"then":[0.10,"\"b\""]},{"when":["> 2"],"then":["0.2","\"a\""]},{"when":["> 3"],"then":["",null]}]}`
	for _, c := range []struct{ aggregate, config, input, want string }{
		{"count", config, `{"n":4}`, `{"points":2,"x":{"y":2}}`},
		{"count", config, `{"n":0}`, `{"points":0,"x":{"y":0}}`},
		{"min", config, `{"n":4}`, `{"points":0.1,"x":{"y":"a"}}`},
		{"max", config, `{"n":4}`, `{"points":0.2,"x":{"y":"b"}}`},
		{"max", config, `{"n":0}`, `{"points":null,"x":{"y":null}}`},
		{"none", config, `{"n":0}`, `[]`},
		{"sum", strings.ReplaceAll(config, `\"b\"`, "5"), `{"n":2}`, `{"points":0.1,"x":{"y":5}}`},
		{"sum", config, `{"n":0}`, `{"points":0,"x":{"y":0}}`},
	} {
		output, _ := run(t, program(t, "decision-table", fmt.Sprintf(c.config, c.aggregate)), c.input)
		require.Equal(t, c.want, strings.ReplaceAll(output, "0.10", "0.1"), c.aggregate+c.input)
	}
	failed := failing(t, program(t, "decision-table", fmt.Sprintf(config, "sum")), `{"n":2}`)
	require.Contains(t, failed.Message, "outputs[1]")
}

func TestDecisionTableUnique(t *testing.T) {
	t.Parallel()
	p := program(t, "decision-table", `{"hitPolicy":"unique","inputs":[{"field":"input.n"},{"expr":"input.n % 2"}],"outputs":[{"name":"a"}],
		"rules":[{"when":["< 5","0"],"then":[1]},{"when":["< 5","1"],"then":[2]},{"when":[">= 5",""],"then":[3]},{"when":["$ == 7",""],"then":[4]}]}`)
	for input, want := range map[string]string{`{"n":2}`: `{"a":1}`, `{"n":3}`: `{"a":2}`, `{"n":5}`: `{"a":3}`, `{"n":2.5}`: `{}`} {
		output, _ := run(t, p, input)
		require.Equal(t, want, output, input)
	}
	failed := failing(t, p, `{"n":7}`)
	require.Equal(t, codeDecisionTable, failed.Code)
	require.Equal(t, "rules[2] and rules[3] both hit, but the hit policy is unique", failed.Message)
}

func TestDecisionTableColumns(t *testing.T) {
	t.Parallel()
	const config = `{"inputs":[%s],"outputs":[{"name":"a"}],"rules":[{"when":[%s],"then":[1]}]}`
	for _, c := range []struct{ column, cell, input, want string }{
		{`{"field":"input.a-b.c"}`, `"7"`, `{"a-b":{"c":7.0}}`, `{"a":1}`},
		{`{"field":"input.list.1"}`, `"7"`, `{"list":[1,7]}`, `{"a":1}`},
		{`{"field":"input.list.2"}`, `null`, `{"list":[1,7]}`, `{"a":1}`},
		{`{"field":"input.a.b.c"}`, `"null"`, `{"a":1}`, `{"a":1}`},
		{`{"field":"custom.x"}`, `"null"`, `{}`, `{"a":1}`},
		{`{"field":"execution.id"}`, `"null"`, `{}`, `{"a":1}`},
		{`{"field":"input.n"}`, `7`, `{"n":7.00}`, `{"a":1}`},
		{`{"field":"input.n"}`, `true`, `{"n":true}`, `{"a":1}`},
		{`{"expr":"input.n * 2"}`, `">= 14"`, `{"n":7}`, `{"a":1}`},
		{`{"expr":"input.n * 2"}`, `"$ > 13 && $ < 15"`, `{"n":7}`, `{"a":1}`},
		{`{"field":"input.n"}`, `"$ in [1, 7]"`, `{"n":7}`, `{"a":1}`},
		{`{"name":"free"}`, `"input.n > 5"`, `{"n":7}`, `{"a":1}`},
		{`{"field":"input.s"}`, `"includes($, \"x\")"`, `{"s":"axb"}`, `{"a":1}`},
		{`{"field":"input.n"}`, `">= 5, \"n/a\""`, `{"n":"n/a"}`, `{"a":1}`},
		{`{"field":"input.n"}`, `">= 5"`, `{}`, `{}`},
	} {
		output, _ := run(t, program(t, "decision-table", fmt.Sprintf(config, c.column, c.cell)), c.input)
		require.Equal(t, c.want, output, c.column+c.cell)
	}
	for _, c := range []struct{ column, cell, input, code, message string }{
		{`{"field":"input.n"}`, `">= 5"`, `{"n":"6"}`, codeDecisionTable, "inputs[0]: the value is a text, which"},
		{`{"field":"input.n"}`, `"[1..5]"`, `{"n":[3]}`, codeDecisionTable, "inputs[0]: the value is an object or an array, which"},
		{`{"expr":"input.n * 2"}`, `">= 5"`, `{}`, workflow.CodeExpression, "inputs[0].expr: "},
		{`{"field":"input.n"}`, `"$ * 2 > 5"`, `{}`, workflow.CodeExpression, "rules[0].when[0]: "},
		{`{"field":"input.n"}`, `"$ ?? 1"`, `{"n":1}`, workflow.CodeExpression, "rules[0].when[0]: "},
	} {
		failed := failing(t, program(t, "decision-table", fmt.Sprintf(config, c.column, c.cell)), c.input)
		require.Equal(t, c.code, failed.Code, c.column+c.cell)
		require.Contains(t, failed.Message, c.message)
	}
}

func TestDecisionTableRefusals(t *testing.T) {
	t.Parallel()
	const at = "tasks[0].config."
	table := func(in, out, rules string) string {
		return `{"inputs":[` + in + `],"outputs":[` + out + `],"rules":[` + rules + `]}`
	}
	const field, out = `{"field":"input.n"}`, `{"name":"a"}`
	requireRefusals(t, "decision-table", []refusal{
		{`{}`, at + "outputs", "is required"},
		{`{}`, at + "rules", "is required"},
		{`{"inputs":[],"outputs":[],"rules":[]}`, at + "outputs", "1 to 100"},
		{table(field, `{"name":"a"},{"name":"a"}`, ""), at + "outputs[1].name", "conflicts with the output a"},
		{table(field, `{"name":"a.b"},{"name":"a"}`, ""), at + "outputs[1].name", "conflicts with the output a.b"},
		{table(field, `{"name":"a..b"}`, ""), at + "outputs[0].name", "dots"},
		{table(field, `{}`, ""), at + "outputs[0].name", "is required"},
		{table(field, `{"name":"a","values":[1]}`, ""), at + "outputs[0].values", "is allowed only with the hit policy priority"},
		{table(`{"field":"nope.n"}`, out, ""), at + "inputs[0].field", ""},
		{table(`{"field":"input..n"}`, out, ""), at + "inputs[0].field", "dotted path"},
		{table(`{"field":"tasks.nope.output"}`, out, ""), at + "inputs[0].field", "task"},
		{table(`{"expr":"1 +"}`, out, ""), at + "inputs[0].expr", ""},
		{table(`{"field":"input.n","expr":"1"}`, out, ""), at + "inputs[0]", "must have field or expr, not both"},
		{table(`{"field":"input.n","type":"number"}`, out, ""), at + "inputs[0].type", "not a known property"},
		{table(field, out, `{"when":[],"then":[1]}`), at + "rules[0].when", "it has 0 cells for 1 inputs"},
		{table(field, out, `{"when":["1"],"then":[1,2]}`), at + "rules[0].then", "has 2 cells for 1 outputs"},
		{table(field, out, `{"then":[1]}`), at + "rules[0].when", "is required"},
		{table(field, out, `{"when":[""]}`), at + "rules[0].then", "is required"},
		{table(field, out, `{"when":[""],"then":[1],"priority":1}`), at + "rules[0].priority", "not a known property"},
		{table(field, out, `5,{"when":["hunter2"],"then":[1]}`), at + "rules[0]", "must be an object"},
		{table(field, out, `{"when":["gold"],"then":[1]}`), at + "rules[0].when[0]", ""},
		{table(field, out, `{"when":["[1..\"a\"]"],"then":[1]}`), at + "rules[0].when[0]", "both ends"},
		{table(field, out, `{"when":["> true"],"then":[1]}`), at + "rules[0].when[0]", "only numbers and texts"},
		{table(field, out, `{"when":["1..5"],"then":[1]}`), at + "rules[0].when[0]", "a condition must be true or false, but this is a list"},
		{table(field, out, `{"when":["$ + 1"],"then":[1]}`), at + "rules[0].when[0]", "a condition must be true or false"},
		{table(field, out, `{"when":["not(not(1))"],"then":[1]}`), at + "rules[0].when[0]", "but this is a number"},
		{table(field, out, `{"when":[[1]],"then":[1]}`), at + "rules[0].when[0]", "must be a text, a number or a boolean"},
		{table(`{}`, out, `{"when":["> 5"],"then":[1]}`), at + "rules[0].when[0]", "neither field nor expr"},
		{table(`{}`, out, `{"when":["$ > 5"],"then":[1]}`), at + "rules[0].when[0]", "$"},
		{table(field, out, `{"when":[""],"then":["approve"]}`), at + "rules[0].then[0]", ""},
		{table(field, out, `{"when":[""],"then":["$"]}`), at + "rules[0].then[0]", "$"},
		{`{"hitPolicy":"any","inputs":[],"outputs":[{"name":"a"}],"rules":[]}`, at + "hitPolicy", "must be one of"},
		{`{"aggregate":"sum","inputs":[],"outputs":[{"name":"a"}],"rules":[]}`, at + "aggregate", "is allowed only with the hit policy collect"},
		{
			`{"hitPolicy":"priority","inputs":[],"outputs":[{"name":"a","values":[1]}],"rules":[{"when":[],"then":[2]}]}`,
			at + "rules[0].then[0]", "one of the output's values",
		},
	})
}

// overlapTable is a table of hit policy unique over the given columns and rules.
func overlapTable(policy, inputs, rules string) string {
	var all strings.Builder
	for i, when := range strings.Split(rules, ";") {
		if i > 0 {
			all.WriteByte(',')
		}
		all.WriteString(`{"when":[` + when + `],"then":[1]}`)
	}
	return `{"hitPolicy":"` + policy + `","inputs":[` + inputs + `],"outputs":[{"name":"a"}],"rules":[` + all.String() + `]}`
}

func TestDecisionTableOverlaps(t *testing.T) {
	t.Parallel()
	const n, nm, nn = `{"field":"input.n"}`, `{"field":"input.n"},{"field":"input.m"}`, `{"field":"input.n"},{"field":"input.n"}`
	for _, c := range []struct {
		inputs, rules string
		overlap       bool
	}{
		{n, `"< 5";">= 5"`, false},
		{n, `"<= 5";">= 5"`, true},
		{n, `"(4..5)";"[5..6]";"4"`, false},
		{n, `"(4..5)";"(4.5..6]"`, true},
		{n, `"\"a\"";"\"b\"";"not(\"a\",\"b\")"`, false},
		{n, `"\"a\"";"";"\"b\""`, true},
		{n, `"null";"> 0";"true"`, false},
		{nm, `"< 5","< 5";"< 5",">= 5"`, false},
		{nm, `"< 5","";"","< 5"`, true},
		{nn, `"> 5","< 3";"4",""`, false},          // the first can never hit
		{nn, `"> 5","< 9";"> 7","< 11"`, true},     // 8
		{nn, `"> 5","< 7";"> 7","< 11"`, false},    // apart only when taken together
		{nn, `"> 5","< 8";"< 9","> 7"`, true},      // 7.5
		{n, `"$ > 5";"> 5"`, false},                // an expression: not sure
		{`{"expr":"input.n"}`, `"5";"> 4"`, false}, // the value of an expression: not sure
		{nm + `,{"expr":"input.n"}`, `"5","","";">4","",""`, true},
		{`{"field":"input.a"},{"field":"input.a.b"}`, `"null","";"","5"`, false}, // no input has both
		{n, `"[5..1]";"3"`, false},
	} {
		_, details := compile(t, Types(Ports{}), "decision-table", overlapTable("unique", c.inputs, c.rules))
		if !c.overlap {
			require.Empty(t, details, c.rules)
			continue
		}
		require.NotEmpty(t, details, c.rules)
		require.Regexp(t, `^tasks\[0\]\.config\.rules\[[12]\]$`, details[0].Field)
		require.Regexp(t, `can hit together with rules\[[01]\]`, details[0].Message)
	}
}

func TestDecisionTableWarningsAreBounded(t *testing.T) {
	t.Parallel()
	rules := strings.TrimSuffix(strings.Repeat(`">= 1,500";`, 101), ";")
	p, details := plan(t, Types(Ports{}), `[{"id":"t","type":"decision-table","config":`+overlapTable("collect", `{"field":"input.n"}`, rules)+`}]`, `[]`)
	require.Empty(t, details)
	require.Len(t, p.Warnings, 100)
}

func TestDecisionTableWarnings(t *testing.T) {
	t.Parallel()
	const nm = `{"field":"input.n"},{"field":"input.m"}`
	for _, c := range []struct{ policy, rules, want string }{
		{"first", `"> 5","";"> 6","< 3";"< 5",""`, "tasks[0].config.rules[1]: can never hit: rules[0] hits before it"},
		{"first", `"","";"1",""`, "tasks[0].config.rules[1]: can never hit: rules[0] hits before it"},
		{"first", `"$ > 5","1";"$ > 5","1"`, "tasks[0].config.rules[1]: can never hit: rules[0] hits before it"},
		{"first", `"1,2,[5..9]","";"2,[6..7]","1"`, "tasks[0].config.rules[1]: can never hit: rules[0] hits before it"},
		{"collect", `"[5..1]",""`, "tasks[0].config.rules[0]: can never hit: its conditions contradict each other"},
		{"collect", `"","";"1",""`, ""},
		{"first", `"$ > 5","";"> 6",""`, ""},
		{"first", `"[1..5]","";"[5..6]",""`, ""},
		{"first", `">= 1,500",""`, "tasks[0].config.rules[0].when[0]: has an entry that another entry includes; write numbers without a thousands separator"},
		{"collect", `"","not(7, \"a\", (5..8])"`, "tasks[0].config.rules[0].when[1]: has an entry that another entry includes; write numbers without a thousands separator"},
		{"first", `"< 1, 1, > 1","not([1..5], [4..6], null)"`, ""},
	} {
		p, details := plan(t, Types(Ports{}), `[{"id":"t","type":"decision-table","config":`+overlapTable(c.policy, nm, c.rules)+`}]`, `[]`)
		require.Empty(t, details)
		p.Warnings = slices.DeleteFunc(p.Warnings, func(w fault.Detail) bool { return strings.Contains(w.Message, "leave a gap") })
		if c.want == "" {
			require.Empty(t, p.Warnings, c.rules)
			continue
		}
		require.Len(t, p.Warnings, 1, c.rules)
		require.Equal(t, c.want, p.Warnings[0].Field+": "+p.Warnings[0].Message)
	}
}

func TestDecisionTableGaps(t *testing.T) {
	t.Parallel()
	const nr = `{"field":"input.n"},{"field":"input.region"}`
	for _, c := range []struct{ policy, inputs, rules, want string }{
		{"first", nr, `">= 700","";"[600..700)",""`, "input.n is less than 600"},
		{"first", nr, `">= 700","";"< 700",""`, ""},
		{"first", nr, `"> 700","";"< 700",""`, "input.n is 700"},
		{"unique", nr, `">= 700","\"north\",\"south\"";"< 650","";"[650..700)","\"south\""`, `input.n is 650 and input.region is "north"`},
		{"priority", `{"field":"input.n"},{"field":"input.vip"}`, `"[1..5]","true";"","false"`, "input.n is less than 1 and input.vip is true"},
		{"first", nr, `"5","";"input.n > 7",""`, ""},
		{"first", nr, `"5","";"",""`, ""},
		{"first", nr, `"null","\"a\"";"> 0",""`, "input.n is less than 0 and input.region is \"a\""},
		{"first", nr, `"null","\"a\"";"",""`, ""},
		{"first", nr, `"null",""`, ""},
		{"first", `{"expr":"input.n * 2"}`, `"<= 5";"> 6"`, "inputs[0] is between 5 and 6"},
		{"first", `{"field":"input.n"},{"field":"input.n"}`, `"> 5","< 9";"<= 5","";"","> 9"`, "input.n is 9"},
		{"collect", nr, `"5",""`, ""},
	} {
		p, details := plan(t, Types(Ports{}), `[{"id":"t","type":"decision-table","config":`+overlapTable(c.policy, c.inputs, c.rules)+`}]`, `[]`)
		require.Empty(t, details, c.rules)
		if c.want == "" {
			require.Empty(t, p.Warnings, c.rules)
			continue
		}
		require.Len(t, p.Warnings, 1, c.rules)
		require.Equal(t, "tasks[0].config.rules", p.Warnings[0].Field)
		require.Contains(t, p.Warnings[0].Message, "leave a gap: no rule hits if "+c.want)
	}
}

// hasGap asks for every value of a table of two columns.
func hasGap(p *table) bool {
	ranks := func(axis int) (all []uint32) {
		domain := p.axes[axis].named(p.columns[axis].kinds)
		for rank := range p.axes[axis].rankOther() + 1 {
			if contain(domain, rank) {
				all = append(all, rank)
			}
		}
		return all
	}
	for _, n := range ranks(0) {
		for _, m := range ranks(1) {
			holds := false
			for i := range p.rules {
				row := p.row(i)
				holds = holds || contain(row[0].spans, n) && contain(row[1].spans, m)
			}
			if !holds {
				return true
			}
		}
	}
	return false
}

// The prefilter leaves out no pair: what it finds in random tables is what comparing
// all pairs finds.
func TestDecisionTableCheckAgreesWithAllPairs(t *testing.T) {
	t.Parallel()
	cells := []string{`""`, `"1"`, `"[1..4]"`, `"(2..6)"`, `"> 3"`, `"<= 5"`, `"1,5"`, `"2,4,6"`, `"not(3)"`, `"[7..6]"`, `"$ > 2"`, `"\"a\""`}
	rapid.Check(t, func(rt *rapid.T) {
		var rules []string
		for range rapid.IntRange(1, 150).Draw(rt, "rules") {
			rules = append(rules, fmt.Sprintf(`{"when":[%s,%s],"then":["1"]}`,
				rapid.SampledFrom(cells).Draw(rt, "n"), rapid.SampledFrom(cells).Draw(rt, "m")))
		}
		p := program(t, "decision-table", `{"inputs":[{"field":"input.n"},{"field":"input.m"}],"outputs":[{"name":"o"}],"rules":[`+strings.Join(rules, ",")+`]}`)
		check := ruleCheck{table: p.(*table), left: comparisonsMax}
		dependent := check.dependentColumns()
		var overlaps, shadowed []pair
		for later := range check.rules {
			var together, before bool
			for earlier := range later {
				sure := !check.undecided(earlier, dependent) && !check.undecided(later, dependent) && !check.neverHolds(earlier) && !check.neverHolds(later)
				if sure && !together && check.shareInput(earlier, later) {
					overlaps, together = append(overlaps, pair{earlier, later}), true
				}
				if !check.neverHolds(later) && !before && check.subsumes(earlier, later) {
					shadowed, before = append(shadowed, pair{earlier, later}), true
				}
			}
			if check.neverHolds(later) {
				shadowed = append(shadowed, pair{later, later})
			}
		}
		require.Equal(rt, hasGap(check.table), check.gap() != "")
		require.Empty(rt, cmp.Diff(overlaps, check.overlaps(), cmp.AllowUnexported(pair{})))
		require.Empty(rt, cmp.Diff(shadowed, check.shadowed(), cmp.AllowUnexported(pair{})))
	})
}

// bigTable has n rules over bands of score, a region and a flag.
func bigTable(n int) string {
	var rules []string
	for i := range n {
		rules = append(rules, fmt.Sprintf(`{"when":["[%d.%02d..%d.%02d)","\"r%d\"","%t"],"then":["\"d%d\"",%d.5]}`,
			i/10, i%10*10, i/10, i%10*10+10-i%10/9, i%7, i%2 == 0, i, i))
	}
	return `{"inputs":[{"field":"input.score"},{"field":"input.region"},{"field":"input.flag"}],"outputs":[{"name":"decision"},{"name":"limit"}],"rules":[` +
		strings.Join(rules, ",") + `]}`
}

func BenchmarkDecisionTable(b *testing.B) {
	for _, n := range []int{20, 5_000} {
		b.Run(fmt.Sprintf("rules=%d", n), func(b *testing.B) {
			p := program(b, "decision-table", bigTable(n))
			calls := make([]*workflow.Call, 64)
			random := rand.New(rand.NewPCG(1, 2))
			for i := range calls {
				k := random.IntN(n)
				calls[i] = callWith(b, fmt.Sprintf(`{"score":%d.%02d,"region":"r%d","flag":%t}`, k/10, k%10*10+5, k%7, k%2 == 0))
			}
			i := 0
			for b.Loop() {
				result, err := p.Run(b.Context(), calls[i%len(calls)])
				if err != nil || len(result.Output.(map[string]any)) != 2 {
					b.Fatal(result, err)
				}
				i++
			}
		})
	}
	for _, n := range []int{1_000, 5_000, 10_000} {
		for _, policy := range []hitPolicy{hitFirst, hitUnique} {
			b.Run(fmt.Sprintf("publish/%s/rules=%d", policy, n), func(b *testing.B) {
				config := strings.Replace(bigTable(n), `{`, fmt.Sprintf(`{"hitPolicy":%q,`, policy), 1)
				for b.Loop() {
					program(b, "decision-table", config)
				}
			})
		}
	}
}
