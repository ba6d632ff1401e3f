package itemfile

import (
	"slices"
	"strings"
	"unicode"
)

// The name of a column is the path of a property: applicant.income is income within
// applicant. A backslash precedes a dot or a backslash in the name of a property: a\.b is
// the property "a.b". So two properties never have the same column.

// AppendName appends the name of a property to the name of a column.
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

// SplitName returns the properties in the name of a column. A backslash before another
// character than a dot or a backslash means itself.
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

// joinName is the inverse of SplitName.
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

// Header returns the name of a column for a header, from which fromHeader restores it:
//   - A leading backslash protects a leading _, white space or byte order mark.
//   - A trailing backslash protects trailing white space and empty parts.
//   - An apostrophe protects a name that looks like a formula.
func Header(column string) string {
	if hasBlank(column) {
		column += `\`
	}
	if beginsUnread(column) {
		return `\` + column
	}
	return Escape(column)
}

// fromHeader returns the name of a column from a header, and whether it may have empty
// parts.
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

// byteOrderMark at the start of a file tells its encoding.
const byteOrderMark = "\uFEFF"

// beginsUnread reports whether the reader of a header or a file would drop the start of
// the name, or ignore the column.
func beginsUnread(column string) bool {
	return strings.HasPrefix(column, ignoredPrefix) || strings.HasPrefix(column, byteOrderMark) ||
		strings.TrimLeftFunc(column, unicode.IsSpace) != column
}

// hasBlank reports whether the name of a column ends with white space or has a blank
// part.
func hasBlank(column string) bool {
	return strings.TrimRightFunc(column, unicode.IsSpace) != column || slices.ContainsFunc(SplitName(column), isBlank)
}

func isBlank(property string) bool { return strings.TrimSpace(property) == "" }
