package catalog

import (
	"container/list"
	"sync"

	"github.com/google/uuid"

	"tranche/internal/workflow"
)

// Bounds of the plan cache, in bytes of definition text; a plan takes a small
// multiple of its text.
const (
	planBytesMax   = 32 << 20
	planBytesFixed = 4 << 10 // the cost of the smallest workflow
)

// planName is a name of a workflow: tenant, alias and version.
type planName struct {
	tenantID uuid.UUID
	alias    string
	version  int
}

type planEntry struct {
	workflow *Workflow
	plan     *workflow.Plan
	bytes    int
}

func (e *planEntry) name() planName {
	return planName{e.workflow.TenantID, e.workflow.Alias, e.workflow.Version}
}

// planCache keeps the plans that were used last, within a number of bytes.
type planCache struct {
	mu       sync.Mutex
	bytesMax int
	bytes    int
	used     *list.List // of *planEntry, the last used in front
	ids      map[uuid.UUID]*list.Element
	names    map[planName]*list.Element
}

func newPlanCache(bytesMax int) *planCache {
	return &planCache{
		bytesMax: bytesMax,
		used:     list.New(),
		ids:      map[uuid.UUID]*list.Element{},
		names:    map[planName]*list.Element{},
	}
}

func (c *planCache) byID(id uuid.UUID) (*Workflow, *workflow.Plan, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.use(c.ids[id])
}

func (c *planCache) byName(name planName) (*Workflow, *workflow.Plan, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.use(c.names[name])
}

func (c *planCache) use(element *list.Element) (*Workflow, *workflow.Plan, bool) {
	if element == nil {
		return nil, nil, false
	}
	c.used.MoveToFront(element)
	entry := entryOf(element)
	return entry.workflow, entry.plan, true
}

func (c *planCache) put(w *Workflow, plan *workflow.Plan) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(c.ids[w.ID])
	entry := &planEntry{w, plan, planBytesFixed + len(w.InputSchema) + len(w.Tasks) + len(w.Edges)}
	element := c.used.PushFront(entry)
	c.ids[w.ID], c.names[entry.name()] = element, element
	c.bytes += entry.bytes
	for c.bytes > c.bytesMax && c.used.Len() > 1 {
		c.drop(c.used.Back())
	}
}

func (c *planCache) remove(id uuid.UUID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(c.ids[id])
}

func (c *planCache) drop(element *list.Element) {
	if element == nil {
		return
	}
	entry := entryOf(element)
	c.used.Remove(element)
	delete(c.ids, entry.workflow.ID)
	delete(c.names, entry.name())
	c.bytes -= entry.bytes
}

func entryOf(element *list.Element) *planEntry {
	entry, _ := element.Value.(*planEntry)
	return entry
}
