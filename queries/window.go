package queries

import "github.com/google/uuid"

// Window says which part of a list to read, and how far to count the whole of it.
type Window struct {
	// After is the id that the part comes after, in the order of the list; nil begins
	// with the first.
	After  *uuid.UUID
	Offset int
	Limit  int
	// CountMax is how far all that match are counted, whatever After and Offset say.
	CountMax int
}
