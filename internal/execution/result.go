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

// Result is an ended execution's result as it is stored and answered (section
// 2.3 of the interface specification, decisions 5.2).
type Result struct {
	IsSuccess    bool                  `json:"isSuccess"`
	StatusCode   int                   `json:"statusCode"`
	Output       json.RawMessage       `json:"output"` // an object's text; who answers or stores it need not read it
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

// ResultText is the JSON of an outcome's result.
func ResultText(o *engine.Outcome) ([]byte, error) {
	r, err := newResult(o)
	if err != nil {
		return nil, err
	}
	return r.JSON()
}

// JSON returns the result as encoding/json writes it, except that output and
// customOutput keep the text that they have.
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

// shareText is JSON. From then on Output is a part of the text, so that megabytes are not
// held twice until they are written and answered.
func (r *Result) shareText() ([]byte, error) {
	text, err := r.JSON()
	if err == nil {
		_, output, _ := bytes.Cut(text, []byte(`"output":`)) // what is before it has no text
		r.Output = output[:len(r.Output):len(r.Output)]
	}
	return text, err
}

// appendList writes a list; most are empty.
func appendList[T any](dst []byte, list []T) ([]byte, error) {
	if list != nil && len(list) == 0 {
		return append(dst, "[]"...), nil
	}
	text, err := json.Marshal(list)
	return append(dst, text...), err
}

// ReadResult reads a stored result; what the workflow gave stays text.
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
