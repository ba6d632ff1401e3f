package execution

import (
	"bytes"
	"encoding/json"
	"fmt"

	"tranche/internal/engine"
	"tranche/internal/exactjson"
	"tranche/internal/fault"
	"tranche/internal/workflow"
)

// Result is an ended execution's result as it is stored and answered (section
// 2.3 of the interface specification, decisions 5.2).
type Result struct {
	IsSuccess    bool                  `json:"isSuccess"`
	StatusCode   int                   `json:"statusCode"`
	Output       exactjson.Any         `json:"output"` // an object
	CustomOutput exactjson.Any         `json:"customOutput"`
	Attachments  []workflow.Attachment `json:"attachments"`
	Notes        []string              `json:"notes"`
	Notices      []workflow.Notice     `json:"notices"`
	ErrorMessage *string               `json:"errorMessage"`
	ErrorSubCode fault.SubCode         `json:"errorSubCode,omitempty"`
}

// NewResult returns the result of an outcome.
func NewResult(o *engine.Outcome) Result {
	r := Result{
		IsSuccess:    o.Status == engine.StatusCompleted,
		StatusCode:   o.StatusCode,
		Output:       exactjson.Any{Value: o.Output},
		CustomOutput: exactjson.Any{Value: o.CustomOutput},
		Attachments:  orEmpty(o.Attachments),
		Notes:        orEmpty(o.Notes),
		Notices:      orEmpty(o.Notices),
		ErrorSubCode: o.SubCode,
	}
	if o.ErrorMessage != "" {
		r.ErrorMessage = &o.ErrorMessage
	}
	return r
}

// ReadResult reads a stored result.
func ReadResult(text []byte) (*Result, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber() // the metadata of attachments keep every digit too
	var r Result
	if err := decoder.Decode(&r); err != nil {
		return nil, fmt.Errorf("read a stored result: %w", err)
	}
	return &r, nil
}

func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
