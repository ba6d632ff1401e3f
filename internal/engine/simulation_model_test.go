package engine

import (
	"encoding/json"
	"fmt"
	"maps"

	"github.com/google/go-cmp/cmp"

	"tranche/internal/workflow"
)

// model works out what comes of a calm trial in another way than the engine:
// task by task along the edges, without time.
type model struct {
	*trial
	runs         map[string]*expected // of the tasks, by path
	results      map[string]any       // of the nested graphs, by the prefix of their paths
	completed    int
	failed       int
	sourceFailed bool
}

// expected is how a task of a calm trial ends.
type expected struct {
	status  Status
	attempt int
	output  any
	last    any // what last is for its expressions
}

// sight is what the tasks of a graph see of those around it.
type sight struct {
	prefix   string // of their paths
	index    int
	item     any
	last     any
	statuses map[string]Status // by id
}

// graph works out a graph and returns its result.
func (m *model) graph(graph *workflow.Graph, at sight) any {
	taken := map[string][]string{}
	byID, leaves := map[string]any{}, 0
	for len(taken) < len(graph.Tasks) {
		for _, task := range graph.Tasks {
			made := m.specs[task.ID]
			begins, ready := made.isEntry, taken[task.ID] == nil
			for _, source := range made.sources {
				ready = ready && taken[source] != nil
				for _, target := range taken[source] {
					begins = begins || target == task.ID
				}
			}
			if !ready {
				continue
			}
			got := m.task(task, made, begins, at)
			m.runs[at.prefix+task.ID] = got
			at.statuses[task.ID] = got.status
			taken[task.ID] = made.taken(got.status, begins, m.chosen(at.prefix+task.ID))
			if len(made.targets) == 0 {
				leaves++
				if got.status != StatusSkipped {
					byID[task.ID] = got.output
				}
			}
		}
	}
	if leaves == 1 {
		for _, result := range byID {
			if object, ok := result.(map[string]any); ok {
				return object
			}
		}
	}
	return byID
}

// taken are the edges that a task takes, never nil.
func (s *spec) taken(status Status, begins bool, chosen []string) []string {
	taken := []string{}
	for _, target := range s.targets {
		var takes bool
		switch {
		case !begins:
		case status == StatusFailed && s.onError == target:
			takes = true
		case status == StatusFailed && s.onError != "continue":
		case status == StatusCompleted && s.kind != "choose":
			takes = target != s.onError
		case status == StatusCompleted:
			for _, one := range chosen {
				takes = takes || one == target
			}
		default: // skipped, or a failure that is overlooked
			takes = target == s.otherwise || s.kind != "choose" && target != s.onError
		}
		if takes {
			taken = append(taken, target)
		}
	}
	return taken
}

// passes reports whether a task that begins is skipped.
func (s *spec) passes(statuses map[string]Status) bool {
	return s.when == "false" || s.when != "" && statuses[s.when] != StatusCompleted
}

func (m *model) task(task *workflow.Task, made *spec, begins bool, at sight) *expected {
	path := at.prefix + task.ID
	if !begins || made.passes(at.statuses) {
		return &expected{status: StatusSkipped}
	}
	got := &expected{status: StatusCompleted, attempt: 1, last: at.last}
	switch made.kind {
	case "pure", "choose", "effect":
		m.program(got, path, made, at)
	case "pause":
		got.output = "paused"
	case "wait":
		if got.output = "signal for " + path; made.limit > 0 {
			got.status, got.output = StatusFailed, nil
		}
	case "each":
		list := make([]any, made.items)
		for i := range list {
			list[i] = m.nested(task, at, i, sight{index: i, item: number(i + 1), last: at.last})
		}
		got.output = list
	case "loop":
		last := min(made.until, made.most-1)
		for i := range last + 1 {
			got.output = m.nested(task, at, i, sight{index: i, item: at.item, last: got.output})
		}
		if last < made.until {
			got.status, got.output = StatusFailed, nil
		}
	case "sub":
		at.statuses = map[string]Status{}
		got.output = m.nested(task, at, 0, sight{})
	}
	if got.status == StatusCompleted {
		m.completed++
	} else {
		m.failed++
		m.sourceFailed = m.sourceFailed || made.isSource && made.onError == "continue"
	}
	return got
}

// program is what comes of a task that the trial answers.
func (m *model) program(got *expected, path string, made *spec, at sight) {
	attempts, fails := 1, m.fails(path)
	if made.kind == "effect" {
		attempts = tries
	}
	if fails >= attempts {
		got.status, got.attempt = StatusFailed, attempts
		return
	}
	var read any
	if made.reads != "" {
		read = string(at.statuses[made.reads])
	}
	got.attempt, got.output = fails+1, output(path, at.index, at.item, read)
}

func (m *model) nested(task *workflow.Task, at sight, index int, inside sight) any {
	inside.prefix = at.prefix + runName(task, index)
	inside.statuses = maps.Clone(at.statuses)
	result := m.graph(m.plan.NestedGraph(task.Nest), inside)
	m.results[inside.prefix] = result
	return result
}

// compare holds a calm trial to its model.
func (r *trial) compare(state *State) {
	m := &model{trial: r, runs: map[string]*expected{}, results: map[string]any{}}
	result := m.graph(r.plan.Graph, sight{statuses: map[string]Status{}})
	if diff := cmp.Diff(plain(result), plain(r.outcome.Output)); diff != "" || r.outcome.Status != StatusCompleted {
		r.fault("the execution is %s and gives\n%s", r.outcome.Status, diff)
	}
	counted := []any{m.completed, m.failed, m.failed, m.sourceFailed}
	if got := []any{r.outcome.TasksCompleted, r.outcome.TasksFailed, len(r.outcome.Notices), r.outcome.SourceFailed}; !cmp.Equal(counted, got) {
		r.fault("the outcome counts %v instead of %v", got, counted)
	}
	kept := 0
	r.each(state, func(v visited) {
		want, t := m.runs[v.path], v.state()
		kept++
		if want == nil || t.Status != want.status || t.Attempt != want.attempt {
			r.fault("task %s is %s after %d attempts, not as expected: %+v", v.path, t.Status, t.Attempt, want)
		}
	})
	if kept == 0 || kept > len(m.runs) {
		r.fault("%d tasks have run, not %d", kept, len(m.runs))
	}
	for path, last := range r.held.lasts {
		if want := m.runs[path]; want == nil || last != plain(want.last) {
			r.fault("task %s saw last as %s", path, last)
		}
	}
	for path := range m.runs {
		if made := r.specOf(path); made.kind == "effect" && m.runs[path].attempt > 0 && r.held.began[path] == 0 {
			r.fault("effect %s never ran", path)
		}
	}
}

// plain is a value as JSON.
func plain(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(err)
	}
	return string(text)
}
