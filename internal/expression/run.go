package expression

import (
	"encoding/json"
	"regexp"
	"sync"
)

// Limits of one evaluation: of one expression, one template or one tree.
const (
	stepsMax  = 100_000    // operations
	memoryMax = 10_000_000 // bytes of text, lists and objects made, counted when made
)

// Costs of operations. A step is one operator, member, call or list element. Work that
// grows with the length of a text costs steps by its bytes, so that a step never takes
// much longer than a microsecond.
const (
	scanBytesPerStep  = 1_000 // searching, comparing, copying
	hashBytesPerStep  = 200   // hashing, encoding, decoding
	regexBytesPerStep = 8     // per 16 instructions of the pattern
	itemBytes         = 24    // one element of a list
	memberBytes       = 64    // one member of an object
)

const (
	errSteps  problem = "the evaluation takes more than 100,000 steps"
	errMemory problem = "the evaluation needs more than 10 MB"
)

// run is the state of one evaluation.
type run struct {
	env    *Env
	steps  int // left
	memory int // left, bytes
	vars   []any
	few    [6]any // backs vars of all but unusual expressions
	args   []any  // of the calls that are being made
	call   call   // the one that is being made
	// numbers are those that were read or computed so far, the first ones of many.
	numbers [16]number
	count   int
	// literals are the patterns compiled with the expression, made those
	// compiled during this evaluation.
	literals map[string]*pattern
	made     map[string]*pattern
}

// pattern is a regular expression with the cost of matching one byte.
type pattern struct {
	*regexp.Regexp
	instructions int
}

// runs holds finished evaluations for reuse, which saves a sixth of an execution's time in
// garbage.
//
//nolint:gochecknoglobals // a pool is shared by its nature
var runs = sync.Pool{New: func() any { return new(run) }}

// newRun begins an evaluation. Call done at its end, when nothing refers to its numbers
// any more.
func newRun(env *Env) *run {
	r, _ := runs.Get().(*run)
	if env == nil {
		env = &Env{}
	}
	r.env, r.steps, r.memory = env, stepsMax, memoryMax
	return r
}

// argsKept is the number of arguments that a reused run keeps space for.
const argsKept = 64

func (r *run) done() {
	clear(r.args) // after an error
	if r.args = r.args[:0]; cap(r.args) > argsKept {
		r.args = nil
	}
	clear(r.few[:])
	clear(r.numbers[:r.count])
	r.env, r.vars, r.literals, r.made, r.call, r.count = nil, nil, nil, nil, call{}, 0
	runs.Put(r)
}

// newNumber returns a new number that lives as long as the run.
func (r *run) newNumber() *number {
	if r.count == len(r.numbers) {
		return new(number)
	}
	r.count++
	return &r.numbers[r.count-1]
}

// number returns the number that v is.
func (r *run) number(v any) (*number, bool) {
	switch v := v.(type) {
	case *number:
		return v, true
	case json.Number:
		n := r.newNumber()
		return n, n.parse(string(v))
	default:
		return nil, false
	}
}

func (r *run) step(n int) error {
	if n > r.steps {
		r.steps = 0
		return errSteps
	}
	r.steps -= n
	return nil
}

// grow accounts for bytes about to be made.
func (r *run) grow(bytes int) error {
	if bytes > r.memory {
		r.memory = 0
		return errMemory
	}
	r.memory -= bytes
	return nil
}

// scan accounts for reading a text of that many bytes.
func (r *run) scan(bytes int) error { return r.step(bytes / scanBytesPerStep) }

// text accounts for a text that is about to be made by reading about as much.
func (r *run) text(bytes int) error {
	if err := r.scan(bytes); err != nil {
		return err
	}
	return r.grow(bytes)
}

// list accounts for n elements of a list that is about to be made.
func (r *run) list(n int) error {
	if err := r.step(n); err != nil {
		return err
	}
	return r.grow(n * itemBytes)
}

// frame sets the variables and the patterns of the expression.
func (r *run) frame(vars int, literals map[string]*pattern) {
	if vars <= len(r.few) {
		r.vars = r.few[:vars]
	} else {
		r.vars = make([]any, vars)
	}
	r.literals = literals
}
