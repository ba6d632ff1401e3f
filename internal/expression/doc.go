// Package expression is the language of workflow definitions (decisions 4.6
// and 4.7): expr-lang's syntax over JSON values with exact decimals, and
// templates that fill expressions into text. The syntax is read by expr-lang's
// parser; evaluation is the package's own, so that numbers never become floats
// and every evaluation stays within a step and a memory budget. It must know
// neither workflows nor tasks: what an expression can see is passed in as Env.
//
// Values are those of package exactjson. The reference for authors of
// definitions is docs/expressions.md.
package expression
