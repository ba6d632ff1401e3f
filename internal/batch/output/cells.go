package output

import (
	"encoding/json"
	"fmt"

	"tranche/internal/exactjson"
	"tranche/internal/itemfile"
)

// fillCells writes the leaves of an object of JSON into the cells of their columns, and
// empties the cells of other columns.
func fillCells(columns *itemfile.Columns, cells []string, object []byte) error {
	clear(cells[:len(columns.Names())])
	name := make([]byte, 0, 64)
	return exactjson.Leaves(object, func(path []string, leaf any) error {
		name = name[:0]
		for i, property := range path {
			if i > 0 {
				name = append(name, '.')
			}
			name = itemfile.AppendName(name, property)
		}
		i, ok := columns.Index(name)
		if !ok {
			return nil
		}
		var err error
		cells[i], err = cellOf(leaf)
		return err
	})
}

// cellOf returns the text of a cell: escaped text, exact digits of a number, JSON of an array
// or an empty object, nothing for null.
func cellOf(leaf any) (string, error) {
	switch v := leaf.(type) {
	case nil:
		return "", nil
	case string:
		return itemfile.Escape(v), nil
	case json.Number:
		return v.String(), nil
	case bool:
		return fmt.Sprint(v), nil
	default:
		text, err := exactjson.Encode(v)
		return string(text), err
	}
}
