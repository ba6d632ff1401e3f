// Package expression is the language of workflow definitions (contract 4.6 and 4.7):
// expr-lang's syntax over JSON values with exact decimals, and templates with expressions
// in text. It uses expr-lang's parser and an evaluator of its own, so that numbers never
// become floats and every evaluation stays within a budget of steps and memory. It must
// know neither workflows nor tasks: values come in through Env.
//
// Values are those of package exactjson. The reference for authors of definitions is
// docs/expressions.md.
package expression
