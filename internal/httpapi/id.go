package api

import (
	"github.com/google/uuid"

	"tranche/internal/fault"
)

// parseID reads an id of a path or a body. One of the wrong form is answered
// like an unknown one (decisions 1.3): thing is what the domain says does not
// exist, "workflow".
func parseID(text, thing string) (uuid.UUID, error) {
	id, err := uuid.Parse(text)
	if err != nil || id.String() != text {
		return uuid.Nil, fault.New(fault.NotFound, "there is no such %s", thing)
	}
	return id, nil
}
