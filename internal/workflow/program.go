package workflow

import (
	"context"
	"strconv"
	"time"

	"tranche/internal/expression"
)

// TaskType is one kind of task: it turns a task's config into a program.
type TaskType interface {
	// Compile reads the config through c, which collects every fault with its
	// path. It must read each member it knows, also after a fault, because a
	// member that nobody read is reported as unknown. The program of a task
	// with faults is never run, so it may be incomplete; it is nil only then.
	Compile(c *ConfigReader) Program
}

// Program is a compiled task. It is safe for concurrent use.
type Program interface {
	// Effect reports whether Run reaches outside the process. A program
	// without effect is run inline, gives the same result again for the same
	// call, and is therefore never retried.
	Effect() bool
	// Run does the task once. It must return soon after ctx ends, which is
	// when the task's or the workflow's time is over or the execution is
	// cancelled. An error is a *TaskError or an *expression.Error; any other
	// is taken as an internal one whose text is logged and not shown.
	Run(ctx context.Context, call *Call) (Result, error)
}

// Call is what one run of a program sees.
type Call struct {
	// Env is what the task's expressions see, and names the execution and the path of
	// the task's run within it: score, each[3].score. Env.Now is the time the task
	// began, the same in every attempt and after a crash.
	Env *expression.Env
	// KeyAttempt is that of the execution which IdempotencyKey names; 0: none.
	KeyAttempt int
	Attempt    int // automatic retries count from 1
	// At is when this run begins.
	At time.Time
	// AcquireMemory is to be called before something large from outside, of so many bytes,
	// is decoded: it waits until there is room for it, but not for long, and costs
	// the run nothing but time. Nil does not wait.
	AcquireMemory func(ctx context.Context, bytes int)
}

// IdempotencyKey names the call to the outside; it stays the same over automatic
// retries and crashes (decisions 4.4).
func (c *Call) IdempotencyKey() string {
	key := c.Env.ExecutionID + "/" + c.Env.Path
	if c.KeyAttempt > 0 {
		key += "/" + strconv.Itoa(c.KeyAttempt)
	}
	return key
}

// Result is what a run gave.
type Result struct {
	Output any // an exactjson value; an object or null where End is set
	// Targets are the tasks whose edges are taken. Nil takes every edge (but
	// the one of onError's goto), an empty list none.
	Targets []string
	// End ends the graph.
	End *End
	// WaitUntil, where set, says that the task is not finished: its program is
	// run again at that time, and no worker is held meanwhile.
	WaitUntil time.Time
}

// End is what an end task adds to the result of its execution beside the
// output (decisions 4.4).
type End struct {
	Failed       bool         `json:"failed,omitempty"`
	StatusCode   int          `json:"statusCode,omitempty"` // 0: 200, or 422 where Failed
	CustomOutput any          `json:"customOutput,omitempty"`
	Notes        []string     `json:"notes,omitempty"`
	Notices      []Notice     `json:"notices,omitempty"` // TaskID and CreatedAt are filled in by the engine
	Tags         []string     `json:"tags,omitempty"`
	ErrorMessage string       `json:"errorMessage,omitempty"` // empty: none
	Attachments  []Attachment `json:"attachments,omitempty"`
}

// Attachment names a stored file that is part of a result.
type Attachment struct {
	FileName string         `json:"fileName"`
	Metadata map[string]any `json:"metadata"`
}

// Level ranks a notice.
type Level string

// The levels of decisions 5.8.
const (
	LevelInfo    Level = "info"
	LevelWarning Level = "warning"
	LevelError   Level = "error"
)

// Notice is a remark on an execution that its result carries (decisions 5.8).
type Notice struct {
	Code      string    `json:"code"`
	Level     Level     `json:"level"`
	Message   string    `json:"message"`
	TaskID    string    `json:"taskId,omitempty"`
	Source    string    `json:"source,omitempty"`
	CreatedAt time.Time `json:"createdAt"`
}

// The codes of a TaskError that the engine knows. Any other code is one of the
// workflow's own doing, like CodeExpression.
const (
	CodeExpression      = "EXPRESSION_ERROR"       // an expression could not be evaluated
	CodeExternalService = "EXTERNAL_SERVICE_ERROR" // the outside failed: 502
	CodeTaskTimeout     = "TASK_TIMEOUT"           // timeoutMs was over: 502
	CodeTooLarge        = "RESULTS_TOO_LARGE"      // the execution holds too much
	CodeInternal        = "INTERNAL_ERROR"         // a fault of this service: 500
)

// TaskError is a failed run. Code, Message and StatusCode are what expressions
// and callers see as error; none of them may hold a secret.
type TaskError struct {
	Code       string `json:"code"`
	Message    string `json:"message"`
	StatusCode int    `json:"statusCode,omitempty"` // the answer's, 0 if there was none
	// Retryable asks for another attempt where the task's config has no
	// retryOn; RetryAfter is the least time until it, as the answer asked.
	Retryable  bool          `json:"-"`
	RetryAfter time.Duration `json:"-"`
}

func (e *TaskError) Error() string { return e.Code + ": " + e.Message }

// Value is the error as expressions see it.
func (e *TaskError) Value() map[string]any {
	value := map[string]any{"code": e.Code, "message": e.Message, "statusCode": nil}
	if e.StatusCode != 0 {
		value["statusCode"] = number(e.StatusCode)
	}
	return value
}
