package expression_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tranche/internal/expression"
)

// greedy are expressions that would take very long or much memory.
var greedy = []string{
	`all(1..300, all(1..300, all(1..300, true)))`,
	`all(input.list, {let x = #; all(input.list, # + x >= 0)})`,
	`sum(map(1..99999, # * 2))`,
	`1..100000000`,
	`1..99999999999`,
	`map(1..50000, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10])`,
	`reduce(1..60, [#acc, #acc], [])`,
	`toJson(reduce(1..60, [#acc, #acc], []))`,
	`reduce(1..40, #acc + #acc, "aaaaaaaaaa")`,
	`reduce(1..40, flatten([#acc, #acc]), [1])`,
	`reduce(1..40, concat(#acc, #acc), [1])`,
	`reduce(1..40, ({"a": #acc, "b": #acc}), 1)`,
	`reduce(1..60, [#acc, #acc], []) == reduce(1..60, [#acc, #acc], [])`,
	`uniq([reduce(1..50, [#acc, #acc], [])])`,
	`string(reduce(1..50, [#acc, #acc], []))`,
	`join([reduce(1..50, [#acc, #acc], [])])`,
	`merge(reduce(1..40, ({"a": #acc, "b": #acc}), {}), reduce(1..40, ({"a": #acc, "b": #acc}), {}))`,
	`reduce(1..100, [#acc], 1)`,
	`repeat("a", 10000001)`,
	`repeat(repeat("ab", 1000), 100000)`,
	`join(map(1..20000, input.text), "")`,
	`join(1..90000, input.text)`,
	`replace(input.text, "a", input.text)`,
	`replace(input.text, "", input.text)`,
	`regexReplace(input.text, "a", "$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0$0")`,
	`regexReplace(input.text, ".*", repeat("$0", 10000))`,
	`all(1..5000, input.text contains "b" == false)`,
	`all(1..5000, not (input.text matches "(a|b|ab)*c"))`,
	`input.text matches repeat("(a?){10}", 100)`,
	`input.text matches "(((a{1,100}){1,10})b)"`,
	`all(1..5000, sha256(input.text) != "")`,
	`all(1..5000, len(split(input.text, "")) > 0)`,
	`all(1..5000, input.list == input.list)`,
	`all(1..5000, len(sort(input.list)) > 0)`,
	`all(1..90000, 2 ** 0.5 > 1)`,
	`all(1..90000, 1.000001 ** 999999 > 1)`,
	`all(1..90000, pmt(0.01, 360, #) > 0)`,
	`all(1..90000, 1e400 > 1e-400 and 1e400 % 7 >= 0)`,
	`all(1..90000, upper(input.text) != "")`,
	`all(1..90000, trim(input.text, "ñaé") == "")`,
	`all(1..90000, fromJson(input.json) != null)`,
	`all(1..90000, toJson(input.list) != "")`,
	`all(1..90000, dateDiff("2026-01-01", "x026-01-01") == 0)`,
	`all(1..90000, dateDiff("2026-01-01", "2026-01-02") == 1 and true and true)`,
	`any(1..90000, "a" matches "(abcdefgh[a-z]){900}" + string(#))`,
	`map(1..90000, "a" matches "a" + string(#))`,
}

// within is the processor time that one evaluation may take before its budget
// stops it, in the best of several tries. It is the process' own, because the
// machine may be busy with other tests.
const (
	within   = slowdown * 100 * time.Millisecond
	triesMax = 10
)

func greedyEnv() *expression.Env {
	list := make([]any, 300)
	for i := range list {
		list[i] = json.Number(fmt.Sprint(i % 7))
	}
	return &expression.Env{Input: map[string]any{
		"list": list, "text": strings.Repeat("a", 500_000), "json": strings.Repeat("[", 60) + strings.Repeat("]", 60),
	}}
}

func TestBudgetStopsCostlyExpressions(t *testing.T) { // it measures time
	env := greedyEnv()
	for _, source := range greedy {
		x, err := expression.Compile(source, expression.Scope{})
		require.NoError(t, err, source)
		took := within
		for try := 0; try < triesMax && took >= within; try++ {
			started := processorTime(t)
			_, err = x.Eval(env)
			took = processorTime(t) - started
			var e *expression.Error
			require.ErrorAs(t, err, &e, source)
			requireReadable(t, e)
		}
		require.Less(t, took, within, source)
	}
}

// processorTime is what this process has used so far.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var used syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

func TestBudgetAllowsUsualExpressions(t *testing.T) {
	t.Parallel()
	items := make([]any, 5_000)
	for i := range items {
		items[i] = map[string]any{"price": json.Number("19.99"), "qty": json.Number(fmt.Sprint(i % 9))}
	}
	env := &expression.Env{Input: map[string]any{"items": items}}
	for source, want := range map[string]string{
		`sum(input.items, .price * .qty)`:                         `399600.1`,
		`len(sortBy(input.items, .qty))`:                          `5000`,
		`len(filter(input.items, .qty > 3 and .price < 20))`:      `2776`,
		`len(input.items | map(.qty) | uniq())`:                   `9`,
		`input`:                                                   encode(t, env.Input),
		`len({"all": input.items, "again": input.items})`:         `2`,
		`len(toJson(input)) > 100000 and len(input.items) == 5e3`: `true`,
	} {
		x, err := expression.Compile(source, expression.Scope{})
		require.NoError(t, err)
		v, err := x.Eval(env)
		require.NoError(t, err, source)
		require.Equal(t, want, encode(t, v), source)
	}
}

func TestBudgetCoversWholeTemplateAndTree(t *testing.T) {
	t.Parallel()
	env := &expression.Env{Input: strings.Repeat("a", 4_000_000)}
	template, err := expression.CompileTemplate("{{ input }}{{ input }}{{ input }}", expression.Scope{})
	require.NoError(t, err)
	_, err = template.Eval(env)
	require.ErrorContains(t, err, "more than 10 MB")
	_, err = template.EvalParts(env)
	require.ErrorContains(t, err, "line 1, column 25: the evaluation needs more than 10 MB")

	tree, faults := expression.CompileTree([]any{"{{ input }}", "{{ input }}", "{{ input }}"}, expression.Scope{})
	require.Empty(t, faults)
	_, err = tree.Eval(env)
	require.ErrorContains(t, err, "more than 10 MB")
}

func TestConcurrentEval(t *testing.T) {
	t.Parallel()
	env := environment(t)
	x, err := expression.Compile(
		`let n = input.amount * 2; [n, sum(input.items, .price * .qty), join(map(1..3, # + index)), regexReplace("ab", "(a)", "$1$1"), "x" matches "x" + ""]`, all)
	require.NoError(t, err)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 200 {
				v, err := x.Eval(env)
				if err != nil || encode(t, v) != `[2.2,5.5,"456","aab",true]` {
					t.Errorf("got %v, %v", v, err)
					return
				}
			}
		})
	}
	group.Wait()
}
