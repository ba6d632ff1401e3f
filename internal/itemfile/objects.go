package itemfile

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"tranche/internal/exactjson"
	"tranche/internal/fault"
)

// objectOf reads one item from JSON. A value that is no object becomes an item with a
// fault, so that the other items of the file are still read.
func objectOf(f *file, row int, text []byte) Item {
	it := Item{FileName: f.name, Row: row, Input: map[string]any{}}
	value, err := exactjson.Decode(text)
	switch object, ok := value.(map[string]any); {
	case err != nil:
		it.Faults, it.IsBroken = []fault.Detail{{Message: err.Error()}}, true
	case !ok:
		it.Faults, it.IsBroken = []fault.Detail{{Message: "must be a JSON object"}}, true
	default:
		it.Input = object
	}
	return it
}

// lineReader reads the lines of a file as items. Each line is a JSON object.
type lineReader struct {
	*file
	text  *boundedReader
	lines *bufio.Reader
	row   int
	read  int // bytes of the last line
}

func openLines(f *file) *lineReader {
	text := f.bounded()
	return &lineReader{file: f, text: text, lines: bufio.NewReaderSize(text, sampleBytes)}
}

func (r *lineReader) Next() (Item, error) {
	line, err := r.line()
	if errors.Is(err, errRowTooLong) {
		return Item{FileName: r.name, Row: r.row, Input: map[string]any{}, Faults: []fault.Detail{{Message: err.Error()}}, IsBroken: true}, nil
	}
	if err != nil {
		return Item{}, err
	}
	r.read = len(line)
	return objectOf(r.file, r.row, line), nil
}

// line returns the next line that is not blank, or io.EOF. It skips a line that is too
// long and returns errRowTooLong.
func (r *lineReader) line() ([]byte, error) {
	for {
		r.text.rowLeft = rowBytesMax
		line, err := r.lines.ReadBytes('\n')
		if errors.Is(err, errRowTooLong) {
			r.row++
			return nil, r.skipLine()
		}
		if err != nil && !errors.Is(err, io.EOF) || r.source.err != nil {
			return nil, r.broken(err, r.row+1)
		}
		if len(line) == 0 {
			return nil, io.EOF
		}
		r.row++
		if line = bytes.TrimSpace(line); len(line) > 0 {
			return line, nil
		}
	}
}

// skipLine reads to the end of a line that is too long.
func (r *lineReader) skipLine() error {
	for {
		r.text.rowLeft = rowBytesMax
		_, err := r.lines.ReadSlice('\n')
		switch {
		case err == nil, errors.Is(err, io.EOF) && r.source.err == nil:
			return errRowTooLong
		case !errors.Is(err, errRowTooLong) && !errors.Is(err, bufio.ErrBufferFull):
			return r.broken(err, r.row)
		}
	}
}

func (r *lineReader) Skip() error {
	_, err := r.line()
	if errors.Is(err, errRowTooLong) {
		return nil
	}
	return err
}

func (r *lineReader) Size() int { return r.read }

func (r *lineReader) Columns() []string { return nil }

func (r *lineReader) FileName() string { return r.name }

// arrayReader reads the elements of a JSON array as items.
type arrayReader struct {
	*file
	text    *boundedReader
	decoder *json.Decoder
	row     int
	read    int // bytes of the last element
}

// openArray reads the start of the array. Faults of the file are *Error.
func openArray(f *file) (*arrayReader, error) {
	text := f.bounded()
	r := &arrayReader{file: f, text: text, decoder: json.NewDecoder(text)}
	token, err := r.decoder.Token()
	if errors.Is(err, io.EOF) && r.source.err == nil {
		return nil, &Error{File: f.name, Reason: "the file is empty; it must contain a JSON array of objects"}
	}
	if err != nil {
		return nil, r.fail(err)
	}
	if token != json.Delim('[') {
		return nil, &Error{File: f.name, Reason: "the file must contain a JSON array"}
	}
	return r, nil
}

func (r *arrayReader) Next() (Item, error) {
	text, err := r.element()
	if err != nil {
		return Item{}, err
	}
	r.read = len(text)
	return objectOf(r.file, r.row, text), nil
}

// element returns the text of the next element, or io.EOF.
func (r *arrayReader) element() (json.RawMessage, error) {
	r.text.rowLeft = rowBytesMax
	if !r.decoder.More() {
		if _, err := r.decoder.Token(); err != nil {
			return nil, r.fail(err)
		}
		if _, err := r.decoder.Token(); !errors.Is(err, io.EOF) || r.source.err != nil {
			return nil, r.fail(err)
		}
		return nil, io.EOF
	}
	var text json.RawMessage
	if err := r.decoder.Decode(&text); err != nil {
		return nil, r.fail(err)
	}
	r.row++
	return text, nil
}

func (r *arrayReader) Skip() error {
	_, err := r.element()
	return err
}

func (r *arrayReader) Size() int { return r.read }

func (r *arrayReader) Columns() []string { return nil }

func (r *arrayReader) FileName() string { return r.name }

// fail returns an error that names the element with the fault. The elements after it
// cannot be read.
func (r *arrayReader) fail(err error) error {
	failed := r.broken(err, r.row+1)
	broken, isFile := errors.AsType[*Error](failed)
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok && isFile {
		broken.Reason = fmt.Sprintf("invalid JSON at byte %d of the text", syntax.Offset)
	}
	return failed
}
