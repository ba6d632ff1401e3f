package execution

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"

	"tranche/internal/engine"
	"tranche/internal/exactjson"
	"tranche/internal/fault"
	"tranche/internal/workflow"
)

// Result is the result of an ended execution, as it is stored and returned (contract A.2.3, 5.2).
type Result struct {
	IsSuccess    bool                  `json:"isSuccess"`
	StatusCode   int                   `json:"statusCode"`
	Output       json.RawMessage       `json:"output"` // JSON of an object
	CustomOutput json.RawMessage       `json:"customOutput"`
	Attachments  []workflow.Attachment `json:"attachments"`
	Notes        []string              `json:"notes"`
	Notices      []workflow.Notice     `json:"notices"`
	ErrorMessage *string               `json:"errorMessage"`
	ErrorSubCode fault.SubCode         `json:"errorSubCode,omitempty"`
}

// newResult returns the result of an outcome.
func newResult(o *engine.Outcome) (r Result, err error) {
	r = Result{
		IsSuccess:    o.Status == engine.StatusCompleted,
		StatusCode:   o.StatusCode,
		Attachments:  orEmpty(o.Attachments),
		Notes:        orEmpty(o.Notes),
		Notices:      orEmpty(o.Notices),
		ErrorSubCode: o.SubCode,
	}
	if o.ErrorMessage != "" {
		r.ErrorMessage = &o.ErrorMessage
	}
	if r.Output, err = exactjson.Encode(o.Output); err != nil {
		return Result{}, fmt.Errorf("write the output: %w", err)
	}
	if r.CustomOutput, err = exactjson.Encode(o.CustomOutput); err != nil {
		return Result{}, fmt.Errorf("write the custom output: %w", err)
	}
	return r, nil
}

// ResultText returns the JSON of an outcome's result.
func ResultText(o *engine.Outcome) ([]byte, error) {
	r, err := newResult(o)
	if err != nil {
		return nil, err
	}
	return r.JSON()
}

// JSON returns the result as encoding/json writes it, except that output and customOutput
// keep their text.
func (r *Result) JSON() (text []byte, err error) {
	text = strconv.AppendBool([]byte(`{"isSuccess":`), r.IsSuccess)
	text = strconv.AppendInt(append(text, `,"statusCode":`...), int64(r.StatusCode), 10)
	text = append(append(text, `,"output":`...), r.Output...)
	text = append(append(text, `,"customOutput":`...), r.CustomOutput...)
	if text, err = appendList(append(text, `,"attachments":`...), r.Attachments); err != nil {
		return nil, err
	}
	if text, err = appendList(append(text, `,"notes":`...), r.Notes); err != nil {
		return nil, err
	}
	if text, err = appendList(append(text, `,"notices":`...), r.Notices); err != nil {
		return nil, err
	}
	message, err := json.Marshal(r.ErrorMessage)
	if err != nil {
		return nil, err
	}
	text = append(append(text, `,"errorMessage":`...), message...)
	if r.ErrorSubCode != "" {
		text = append(append(append(text, `,"errorSubCode":"`...), r.ErrorSubCode...), '"')
	}
	return append(text, '}'), nil
}

// shareText returns the same text as JSON and makes Output a part of it, so that megabytes
// are not in memory twice while they wait to be written.
func (r *Result) shareText() ([]byte, error) {
	text, err := r.JSON()
	if err == nil {
		_, output, _ := bytes.Cut(text, []byte(`"output":`)) // no text comes before it
		r.Output = output[:len(r.Output):len(r.Output)]
	}
	return text, err
}

// appendList appends the JSON of a list. Most lists are empty.
func appendList[T any](dst []byte, list []T) ([]byte, error) {
	if list != nil && len(list) == 0 {
		return append(dst, "[]"...), nil
	}
	text, err := json.Marshal(list)
	return append(dst, text...), err
}

// ReadResult reads a stored result. Output and CustomOutput stay text.
func ReadResult(text []byte) (*Result, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber() // the metadata of attachments keeps every digit
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
