package workflow

import (
	"fmt"
	"slices"
	"strings"
)

// graphBuilder compiles one graph: the workflow's own or one nested in a task.
type graphBuilder struct {
	*compiler
	prefix string // of paths: "" or "tasks[2].config."
	graph  *Graph
	outer  *enclosure
	edges  map[[2]int]int // position of an edge in the definition, by its ends
}

// graph compiles a graph. What it returns has holes if there are faults.
func (c *compiler) graph(prefix string, tasks []TaskDefinition, edges []EdgeDefinition, outer *enclosure) *Graph {
	b := &graphBuilder{
		compiler: c, prefix: prefix, outer: outer,
		graph: &Graph{Tasks: make([]*Task, len(tasks)), indexes: make(map[string]int, len(tasks))},
		edges: make(map[[2]int]int, len(edges)),
	}
	if len(tasks) == 0 {
		c.fault(prefix+"tasks", "", "must have at least one task")
	}
	for i, def := range tasks {
		b.addTask(i, def)
	}
	for i, edge := range edges {
		b.addEdge(i, edge)
	}
	if len(tasks) == 1 && len(edges) == 0 {
		b.graph.Tasks[0].Entry = true
	}
	b.checkCycles()
	b.checkReachable(tasks)
	for i, task := range b.graph.Tasks {
		c.task(b, task, tasks[i])
	}
	return b.graph
}

func (b *graphBuilder) taskPath(i int) string { return fmt.Sprintf("%stasks[%d]", b.prefix, i) }
func (b *graphBuilder) edgePath(i int) string { return fmt.Sprintf("%sedges[%d]", b.prefix, i) }

func (b *graphBuilder) addTask(i int, def TaskDefinition) {
	b.graph.Tasks[i] = &Task{ID: def.ID, Type: def.Type, Name: def.Name, Index: i}
	path := b.taskPath(i)
	other, taken := b.ids[def.ID]
	switch {
	case def.ID == "":
	case def.ID == Start:
		b.fault(path+".id", "", "must not be %s, the reserved name for the start of a graph", Start)
	case taken:
		b.fault(path+".id", "", "is already the id of %s", other)
	default:
		b.ids[def.ID] = path
		b.graph.indexes[def.ID] = i
	}
}

func (b *graphBuilder) addEdge(i int, edge EdgeDefinition) {
	path := b.edgePath(i)
	source, sourceKnown := b.graph.Index(edge.Source)
	target, targetKnown := b.graph.Index(edge.Target)
	if edge.Source == Start {
		source, sourceKnown = -1, true
	}
	if !sourceKnown {
		b.fault(path+".source", "", "must be the id of a task in this graph")
	}
	switch {
	case edge.Target == Start:
		b.fault(path+".target", "", "must not be %s, the reserved name for the start of a graph", Start)
	case !targetKnown:
		b.fault(path+".target", "", "must be the id of a task in this graph")
	}
	if !sourceKnown || !targetKnown {
		return
	}
	if first, twice := b.edges[[2]int{source, target}]; twice {
		b.fault(path, "", "repeats the edge %s; remove one of them", b.edgePath(first))
		return
	}
	b.edges[[2]int{source, target}] = i
	if source < 0 {
		b.graph.Tasks[target].Entry = true
		return
	}
	b.graph.Tasks[source].Targets = append(b.graph.Tasks[source].Targets, target)
	b.graph.Tasks[target].Sources = append(b.graph.Tasks[target].Sources, source)
}

// checkCycles walks the edges depth first; an edge back to a task that is
// being walked closes a cycle.
func (b *graphBuilder) checkCycles() {
	done := make([]bool, len(b.graph.Tasks))
	var trail []int
	var walk func(i int)
	walk = func(i int) {
		trail = append(trail, i)
		for _, target := range b.graph.Tasks[i].Targets {
			if at := slices.Index(trail, target); at >= 0 {
				b.reportCycle(trail[at:], i, target)
			} else if !done[target] {
				walk(target)
			}
		}
		trail = trail[:len(trail)-1]
		done[i] = true
	}
	for i := range b.graph.Tasks {
		if !done[i] {
			walk(i)
		}
	}
}

func (b *graphBuilder) reportCycle(tasks []int, source, target int) {
	var names strings.Builder
	for _, i := range tasks {
		names.WriteString(b.graph.Tasks[i].ID + " → ")
	}
	message := fmt.Sprintf("the tasks %s%s form a cycle", names.String(), b.graph.Tasks[target].ID)
	if b.cycle == "" {
		b.cycle = message
	}
	b.fault(b.edgePath(b.edges[[2]int{source, target}]), "", "%s", message)
}

func (b *graphBuilder) checkReachable(tasks []TaskDefinition) {
	reached := make([]bool, len(b.graph.Tasks))
	var queue []int
	for i, task := range b.graph.Tasks {
		if task.Entry {
			reached[i] = true
			queue = append(queue, i)
		}
	}
	for len(queue) > 0 {
		i := queue[0]
		queue = queue[1:]
		for _, target := range b.graph.Tasks[i].Targets {
			if !reached[target] {
				reached[target] = true
				queue = append(queue, target)
			}
		}
	}
	for i := range reached {
		// A task with a faulty id has no edges for that reason alone.
		if index, ok := b.graph.Index(tasks[i].ID); ok && index == i && !reached[i] {
			b.fault(b.taskPath(i), "", "cannot be reached from %s; add an edge that leads to it", Start)
		}
	}
}

// ancestors tells which tasks are decided before task i begins.
func (b *graphBuilder) ancestors(i int) []bool {
	found := make([]bool, len(b.graph.Tasks))
	queue := slices.Clone(b.graph.Tasks[i].Sources)
	for len(queue) > 0 {
		source := queue[0]
		queue = queue[1:]
		if !found[source] {
			found[source] = true
			queue = append(queue, b.graph.Tasks[source].Sources...)
		}
	}
	return found
}
