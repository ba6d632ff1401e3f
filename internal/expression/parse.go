package expression

import (
	"errors"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/parser"
	"github.com/expr-lang/expr/parser/lexer"
)

// sourceMax is the length of an expression in characters.
const sourceMax = 10_000

// source is the text of one expression and where it stands: within a template
// the positions of errors are those of the whole template.
type source struct {
	text  string
	runes []rune
	lines []int // offsets of line starts in the surrounding text, in characters
	start int   // offset of the expression in the surrounding text, in characters
}

func newSource(text string) *source {
	s := &source{text: text, runes: []rune(text)}
	s.lines = lineStarts(s.runes)
	return s
}

func lineStarts(text []rune) []int {
	starts := []int{0}
	for i, c := range text {
		if c == '\n' {
			starts = append(starts, i+1)
		}
	}
	return starts
}

func (s *source) position(offset int) Position { return positionIn(s.lines, s.start+offset) }

func positionIn(lines []int, offset int) Position {
	line, exactly := slices.BinarySearch(lines, offset)
	if !exactly {
		line--
	}
	return Position{Line: line + 1, Column: offset - lines[line] + 1}
}

func (s *source) fail(at file.Location, format string, args ...any) *Error {
	return place(problemf(format, args...), s.position(at.From))
}

// parse reads the syntax. The error is an *Error.
func (s *source) parse() (ast.Node, error) {
	var start file.Location
	switch {
	case len(s.runes) > sourceMax:
		return nil, s.fail(start, "an expression has at most %d characters", sourceMax)
	case !utf8.ValidString(s.text):
		return nil, s.fail(start, "the expression is not valid UTF-8")
	case strings.TrimSpace(s.text) == "":
		return nil, s.fail(start, "the expression is empty")
	}
	masked, err := s.maskNumbers()
	if err != nil {
		return nil, s.translate(err)
	}
	tree, err := parser.Parse(masked)
	if err != nil {
		return nil, s.translate(err)
	}
	return tree.Node, nil
}

// maskNumbers replaces the digits of decimal literals by zeros. The parser
// would refuse a literal that no int64 or float64 holds, and would round the
// others; their text is taken from the source instead.
func (s *source) maskNumbers() (string, error) {
	tokens, err := lexer.Lex(file.NewSource(s.text))
	if err != nil {
		return "", err
	}
	masked := slices.Clone(s.runes)
	for _, token := range tokens {
		if token.Kind != lexer.Number || isBased(token.Value) {
			continue
		}
		for i := token.From; i < token.To; i++ {
			if masked[i] >= '1' && masked[i] <= '9' {
				masked[i] = '0'
			}
		}
	}
	return string(masked), nil
}

// isBased reports whether a literal is hexadecimal, octal or binary.
func isBased(literal string) bool {
	return len(literal) > 1 && literal[0] == '0' && strings.ContainsRune("xXoObB", rune(literal[1]))
}

// literal returns the source text of a node that is one token.
func (s *source) literal(at file.Location) string {
	return string(s.runes[at.From:at.To])
}

// translate rewrites an error of the parser for readers who do not know its terms.
func (s *source) translate(err error) *Error {
	var e *file.Error
	if !errors.As(err, &e) {
		return s.fail(file.Location{}, "the expression cannot be read")
	}
	end := len(s.runes)
	at := file.Location{From: max(0, min(e.From, end)), To: max(0, min(e.To, end))}
	return s.fail(at, "%s", s.message(e.Message, at))
}

// tokenMax is how much of a token an error shows, in characters.
const tokenMax = 40

func (s *source) message(m string, at file.Location) string {
	switch {
	case strings.Contains(m, "map key"):
		return "the name of a member is a text, a name, a number, or an expression in parentheses"
	case strings.Contains(m, "unexpected token EOF"), strings.Contains(m, "unexpected end"):
		return "the expression ends too early"
	case strings.Contains(m, "unexpected token") && at.From < at.To:
		at.To = min(at.To, at.From+tokenMax)
		return "“" + s.literal(at) + "” is not expected here"
	case strings.Contains(m, "literal not terminated"):
		return "a text is never closed with its quotation mark"
	case strings.Contains(m, "unclosed comment"):
		return "a comment is never closed with */"
	case strings.Contains(m, "escape"):
		return "a text has an unknown escape after \\"
	case strings.Contains(m, "literal"), strings.Contains(m, "bad number"):
		return "a number is written wrongly"
	case strings.Contains(m, "unrecognized character"):
		return "a character is not expected here"
	case strings.Contains(m, "coalesce"):
		return "?? cannot stand beside other operators: put it in parentheses"
	case strings.Contains(m, "arguments"):
		return "an argument is missing"
	case strings.Contains(m, "expected name"):
		return "the name of a member is expected here"
	case strings.Contains(m, "maximum allowed nodes"):
		return "the expression has too many parts"
	case strings.Contains(m, "wrap predicate"):
		return "a condition of several steps is put in { and }"
	default:
		return "the expression cannot be read from here"
	}
}
