package workflow

import "slices"

// Repeatable reports whether an execution without any record makes the same
// first calls if it begins again at another time with the same id, input and
// custom input. If a plan is not repeatable, the start must be recorded before
// the first call. A plan is not repeatable if
//
//   - an expression reads the time, in the plan or in a sub-workflow;
//   - it runs the latest version of a workflow, which may change;
//   - it runs a workflow that does not exist yet, and may exist later;
//   - it has a wait, whose time counts from the start of the task.
//
// All other parts of a first call follow from the definition and the execution:
// uuid() and chance from its id and the task's path, createdAt from the id. A
// secret is read when it is sent, with or without a record.
func (p *Plan) Repeatable() bool {
	fixed := func(q *Plan) bool {
		return !q.readsNow && !slices.ContainsFunc(q.References, func(r Reference) bool {
			return r.Ref.Version == Latest || p.Subs[r.Ref] == nil
		})
	}
	if !fixed(p) || p.Waits() {
		return false
	}
	for _, sub := range p.Subs {
		if !fixed(sub) {
			return false
		}
	}
	return true
}
