package itemfile

import (
	"slices"
	"strings"
	"unicode"
)

// The name of a column leads to a property of an input: applicant.income is income
// within applicant. A dot that is part of a property's own name has a backslash before
// it, and so has a backslash: a\.b is the property "a.b". So no two properties share a
// column.

// AppendName appends a property's own name to the end of a column's.
func AppendName(column []byte, property string) []byte {
	if strings.IndexByte(property, '.') < 0 && strings.IndexByte(property, '\\') < 0 {
		return append(column, property...)
	}
	for i := range len(property) {
		if c := property[i]; c == '.' || c == '\\' {
			column = append(column, '\\')
		}
		column = append(column, property[i])
	}
	return column
}

// SplitName returns the properties that the name of a column leads through. A
// backslash before anything but a dot and a backslash stands for itself.
func SplitName(column string) []string {
	var path []string
	var property strings.Builder
	for i := 0; i < len(column); i++ {
		switch c := column[i]; {
		case c == '.':
			path = append(path, property.String())
			property.Reset()
		case c == '\\' && i+1 < len(column) && (column[i+1] == '.' || column[i+1] == '\\'):
			i++
			property.WriteByte(column[i])
		default:
			property.WriteByte(c)
		}
	}
	return append(path, property.String())
}

// joinName is the opposite of SplitName.
func joinName(path []string) string {
	var column []byte
	for i, property := range path {
		if i > 0 {
			column = append(column, '.')
		}
		column = AppendName(column, property)
	}
	return string(column)
}

// Header returns the name of a column as a table has it that is to be read again, by
// fromHeader. A backslash before it keeps one that begins with _ from being ignored and
// white space or a byte order mark there from being dropped; one after it does so for
// white space at the end, and says that parts without a name are meant. An apostrophe
// keeps a spreadsheet from taking one for a formula.
func Header(column string) string {
	if hasBlank(column) {
		column += `\`
	}
	if beginsUnread(column) {
		return `\` + column
	}
	return Escape(column)
}

// fromHeader returns the column that a header names, and whether parts without a name
// are meant.
func fromHeader(header string) (column string, blankIsMeant bool) {
	column = header
	if rest, ok := strings.CutPrefix(column, `\`); ok && beginsUnread(rest) {
		column = rest
	}
	if rest, ok := strings.CutSuffix(column, `\`); ok && hasBlank(rest) {
		return rest, true
	}
	return column, false
}

// byteOrderMark at the beginning of a file tells its encoding.
const byteOrderMark = "\uFEFF"

// beginsUnread reports whether the name of a column begins with what reading a header
// ignores, or reading a file.
func beginsUnread(column string) bool {
	return strings.HasPrefix(column, ignoredPrefix) || strings.HasPrefix(column, byteOrderMark) ||
		strings.TrimLeftFunc(column, unicode.IsSpace) != column
}

// hasBlank reports whether the name of a column ends with white space or has a part
// that is nothing else.
func hasBlank(column string) bool {
	return strings.TrimRightFunc(column, unicode.IsSpace) != column || slices.ContainsFunc(SplitName(column), isBlank)
}

func isBlank(property string) bool { return strings.TrimSpace(property) == "" }
