package queries

import "github.com/google/uuid"

// Window is the part of a list to read.
type Window struct {
	// After is a cursor: the part begins after this id, in the order of the list. Nil
	// means the beginning.
	After  *uuid.UUID
	Offset int
	Limit  int
	// CountMax is the number up to which all matches are counted. After and Offset do not
	// change the count.
	CountMax int
}
