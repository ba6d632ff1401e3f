package workflow

import (
	"tranche/internal/expression"
)

// ConfigReader reads one object of a task's config. Each method reads one
// member, gives its zero value where that is absent or faulty, and records the
// fault with its path. Members that nobody read are faults when the type's
// Compile returns. What expressions refer to is recorded, so that the compiler
// can check that only ancestors are read.
type ConfigReader struct{}

// Has reports whether the member is there and not null.
func (c *ConfigReader) Has(name string) bool { return false }

// Value reads any JSON; nil where absent.
func (c *ConfigReader) Value(name string) any { return nil }

// Require records a fault for each of the members that is absent.
func (c *ConfigReader) Require(names ...string) {}

// Text reads a literal text.
func (c *ConfigReader) Text(name string) string { return "" }

// Choice reads a literal text that is one of options; the first is the default.
func (c *ConfigReader) Choice(name string, options ...string) string { return "" }

// Bool reads true or false.
func (c *ConfigReader) Bool(name string, absent bool) bool { return absent }

// Int reads an integer within [least, most].
func (c *ConfigReader) Int(name string, absent, least, most int) int { return absent }

// Object reads a nested object; nil where absent or faulty.
func (c *ConfigReader) Object(name string) *ConfigReader { return nil }

// Objects reads an array of objects.
func (c *ConfigReader) Objects(name string) []*ConfigReader { return nil }

// List reads an array of any JSON; nil where absent.
func (c *ConfigReader) List(name string) []any { return nil }

// Members returns the names of all members, sorted, for objects whose names
// are the author's (headers, query).
func (c *ConfigReader) Members() []string { return nil }

// With returns the same object read with more roots in its expressions.
func (c *ConfigReader) With(extra expression.Scope) *ConfigReader { return c }

// Expression reads a bare expression; nil where absent or faulty.
func (c *ConfigReader) Expression(name string) *expression.Expression { return nil }

// Template reads a text with {{ … }}; nil where absent or faulty.
func (c *ConfigReader) Template(name string) *expression.Template { return nil }

// Tree reads any JSON whose texts are templates; nil where absent or faulty.
func (c *ConfigReader) Tree(name string) *expression.Tree { return nil }

// ExpressionAt compiles source, found at path within this object
// (rules[0].when[1]); nil where it is faulty.
func (c *ConfigReader) ExpressionAt(path, source string) *expression.Expression { return nil }

// TreeAt compiles value, found at path within this object; nil where faulty.
func (c *ConfigReader) TreeAt(path string, value any) *expression.Tree { return nil }

// Goto reads the id of a task to which an edge must lead; the edge is one of
// those not taken when the task is passed over.
func (c *ConfigReader) Goto(name string) string { return "" }

// Otherwise reads the id of a task to which an edge must lead and which is
// taken when the task is passed over. Null is none.
func (c *ConfigReader) Otherwise(name string) string { return "" }

// OnlyNamedEdges makes each edge of the task a fault that neither Goto,
// Otherwise nor onError names.
func (c *ConfigReader) OnlyNamedEdges() {}

// DataSource says that the task reads a data source of that name.
func (c *ConfigReader) DataSource(name string) {}

// RetryByDefault sets the policy that the task's retry members change.
func (c *ConfigReader) RetryByDefault(policy RetryPolicy) {}

// Waits says that the task may wait, which makes the workflow asynchronous.
func (c *ConfigReader) Waits() {}

// Fault records a fault at path within this object; empty for the object itself.
func (c *ConfigReader) Fault(path, format string, args ...any) {}

// Warn records a warning at path within this object.
func (c *ConfigReader) Warn(path, format string, args ...any) {}
