package workflow

import (
	"context"
	"strconv"
	"time"

	"tranche/internal/expression"
)

// TaskType is one kind of task: it turns a task's config into a program.
type TaskType interface {
	// Compile reads the config through c, which collects every fault with its path. It
	// must read each member that it knows, also after a fault, because a member that is
	// not read is reported as unknown. The program of a task with faults never runs, so it
	// may be incomplete, and only then nil.
	Compile(c *ConfigReader) Program
}

// Program is a compiled task. It is safe for concurrent use.
type Program interface {
	// Effect reports whether Run reaches outside the process. A program without effects
	// runs inline. It returns the same result for the same call, so it is never retried.
	Effect() bool
	// Run performs the task once. It must return soon after ctx ends. ctx ends when the
	// time of the task or of the workflow is over, and when the execution is cancelled.
	// Run returns a *TaskError or an *expression.Error. Any other error counts as
	// internal: it is logged and hidden from callers.
	Run(ctx context.Context, call *Call) (Result, error)
}

// Call is the input of one run of a program.
type Call struct {
	// Env holds the values that the task's expressions see. It names the execution and the
	// path of the task's run within it: score, each[3].score. Env.Now is the time when the
	// task began; it is the same in every attempt and after a crash.
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
// retries and crashes (contract 4.4).
func (c *Call) IdempotencyKey() string {
	key := c.Env.ExecutionID + "/" + c.Env.Path
	if c.KeyAttempt > 0 {
		key += "/" + strconv.Itoa(c.KeyAttempt)
	}
	return key
}

// Result is the result of one run of a program.
type Result struct {
	Output any // an exactjson value; an object or null if End is set
	// Targets are the ids of the tasks to which edges are taken. Nil takes every edge
	// except that of onError's goto; an empty list takes none.
	Targets []string
	// End ends the graph.
	End *End
	// WaitUntil, if set, says that the task is not finished: its program is
	// run again at that time, and no worker is held meanwhile.
	WaitUntil time.Time
}

// End holds the values that an end task adds to the result of its execution besides the
// output (contract 4.4).
type End struct {
	Failed       bool         `json:"failed,omitempty"`
	StatusCode   int          `json:"statusCode,omitempty"` // 0: 200, or 422 if Failed
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

// The levels of contract 5.8.
const (
	LevelInfo    Level = "info"
	LevelWarning Level = "warning"
	LevelError   Level = "error"
)

// Notice is a remark on an execution that its result carries (contract 5.8).
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

// TaskError is the failure of a run. Expressions and callers see Code, Message and
// StatusCode as error, so none of them may hold a secret.
type TaskError struct {
	Code       string `json:"code"`
	Message    string `json:"message"`
	StatusCode int    `json:"statusCode,omitempty"` // the answer's, 0 if there was none
	// Retryable asks for another attempt if the task's config has no
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
