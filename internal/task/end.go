package task

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"tranche/internal/exactjson"
	"tranche/internal/expression"
	"tranche/internal/workflow"
)

// Limits of the values that an end task adds to a result.
const (
	statusCodeLeast = 200
	statusCodeMost  = 599
	remarksMax      = 1_000 // notes, notices, attachments: each
	tagsMax         = 50
	tagLengthMax    = 64 // characters
)

// endType is the type of tasks that end their graph.
type endType struct{}

// end is a compiled end task. Its members are trees, because every text in them may be a
// template. Constant values are checked at publish, computed values at run time.
type end struct{ members []endTree }

type endTree struct {
	endMember
	tree *expression.Tree
}

// endMembers are the members of the config and how the value of each is read.
// The order is that of the checks.
func endMembers() []endMember {
	return []endMember{
		{"status", readEndStatus},
		{"statusCode", readEndStatusCode},
		{"output", func(e *endResult, v any) (err error) { e.output, err = objectOrNull(v); return err }},
		{"customOutput", func(e *endResult, v any) error { e.CustomOutput = v; return nil }},
		{"notes", readEndNotes},
		{"notices", readEndNotices},
		{"tags", readEndTags},
		{"errorMessage", readEndErrorMessage},
		{"attachments", readEndAttachments},
	}
}

type endMember struct {
	name string
	read func(*endResult, any) error
}

type endResult struct {
	workflow.End
	output any
}

func (endType) Compile(c *workflow.ConfigReader) workflow.Program {
	e := &end{}
	for _, m := range endMembers() {
		tree := c.Tree(m.name)
		if tree == nil {
			continue
		}
		e.members = append(e.members, endTree{m, tree})
		if literal, ok := tree.Literal(); ok {
			if err := m.read(&endResult{}, literal); err != nil {
				at, err := place(err)
				c.Fault(workflow.JoinPath(m.name, at), "%s", err)
			}
		}
	}
	return e
}

// Effect is false: an end only computes.
func (*end) Effect() bool { return false }

// Run computes the result.
func (e *end) Run(_ context.Context, call *workflow.Call) (workflow.Result, error) {
	result := &endResult{}
	for _, m := range e.members {
		v, err := m.tree.Eval(call.Env)
		if err == nil {
			err = m.read(result, v)
		}
		if err != nil {
			at, err := place(err)
			return workflow.Result{}, failureAt(codeInvalidResult, workflow.JoinPath(m.name, at), err)
		}
	}
	return workflow.Result{Output: result.output, End: &result.End}, nil
}

// placedError is a fault of a part of a value.
type placedError struct {
	path string
	err  error
}

func (e *placedError) Error() string { return e.path + ": " + e.err.Error() }
func (e *placedError) Unwrap() error { return e.err }

func placed(err error, format string, args ...any) error {
	return &placedError{path: fmt.Sprintf(format, args...), err: err}
}

// place tells which part of a value an error is about: "" for all of it.
func place(err error) (at string, cause error) {
	if p, ok := errors.AsType[*placedError](err); ok {
		return p.path, p.err
	}
	return "", err
}

var (
	errObject  = errors.New("must be an object")
	errList    = errors.New("must be an array")
	errString  = errors.New("must be a text")
	errStatus  = errors.New("must be completed or failed")
	errCode    = fmt.Errorf("must be an integer from %d to %d", statusCodeLeast, statusCodeMost)
	errLevel   = errors.New("must be info, warning or error")
	errTooMany = errors.New("has too many items")
	errTag     = fmt.Errorf("must be a text of 1 to %d characters", tagLengthMax)
	errUnknown = errors.New("is not a known member")
	errMissing = errors.New("is required")
)

func objectOrNull(v any) (any, error) {
	if _, ok := v.(map[string]any); !ok && v != nil {
		return nil, errObject
	}
	return v, nil
}

func readEndStatus(e *endResult, v any) error {
	switch v {
	case "completed", nil:
	case "failed":
		e.Failed = true
	default:
		return errStatus
	}
	return nil
}

func readEndStatusCode(e *endResult, v any) error {
	if v == nil {
		return nil
	}
	number, _ := v.(json.Number)
	code, isInteger := exactjson.Integer(number)
	if !isInteger || code < statusCodeLeast || code > statusCodeMost {
		return errCode
	}
	e.StatusCode = int(code)
	return nil
}

func readEndErrorMessage(e *endResult, v any) error {
	if v == nil {
		return nil
	}
	text, err := scalarText(v)
	e.ErrorMessage = text
	return err
}

// list reads an array of at most limit items; nulls are left out.
func list(v any, limit int, item func(i int, v any) error) error {
	items, ok := v.([]any)
	switch {
	case v == nil:
		return nil
	case !ok:
		return errList
	case len(items) > limit:
		return errTooMany
	}
	for i, v := range items {
		if v == nil {
			continue
		}
		if err := item(i, v); err != nil {
			return err
		}
	}
	return nil
}

func readEndNotes(e *endResult, v any) error {
	return list(v, remarksMax, func(i int, v any) error {
		text, err := scalarText(v)
		if err != nil {
			return placed(errString, "[%d]", i)
		}
		e.Notes = append(e.Notes, text)
		return nil
	})
}

func readEndTags(e *endResult, v any) error {
	return list(v, tagsMax, func(i int, v any) error {
		text, err := scalarText(v)
		if length := utf8.RuneCountInString(text); err != nil || length == 0 || length > tagLengthMax {
			return placed(errTag, "[%d]", i)
		}
		e.Tags = append(e.Tags, text)
		return nil
	})
}

func readEndNotices(e *endResult, v any) error {
	return list(v, remarksMax, func(i int, v any) error {
		notice := workflow.Notice{Level: workflow.LevelInfo}
		err := members(v, fmt.Sprintf("[%d]", i), map[string]func(any) error{
			"code":    textInto(&notice.Code),
			"message": textInto(&notice.Message),
			"source":  textInto(&notice.Source),
			"level": func(v any) error {
				switch v {
				case string(workflow.LevelInfo), string(workflow.LevelWarning), string(workflow.LevelError):
					notice.Level = workflow.Level(v.(string)) //nolint:errcheck // the case says it is a text
					return nil
				case nil:
					return nil
				}
				return errLevel
			},
		})
		if err == nil && notice.Message == "" {
			err = placed(errMissing, "[%d].message", i)
		}
		e.Notices = append(e.Notices, notice)
		return err
	})
}

func readEndAttachments(e *endResult, v any) error {
	return list(v, remarksMax, func(i int, v any) error {
		attachment := workflow.Attachment{Metadata: map[string]any{}}
		err := members(v, fmt.Sprintf("[%d]", i), map[string]func(any) error{
			"fileName": textInto(&attachment.FileName),
			"metadata": func(v any) error {
				metadata, ok := v.(map[string]any)
				if !ok && v != nil {
					return errObject
				}
				if ok {
					attachment.Metadata = metadata
				}
				return nil
			},
		})
		if err == nil && attachment.FileName == "" {
			err = placed(errMissing, "[%d].fileName", i)
		}
		e.Attachments = append(e.Attachments, attachment)
		return err
	})
}

// members reads an object at a path, each member with its own function.
func members(v any, at string, read map[string]func(any) error) error {
	object, ok := v.(map[string]any)
	if !ok {
		return placed(errObject, "%s", at)
	}
	for _, name := range sortedNames(object) {
		into, known := read[name]
		if !known {
			return placed(errUnknown, "%s.%s", at, name)
		}
		if err := into(object[name]); err != nil {
			return placed(err, "%s.%s", at, name)
		}
	}
	return nil
}

// textInto reads a text, or a number or boolean as text; null leaves it empty.
func textInto(into *string) func(any) error {
	return func(v any) error {
		if v == nil {
			return nil
		}
		text, err := scalarText(v)
		if err != nil {
			return errString
		}
		*into = text
		return nil
	}
}
