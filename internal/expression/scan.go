package expression

// opening begins an expression within a template.
const opening = "{{"

// nextExpression finds the next {{ at or after from and the }} that closes it.
// start is the place of the {{, or the length of the text if there is none;
// end is the place of the }}. Texts, comments and braces within the expression
// are skipped. ok is false for a {{ that is not closed.
func nextExpression(text []rune, from int) (start, end int, ok bool) {
	for start = from; ; start++ {
		if start+1 >= len(text) {
			return len(text), len(text), true
		}
		if text[start] == '{' && text[start+1] == '{' {
			break
		}
	}
	depth := 0
	for i := start + 2; i < len(text); {
		switch c := text[i]; {
		case c == '"' || c == '\'' || c == '`':
			i = afterText(text, i)
			continue
		case c == '/' && i+1 < len(text) && (text[i+1] == '/' || text[i+1] == '*'):
			i = afterComment(text, i)
			continue
		case c == '{':
			depth++
		case c == '}' && depth > 0:
			depth--
		case c == '}' && i+1 < len(text) && text[i+1] == '}':
			return start, i, true
		}
		i++
	}
	return start, 0, false
}

// afterText returns the place after the quotation mark that closes the text
// beginning at i.
func afterText(text []rune, i int) int {
	quote := text[i]
	for i++; i < len(text); i++ {
		switch {
		case text[i] == '\\' && quote != '`':
			i++
		case text[i] == quote:
			return i + 1
		}
	}
	return len(text)
}

// afterComment returns the place after the comment beginning at i.
func afterComment(text []rune, i int) int {
	line := text[i+1] == '/'
	for i += 2; i < len(text); i++ {
		if line && text[i] == '\n' {
			return i + 1
		}
		if !line && text[i] == '*' && i+1 < len(text) && text[i+1] == '/' {
			return i + 2
		}
	}
	return len(text)
}
