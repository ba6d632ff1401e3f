package itemfile

import (
	"slices"
	"strings"

	"tranche/internal/fault"
)

// gzipExtension may follow the extension of every format.
const (
	gzipExtension   = ".gz"
	gzipContentType = "application/gzip"
)

// kind is how the items of a file are laid out.
type kind int

const (
	kindTable kind = iota // delimited rows
	kindSheet             // rows of a spreadsheet
	kindArray             // one JSON array of objects
	kindLines             // an object of JSON a line
)

// format is a kind of file that items are read from.
type format struct {
	extension   string
	contentType string
	kind        kind
	// delimiter separates the cells of a table; 0 where it is detected.
	delimiter rune
}

// formats returns every kind of file that items are read from (decisions 6.1).
func formats() []format {
	return []format{
		{extension: ".csv", contentType: "text/csv"},
		{extension: ".tsv", contentType: "text/tab-separated-values", delimiter: '\t'},
		{extension: ".json", contentType: "application/json", kind: kindArray},
		{extension: ".jsonl", contentType: "application/jsonl", kind: kindLines},
		{extension: ".ndjson", contentType: "application/x-ndjson", kind: kindLines},
		{extension: ".xlsx", contentType: "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", kind: kindSheet},
	}
}

// ContentType returns the media type of a file of this name. A name that no format
// fits, so that Open refuses it, is fault.Invalid with a detail for fileName.
func ContentType(fileName string) (string, error) {
	f, isGzip, ok := formatOf(fileName)
	if !ok {
		return "", fault.New(fault.Invalid, "files of this type are not read").
			WithDetails(fault.Detail{Field: "fileName", Message: "must end in " + extensions()})
	}
	if isGzip {
		return gzipContentType, nil
	}
	return f.contentType, nil
}

// formatOf finds the format of a file by its name.
func formatOf(fileName string) (f format, isGzip, ok bool) {
	name, isGzip := strings.CutSuffix(strings.ToLower(fileName), gzipExtension)
	all := formats()
	i := slices.IndexFunc(all, func(f format) bool { return strings.HasSuffix(name, f.extension) })
	if i < 0 {
		return format{}, false, false
	}
	return all[i], isGzip, true
}

func extensions() string {
	var names []string
	for _, f := range formats() {
		names = append(names, f.extension, f.extension+gzipExtension)
	}
	return strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
}
