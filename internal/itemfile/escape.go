package itemfile

import "strings"

// formulaStarts are the first characters of texts that spreadsheet programs run as
// formulas (contract 6.7).
const formulaStarts = "=+-@\t"

// Escape puts an apostrophe before a text that a spreadsheet program would run as a
// formula. A text that looks escaped gets another apostrophe, so that unescape restores
// every text.
func Escape(text string) string {
	if isFormula(text) {
		return "'" + text
	}
	return text
}

// unescape removes the apostrophe that Escape adds.
func unescape(text string) string {
	if strings.HasPrefix(text, "'") && isFormula(text) {
		return text[1:]
	}
	return text
}

// isFormula reports whether the text begins like a formula after its leading apostrophes.
func isFormula(text string) bool {
	rest := strings.TrimLeft(text, "'")
	return rest != "" && strings.IndexByte(formulaStarts, rest[0]) >= 0
}
