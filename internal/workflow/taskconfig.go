package workflow

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"tranche/internal/exactjson"
	"tranche/internal/expression"
	"tranche/internal/fault"
)

// Limits and defaults of the members that every task's config may have.
const (
	taskTimeoutMax      = TimeoutAsyncMax
	retryAttemptsMax    = 20
	retryDelayMax       = 24 * time.Hour
	retryFactorMax      = 10
	retryOnMax          = 50
	retryAttemptsAsked  = 3 // of a retry that does not say how many
	retryInitialDefault = time.Second
	retryDelayDefault   = time.Minute
	retryFactorDefault  = 2
	retryJitterDefault  = 0.2
)

// DefaultRetry returns the usual delays with a number of attempts: 1 s, twice
// as long each time, at most a minute, a fifth of it left to chance.
func DefaultRetry(maxAttempts int) RetryPolicy {
	return RetryPolicy{
		MaxAttempts:  maxAttempts,
		InitialDelay: retryInitialDefault,
		Factor:       retryFactorDefault,
		MaxDelay:     retryDelayDefault,
		Jitter:       retryJitterDefault,
	}
}

// taskConfig is the state that all readers of one task's config share.
type taskConfig struct {
	compiler  *compiler
	graph     *graphBuilder
	task      *Task
	root      *ConfigReader
	readers   []*ConfigReader
	refs      []reference
	named     []namedEdge
	onlyNamed bool
	timeout   time.Duration // the longest that timeoutMs may be
}

// reference is a task that an expression reads.
type reference struct{ path, id string }

// namedEdge is an edge that the config names by its target.
type namedEdge struct {
	path, target string
	conditional  bool // not taken when the task is skipped
}

func newTaskConfig(c *compiler, b *graphBuilder, task *Task, path string, members map[string]any) *taskConfig {
	t := &taskConfig{compiler: c, graph: b, task: task, timeout: taskTimeoutMax}
	scope := expression.Scope{}
	if b.outer != nil {
		scope = b.outer.roots
	}
	task.Retry = DefaultRetry(1)
	task.OnError = OnError{Mode: ErrorFail}
	t.root = t.reader(path, members, scope)
	return t
}

func (t *taskConfig) reader(path string, members map[string]any, scope expression.Scope) *ConfigReader {
	r := &ConfigReader{task: t, path: path, members: members, read: map[string]bool{}, scope: scope}
	t.readers = append(t.readers, r)
	return r
}

// reads is an expression, a template or a tree, any of which may read other tasks.
type reads interface {
	TaskRefs() []string
	WaitRefs() []string
	ReadsNow() bool
}

// refer records the tasks that are read at a path of the config.
func (t *taskConfig) refer(path string, from reads) {
	for _, id := range from.TaskRefs() {
		t.refs = append(t.refs, reference{path, id})
	}
	for _, id := range from.WaitRefs() {
		t.compiler.addresses = append(t.compiler.addresses, address{t.graph, reference{path, id}})
	}
	t.compiler.readsNow = t.compiler.readsNow || from.ReadsNow()
}

// common reads the members that every config may have (contract 4.3).
func (t *taskConfig) common() {
	t.task.When = t.root.Condition("when")
	t.task.Timeout = t.root.Milliseconds("timeoutMs", 0, 1, t.timeout)
	if retry := t.root.Object("retry"); retry != nil {
		t.retry(retry)
	}
	switch t.root.Value("onError").(type) {
	case nil:
	case string:
		t.task.OnError.Mode = ErrorMode(t.root.Choice("onError", string(ErrorFail), string(ErrorContinue)))
	case map[string]any:
		t.task.OnError.Mode = ErrorGoto
		onError := t.root.Object("onError")
		onError.Require("goto")
		onError.Goto("goto")
	default:
		t.compiler.fault(JoinPath(t.root.path, "onError"), fault.InvalidFieldType, "must be fail, continue or an object with goto")
	}
}

func (t *taskConfig) retry(c *ConfigReader) {
	p := &t.task.Retry
	if p.MaxAttempts <= 1 {
		*p = DefaultRetry(retryAttemptsAsked)
	}
	p.MaxAttempts = c.Int("maxAttempts", p.MaxAttempts, 1, retryAttemptsMax)
	p.InitialDelay = c.Milliseconds("initialDelayMs", p.InitialDelay, 0, retryDelayMax)
	p.Factor = c.Float("factor", p.Factor, 1, retryFactorMax)
	p.MaxDelay = c.Milliseconds("maxDelayMs", max(p.MaxDelay, p.InitialDelay), 0, retryDelayMax)
	p.Jitter = c.Float("jitter", p.Jitter, 0, 1)
	codes := c.List("retryOn")
	if len(codes) > retryOnMax {
		c.Fault("retryOn", "must have at most %d items", retryOnMax)
		return
	}
	for i, code := range codes {
		text, isText := code.(string)
		if number, _ := code.(json.Number); !isText {
			status, isInteger := exactjson.Integer(number)
			if !isInteger || status < 100 || status > 599 {
				c.Fault(fmt.Sprintf("retryOn[%d]", i), "must be an error code or a status from 100 to 599")
			}
			text = strconv.FormatInt(status, 10)
		}
		p.RetryOn = append(p.RetryOn, text)
	}
}

// unread reports members that were not read as faults.
func (t *taskConfig) unread() {
	for _, r := range t.readers {
		for _, name := range r.Members() {
			if !r.read[name] {
				r.Fault(name, "is not a known property; remove it or correct its name")
			}
		}
	}
}

// checkRefs checks that expressions read only tasks that are decided before:
// ancestors, and ancestors of the tasks around (contract 4.5).
func (t *taskConfig) checkRefs() {
	var ancestors []bool
	for _, ref := range t.refs {
		if ancestors == nil {
			ancestors = t.graph.ancestors(t.task.Index)
		}
		graph, before := t.graph, ancestors
		index, found := graph.graph.Index(ref.id)
		for !found && graph.outer != nil {
			outer := graph.outer
			graph, before = outer.graph, outer.graph.ancestors(outer.task)
			index, found = graph.graph.Index(ref.id)
		}
		switch {
		case !found:
			t.compiler.fault(ref.path, "", "refers to a task that does not exist")
		case !before[index]:
			t.compiler.fault(ref.path, "", "refers to task %s, which is not an ancestor of this task", ref.id)
		default:
			graph.graph.Tasks[index].Read = true
		}
	}
}

// resolveEdges checks the edges that the config names and sets which edges
// success and passing over take.
func (t *taskConfig) resolveEdges() {
	onErrorPath := JoinPath(t.root.path, "onError.goto")
	conditional, otherwise := map[int]bool{}, map[int]bool{}
	onError := -1
	for _, edge := range t.named {
		target, ok := t.graph.graph.Index(edge.target)
		switch {
		case !ok:
			t.compiler.fault(edge.path, "", "must be the id of a task in this graph")
			continue
		case !slices.Contains(t.task.Targets, target):
			t.compiler.fault(edge.path, "", "must be a task that an edge from this task leads to")
			continue
		case edge.path == onErrorPath:
			onError = target
			t.task.OnError.Goto = target
		}
		if edge.conditional {
			conditional[target] = true
		} else {
			otherwise[target] = true
		}
	}
	for _, target := range t.task.Targets {
		if t.onlyNamed && !conditional[target] && !otherwise[target] {
			edge := t.graph.edges[[2]int{t.task.Index, target}]
			t.compiler.fault(t.graph.edgePath(edge), "", "must be the target of a case or of the default of its source task")
		}
		if target != onError {
			t.task.OnSuccess = append(t.task.OnSuccess, target)
		}
		if otherwise[target] || !conditional[target] {
			t.task.OnSkip = append(t.task.OnSkip, target)
		}
	}
}
