package workflow

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"tranche/internal/exactjson"
	"tranche/internal/expression"
	"tranche/internal/fault"
)

// ConfigReader reads one object of a task's config. Each method reads one member. If the
// member is absent, null or faulty, the method returns the zero value. It records a fault
// with its path. When the type's Compile has returned, members that it did not read are
// faults. The reader records the tasks that expressions refer to, so that the compiler can
// check that they are ancestors.
type ConfigReader struct {
	task    *taskConfig
	path    string
	members map[string]any
	read    map[string]bool
	scope   expression.Scope
	// sketch is set while the reader describes the config of a type: every member is
	// absent then, and each read is recorded.
	sketch *ConfigSchema
}

// Drafting reports whether the compiler checks only the types of members, as it does when
// a draft is written. It then neither compiles expressions nor checks the config as a
// whole.
func (c *ConfigReader) Drafting() bool { return c.task.compiler.isDraft }

// Has reports whether the member is there and not null.
func (c *ConfigReader) Has(name string) bool { return c.members[name] != nil }

// Members returns the names of all members, sorted. It is for objects with names that the
// author chooses, such as headers and query.
func (c *ConfigReader) Members() []string {
	if c.sketch != nil {
		c.sketch.Open = true
	}
	return slices.Sorted(maps.Keys(c.members))
}

// Require records a fault for each of the members that is absent.
func (c *ConfigReader) Require(names ...string) {
	if c.sketch != nil {
		c.sketch.require(names)
	}
	for _, name := range names {
		if !c.Has(name) {
			c.task.compiler.fault(JoinPath(c.path, name), fault.MissingRequiredField, "is required")
		}
	}
}

// Value reads any JSON; nil if absent.
func (c *ConfigReader) Value(name string) any {
	c.note(name, ConfigSchema{})
	c.read[name] = true
	return c.members[name]
}

// Text reads a literal text.
func (c *ConfigReader) Text(name string) string {
	c.note(name, ConfigSchema{Type: "string"})
	return read[string](c, name, "a text")
}

// Choice reads a literal text that is one of options; the first is the default.
func (c *ConfigReader) Choice(name string, options ...string) string {
	c.note(name, ConfigSchema{Type: "string", Enum: options})
	text := c.Text(name)
	if text != "" && slices.Contains(options, text) {
		return text
	}
	if _, isText := c.members[name].(string); isText {
		c.Fault(name, "must be one of %s", strings.Join(options, ", "))
	}
	return options[0]
}

// Bool reads true or false.
func (c *ConfigReader) Bool(name string, absent bool) bool {
	c.note(name, ConfigSchema{Type: "boolean"})
	if !c.Has(name) {
		c.read[name] = true
		return absent
	}
	return read[bool](c, name, "true or false")
}

// Int reads an integer within [least, most].
func (c *ConfigReader) Int(name string, absent, least, most int) int {
	c.note(name, ConfigSchema{Type: "integer", Minimum: new(float64(least)), Maximum: new(float64(most))})
	if !c.Has(name) {
		c.read[name] = true
		return absent
	}
	number := read[json.Number](c, name, "an integer")
	if number == "" {
		return absent
	}
	n, isInteger := exactjson.Integer(number)
	if !isInteger || n < int64(least) || n > int64(most) {
		c.Fault(name, "must be an integer between %d and %d", least, most)
		return absent
	}
	return int(n)
}

// Milliseconds reads a time between least milliseconds and most.
func (c *ConfigReader) Milliseconds(name string, absent time.Duration, least int, most time.Duration) time.Duration {
	return time.Duration(c.Int(name, int(absent.Milliseconds()), least, int(most.Milliseconds()))) * time.Millisecond
}

// Float reads a number within [least, most] that is not money: a factor, a share.
func (c *ConfigReader) Float(name string, absent, least, most float64) float64 {
	c.note(name, ConfigSchema{Type: "number", Minimum: &least, Maximum: &most})
	if !c.Has(name) {
		c.read[name] = true
		return absent
	}
	text := read[json.Number](c, name, "a number")
	if text == "" {
		return absent
	}
	n, err := strconv.ParseFloat(string(text), 64)
	if err != nil || n < least || n > most {
		c.Fault(name, "must be a number between %g and %g", least, most)
		return absent
	}
	return n
}

// Object reads a nested object; nil if absent or faulty.
func (c *ConfigReader) Object(name string) *ConfigReader {
	if c.sketch != nil {
		return c.task.sketch(c.path, c.note(name, ConfigSchema{Type: "object"}), c.scope)
	}
	members := read[map[string]any](c, name, "an object")
	if members == nil {
		return nil
	}
	return c.task.reader(JoinPath(c.path, name), members, c.scope)
}

// Objects reads an array of objects; faulty items are left out.
func (c *ConfigReader) Objects(name string) []*ConfigReader {
	if c.sketch != nil {
		item := &ConfigSchema{Type: "object"}
		c.note(name, ConfigSchema{Type: "array", Items: item})
		return []*ConfigReader{c.task.sketch(c.path, item, c.scope)}
	}
	items := c.List(name)
	readers := make([]*ConfigReader, 0, len(items))
	for i, item := range items {
		path := fmt.Sprintf("%s[%d]", JoinPath(c.path, name), i)
		members, ok := item.(map[string]any)
		if !ok {
			c.task.compiler.fault(path, fault.InvalidFieldType, "must be an object")
			continue
		}
		readers = append(readers, c.task.reader(path, members, c.scope))
	}
	return readers
}

// List reads an array of any JSON; nil if absent.
func (c *ConfigReader) List(name string) []any {
	c.note(name, ConfigSchema{Type: "array"})
	return read[[]any](c, name, "an array")
}

// With returns the same object read with more roots in its expressions.
func (c *ConfigReader) With(extra expression.Scope) *ConfigReader {
	wider := *c
	wider.scope = expression.Scope{
		Item:   c.scope.Item || extra.Item,
		Last:   c.scope.Last || extra.Last,
		Column: c.scope.Column || extra.Column,
		Fields: c.scope.Fields || extra.Fields,
	}
	return &wider
}

// Expression reads a bare expression; nil if absent or faulty.
func (c *ConfigReader) Expression(name string) *expression.Expression {
	c.note(name, ConfigSchema{Type: "string", Language: LanguageExpression})
	source := read[string](c, name, "a text that is an expression")
	if _, present := c.members[name].(string); !present {
		return nil
	}
	return c.ExpressionAt(name, source)
}

// Condition reads an expression that returns true or false; nil if absent or faulty.
func (c *ConfigReader) Condition(name string) *expression.Expression {
	return c.condition(name, c.Expression(name))
}

// ConditionAt compiles a condition found at path within this object; nil where
// faulty.
func (c *ConfigReader) ConditionAt(path, source string) *expression.Expression {
	return c.condition(path, c.ExpressionAt(path, source))
}

func (c *ConfigReader) condition(path string, compiled *expression.Expression) *expression.Expression {
	if compiled == nil {
		return nil
	}
	if err := compiled.CheckCondition(); err != nil {
		c.Fault(path, "%s", err)
		return nil
	}
	return compiled
}

// Template reads a text with {{ … }}; nil if absent or faulty.
func (c *ConfigReader) Template(name string) *expression.Template {
	c.note(name, ConfigSchema{Type: "string", Language: LanguageTemplate})
	source := read[string](c, name, "a text")
	if _, present := c.members[name].(string); !present || c.Drafting() {
		return nil
	}
	template, err := expression.CompileTemplate(source, c.scope)
	if err != nil {
		c.Fault(name, "%s", err)
		return nil
	}
	c.task.refer(JoinPath(c.path, name), template)
	return template
}

// Tree reads any JSON value with templates as its texts; nil if absent or faulty.
func (c *ConfigReader) Tree(name string) *expression.Tree {
	c.note(name, ConfigSchema{Language: LanguageTemplate})
	value := c.Value(name)
	if value == nil {
		return nil
	}
	return c.TreeAt(name, value)
}

// ExpressionAt compiles source, found at path within this object
// (rules[0].when[1]); nil if it is faulty.
func (c *ConfigReader) ExpressionAt(path, source string) *expression.Expression {
	if c.Drafting() {
		return nil
	}
	compiled, err := expression.Compile(source, c.scope)
	if err != nil {
		c.Fault(path, "%s", err)
		return nil
	}
	c.task.refer(JoinPath(c.path, path), compiled)
	return compiled
}

// TreeAt compiles value, found at path within this object; nil if faulty.
func (c *ConfigReader) TreeAt(path string, value any) *expression.Tree {
	if c.Drafting() {
		return nil
	}
	tree, faults := expression.CompileTree(value, c.scope)
	for _, f := range faults {
		c.Fault(JoinPath(path, f.Path), "%s", f.Err)
	}
	if len(faults) > 0 {
		return nil
	}
	c.task.refer(JoinPath(c.path, path), tree)
	return tree
}

// Goto reads the id of a task to which an edge must lead; the edge is one of
// those not taken when the task is skipped.
func (c *ConfigReader) Goto(name string) string {
	return c.named(name, true)
}

// Otherwise reads the id of a task to which an edge must lead and which is
// taken when the task is skipped. Null is none.
func (c *ConfigReader) Otherwise(name string) string {
	return c.named(name, false)
}

func (c *ConfigReader) named(name string, conditional bool) string {
	id := c.Text(name)
	if _, present := c.members[name].(string); present {
		c.task.named = append(c.task.named, namedEdge{path: JoinPath(c.path, name), target: id, conditional: conditional})
	}
	return id
}

// Graph reads a nested graph from the members tasks and edges. Its expressions
// see this task's ancestors, and the roots of extra.
func (c *ConfigReader) Graph(extra expression.Scope) *Graph {
	if c.sketch != nil {
		c.note("tasks", ConfigSchema{Type: "array", Items: &ConfigSchema{Type: "object", Open: true}})
		c.note("edges", ConfigSchema{Type: "array", Items: &ConfigSchema{Type: "object", Open: true}})
		return nil
	}
	c.Require("tasks")
	s := structure{}
	tasks := s.tasks(JoinPath(c.path, "tasks"), c.Value("tasks"))
	edges := s.edges(JoinPath(c.path, "edges"), c.Value("edges"))
	for _, detail := range s.details {
		c.task.compiler.report(detail)
	}
	outer := &enclosure{graph: c.task.graph, task: c.task.task.Index, roots: c.With(extra).scope}
	graph := c.task.compiler.graph(c.path+".", tasks, edges, outer)
	c.task.task.Children = append(c.task.task.Children, graph)
	return graph
}

// Nest says that nested graphs do the task's work, as n tells.
func (c *ConfigReader) Nest(n *Nest) { c.task.task.Nest = n }

// Wait says that the task waits for a signal, as w tells.
func (c *ConfigReader) Wait(w *Wait) {
	c.task.task.Wait = w
	c.Waits()
}

// Workflow reads a reference to a published workflow from the members alias
// and version.
func (c *ConfigReader) Workflow() Ref {
	c.Require("alias", "version")
	ref := Ref{Alias: c.Text("alias"), Version: c.Text("version")}
	if ref.Version != "" && ref.Version != Latest && !versionPattern.MatchString(ref.Version) {
		c.Fault("version", "must be a version such as v1, or %s", Latest)
		return ref
	}
	if ref.Alias == "" || ref.Version == "" {
		return ref
	}
	c.task.compiler.references = append(c.task.compiler.references, Reference{Path: c.path, Ref: ref})
	return ref
}

// Schema reads a JSON Schema; nil if absent or faulty.
func (c *ConfigReader) Schema(name string) *PayloadSchema {
	c.note(name, ConfigSchema{Type: "object", Open: true})
	document := read[map[string]any](c, name, "an object")
	if document == nil {
		return nil
	}
	compiled := c.task.compiler.schema(JoinPath(c.path, name), document)
	if compiled == nil {
		return nil
	}
	return &PayloadSchema{compiled}
}

// OnlyNamedEdges makes each edge of the task a fault that neither Goto,
// Otherwise nor onError names.
func (c *ConfigReader) OnlyNamedEdges() { c.task.onlyNamed = true }

// DataSource says that the task reads a data source of that name.
func (c *ConfigReader) DataSource(name string) { c.task.task.Source = name }

// TimeoutMax bounds the task's timeoutMs.
func (c *ConfigReader) TimeoutMax(most time.Duration) { c.task.timeout = most }

// RetryByDefault sets the policy that the config's retry then changes.
func (c *ConfigReader) RetryByDefault(policy RetryPolicy) { c.task.task.Retry = policy }

// Waits says that the task may wait, which makes the workflow asynchronous.
func (c *ConfigReader) Waits() { c.task.compiler.waits = true }

// Fault records a fault at path within this object; empty for the object itself.
func (c *ConfigReader) Fault(path, format string, args ...any) {
	c.task.compiler.fault(JoinPath(c.path, path), "", format, args...)
}

// Warn records a warning at path within this object.
func (c *ConfigReader) Warn(path, format string, args ...any) {
	if all := &c.task.compiler.warnings; len(*all) < warningsMax {
		*all = append(*all, c.detail(path, format, args...))
	}
}

// Refuse records a fault at path within this object that forbids publishing the workflow
// but does not stop a published workflow from running.
func (c *ConfigReader) Refuse(path, format string, args ...any) {
	c.task.compiler.refusals = append(c.task.compiler.refusals, c.detail(path, format, args...))
}

func (c *ConfigReader) detail(path, format string, args ...any) fault.Detail {
	return fault.Detail{Field: JoinPath(c.path, path), Message: fmt.Sprintf(format, args...)}
}

// read returns a member of one JSON type, or the zero value if the member is absent or of
// another type.
func read[T any](c *ConfigReader, name, what string) T {
	v := c.Value(name)
	typed, ok := v.(T)
	if !ok && v != nil {
		c.task.compiler.fault(JoinPath(c.path, name), fault.InvalidFieldType, "must be %s", what)
	}
	return typed
}

// JoinPath writes a path within a path: a.b, a[0].
func JoinPath(path, inner string) string {
	if path == "" || inner == "" || inner[0] == '[' {
		return path + inner
	}
	return path + "." + inner
}
