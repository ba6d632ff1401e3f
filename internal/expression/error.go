package expression

import "fmt"

// Position is a place in a source text, both counted from 1, columns in characters.
type Position struct{ Line, Column int }

// Error says what is wrong with an expression or with one evaluation of it.
// It never repeats a value and may be shown to whoever wrote the definition.
type Error struct {
	Message  string
	Position Position
	// Path leads to the leaf of a Tree that failed, as a caller writes it
	// (body.items[0]); empty elsewhere.
	Path string
}

func (e *Error) Error() string {
	text := fmt.Sprintf("line %d, column %d: %s", e.Position.Line, e.Position.Column, e.Message)
	if e.Path != "" {
		return e.Path + ": " + text
	}
	return text
}
