package expression

import (
	"errors"
	"fmt"
)

// Position is a place in a source text, both counted from 1, columns in characters.
type Position struct{ Line, Column int }

// Error is a fault of an expression or of one evaluation. It never repeats a value and may
// be shown to the author of the definition.
type Error struct {
	Message string
	// Position is where in the source; zero for errors of Compare and its like.
	Position Position
	// Path leads to the leaf of a Tree that failed, as a caller writes it
	// (body.items[0]); empty elsewhere.
	Path string
}

func (e *Error) Error() string {
	text := e.Message
	if e.Position.Line > 0 {
		text = fmt.Sprintf("line %d, column %d: %s", e.Position.Line, e.Position.Column, text)
	}
	if e.Path != "" {
		text = e.Path + ": " + text
	}
	return text
}

// problem is an error of a function or an operator without a position. The node that
// called it adds the position.
type problem string

func (p problem) Error() string { return string(p) }

func problemf(format string, args ...any) error {
	return problem(fmt.Sprintf(format, args...))
}

// place makes err an *Error at position unless it already has a place.
func place(err error, position Position) *Error {
	if placed, ok := errors.AsType[*Error](err); ok {
		return placed
	}
	return &Error{Message: err.Error(), Position: position}
}
