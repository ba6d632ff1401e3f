package batch

import (
	"tranche/internal/fault"
	"tranche/internal/itemfile"
	"tranche/internal/storage"
)

// ContentType returns the type with which a file of this name is uploaded. A name
// that is refused or that no format fits is fault.Invalid with a detail for fileName.
func ContentType(fileName string) (string, error) {
	if reason := storage.CheckFileName(fileName); reason != "" {
		return "", fault.New(fault.Invalid, "the file name is not valid").
			WithDetails(fault.Detail{Field: "fileName", Message: reason})
	}
	return itemfile.ContentType(fileName)
}
