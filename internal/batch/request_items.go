package batch

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"

	"tranche/internal/exactjson"
	"tranche/internal/itemfile"
)

// listReader gives the items of the request, from the text of their array: read at
// once they take up to sixteen times as much.
type listReader struct {
	decoder *json.Decoder
	read    int // bytes of the last item
}

func openList(text []byte) (itemfile.Reader, error) {
	r := &listReader{decoder: json.NewDecoder(bytes.NewReader(text))}
	_, err := r.decoder.Token()
	return r, err
}

func (r *listReader) Next() (itemfile.Item, error) {
	text, err := r.element()
	if err != nil {
		return itemfile.Item{}, err
	}
	r.read = len(text)
	value, err := exactjson.Decode(text)
	input, ok := value.(map[string]any)
	if err == nil && !ok {
		err = errors.New("an item is not an object")
	}
	return itemfile.Item{Input: input}, err
}

// element returns the text of the next item, or io.EOF.
func (r *listReader) element() (text json.RawMessage, err error) {
	if !r.decoder.More() {
		return nil, io.EOF
	}
	err = r.decoder.Decode(&text)
	return text, err
}

func (r *listReader) Skip() error {
	_, err := r.element()
	return err
}

func (r *listReader) Size() int { return r.read }

func (r *listReader) Columns() []string { return nil }

func (r *listReader) FileName() string { return "" }
