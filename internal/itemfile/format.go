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

// kind is the structure of a file.
type kind int

const (
	kindTable kind = iota // delimited rows
	kindSheet             // rows of a spreadsheet
	kindArray             // one JSON array of objects
	kindLines             // one JSON object per line
)

// format is a format of files.
type format struct {
	extension   string
	contentType string
	kind        kind
	// delimiter separates the cells of a table. 0 means that it is detected.
	delimiter rune
}

// formats returns all formats (contract 6.1).
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

// ContentType returns the media type for a file name. If the extension is unknown, it
// returns fault.Invalid with a detail for fileName.
func ContentType(fileName string) (string, error) {
	f, isGzip, ok := formatOf(fileName)
	if !ok {
		return "", fault.New(fault.Invalid, "the service does not read files of this type").
			WithDetails(fault.Detail{Field: "fileName", Message: "must end in " + extensions()})
	}
	if isGzip {
		return gzipContentType, nil
	}
	return f.contentType, nil
}

// formatOf returns the format for a file name.
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
