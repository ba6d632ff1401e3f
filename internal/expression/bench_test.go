package expression_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tranche/internal/expression"
)

func BenchmarkEval(b *testing.B) {
	env := environment(b)
	for name, source := range map[string]string{
		"condition": `input.score >= 650 && input.income*0.3 > input.installment`,
		"member":    `input.amount`,
		"money":     `round(input.amount * 1.16 / 12, 2)`,
		"sum":       `sum(input.items, .price * .qty)`,
		"pmt":       `round(pmt(0.24 / 12, 36, input.income), 2)`,
		"ternary":   `input.score >= 700 ? "A" : input.score >= 650 ? "B" : "C"`,
		"object":    `{"score": input.score, "dti": input.installment / input.income}`,
	} {
		b.Run(name, func(b *testing.B) {
			x, err := expression.Compile(source, expression.Scope{})
			require.NoError(b, err)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := x.Eval(env); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkCompile(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := expression.Compile(`input.score >= 650 && input.income*0.3 > input.installment`, expression.Scope{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkTemplate(b *testing.B) {
	env := environment(b)
	template, err := expression.CompileTemplate("Dear {{ input.name }}, you owe {{ input.amount * 3 }}.", expression.Scope{})
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := template.Eval(env); err != nil {
			b.Fatal(err)
		}
	}
}
