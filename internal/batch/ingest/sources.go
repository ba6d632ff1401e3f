package ingest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/google/uuid"

	"tranche/internal/batch"
	"tranche/internal/catalog"
	"tranche/internal/exactjson"
	"tranche/internal/itemfile"
	"tranche/internal/storage"
	"tranche/queries"
)

// openSource opens a source of items. Faults of a file are *itemfile.Error.
type openSource func() (itemfile.Reader, error)

// sources returns the sources of a batch in their order (contract 6.2): the items of the
// request, its files, then the packages that it names. Of an output package, only the
// failed items are a source.
func (in *Ingester) sources(ctx context.Context, key batch.Key, row *queries.BatchPreProcessingBeginRow, w *catalog.Workflow) ([]openSource, error) {
	schema, err := exactjson.Decode(w.InputSchema)
	if err != nil {
		return nil, fmt.Errorf("read the input schema: %w", err)
	}
	properties, _ := schema.(map[string]any)
	all := []openSource{func() (itemfile.Reader, error) { return openList(row.Items) }}
	packages := row.SourcePackageIds
	if row.RawPackageID != nil {
		packages = append([]uuid.UUID{*row.RawPackageID}, packages...)
	}
	for _, id := range packages {
		entries, err := in.Store.Package(ctx, key.TenantID, id)
		if err != nil {
			return nil, err
		}
		for _, entry := range entries {
			if entry.Role == storage.RoleInput || entry.Role == storage.RoleFailed {
				all = append(all, in.fileSource(ctx, entry.Attachment, properties))
			}
		}
	}
	return all, nil
}

func (in *Ingester) fileSource(ctx context.Context, a storage.Attachment, schema map[string]any) openSource {
	return func() (itemfile.Reader, error) {
		file, err := in.Store.Open(ctx, a.TenantID, a.ID)
		if err != nil {
			return nil, err
		}
		return itemfile.Open(a.FileName, file, schema)
	}
}

// listReader reads the items of the request from the text of their array. It decodes one
// item at a time, because decoded items take up to sixteen times the memory of their text.
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
