package itemfile

import "strings"

// formulaStarts are the characters that make a spreadsheet take a text for a
// formula (decisions 6.7).
const formulaStarts = "=+-@\t"

// Escape puts an apostrophe before a text that a spreadsheet would take for a
// formula. A text that begins like an escaped one gets another, so that
// unescape gives back every text as it was.
func Escape(text string) string {
	if isFormula(text) {
		return "'" + text
	}
	return text
}

// unescape drops one leading apostrophe of what Escape has written.
func unescape(text string) string {
	if strings.HasPrefix(text, "'") && isFormula(text) {
		return text[1:]
	}
	return text
}

// isFormula reports whether the text, without the apostrophes that lead it,
// begins like a formula.
func isFormula(text string) bool {
	rest := strings.TrimLeft(text, "'")
	return rest != "" && strings.IndexByte(formulaStarts, rest[0]) >= 0
}
