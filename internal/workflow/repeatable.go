package workflow

import "slices"

// Repeatable reports whether an execution that nothing was recorded of makes the
// same first calls when it begins anew, at another time, with the same id, input
// and custom input. A plan is not repeatable, so that what it began with has to
// be recorded before its first call, where
//
//   - an expression asks for the time, its own or one of a workflow that it runs;
//   - it runs the latest version of a workflow, which may be another by then;
//   - it runs a workflow that is not there, and may be by then;
//   - it waits, for a time that is counted from when the task began.
//
// Everything else that a first call is made of follows from the definition and
// the execution: uuid() and chance from its id and the task's path, createdAt
// from the id. A secret is read when it is sent, with or without a record.
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
