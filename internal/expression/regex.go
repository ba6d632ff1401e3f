package expression

import (
	"regexp"
	"regexp/syntax"
	"strings"

	"github.com/expr-lang/expr/ast"
)

// Limits of a pattern: its bytes, and the instructions that it becomes when
// its repetitions are written out.
const (
	regexLengthMax       = 1_000
	regexInstructionsMax = 10_000
)

const errRegex problem = "the regular expression is not valid (the syntax is that of RE2)"

// literalPattern compiles a pattern that is written out, so that a mistake is
// found early and the work is done once.
func (c *compiler) literalPattern(n ast.Node) error {
	literal, ok := n.(*ast.StringNode)
	if !ok {
		return nil
	}
	p, err := newPattern(literal.Value)
	if err != nil {
		return c.fail(n, "%s", err.Error())
	}
	c.patterns[literal.Value] = p
	return nil
}

func newPattern(text string) (*pattern, error) {
	if len(text) > regexLengthMax {
		return nil, problemf("a regular expression has at most %d characters", regexLengthMax)
	}
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, errRegex
	}
	size := instructions(parsed)
	if size > regexInstructionsMax {
		return nil, problem("the regular expression repeats too much; use smaller repeat counts")
	}
	compiled, err := regexp.Compile(text)
	if err != nil {
		return nil, errRegex
	}
	return &pattern{Regexp: compiled, instructions: size}, nil
}

// instructions estimates how many instructions a pattern becomes.
func instructions(re *syntax.Regexp) int {
	size := 1 + len(re.Rune)
	for _, part := range re.Sub {
		size += instructions(part)
	}
	if re.Op == syntax.OpRepeat {
		size *= 1 + max(re.Min, re.Max)
	}
	return size
}

// pattern returns a compiled pattern and accounts for using it on a text of
// that many bytes.
func (r *run) pattern(text string, bytes int) (*pattern, error) {
	p, ok := r.literals[text]
	if !ok {
		p, ok = r.made[text]
	}
	if !ok {
		var err error
		if p, err = newPattern(text); err != nil {
			return nil, err
		}
		if r.made == nil {
			r.made = map[string]*pattern{}
		}
		r.made[text] = p
		if err := r.step(len(text) + p.instructions); err != nil {
			return nil, err
		}
	}
	return p, r.step(bytes / regexBytesPerStep * (1 + p.instructions/16))
}

func (r *run) matches(text, pattern string) (bool, error) {
	p, err := r.pattern(pattern, len(text))
	if err != nil {
		return false, err
	}
	return p.MatchString(text), nil
}

// replace replaces all matches of the pattern; $1 or ${name} stand for groups.
func (r *run) replace(text, pattern, replacement string) (string, error) {
	p, err := r.pattern(pattern, len(text))
	if err != nil {
		return "", err
	}
	groups := 1 + p.NumSubexp()
	matches := p.FindAllStringSubmatchIndex(text, r.steps/groups+1)
	if err := r.list(len(matches) * groups); err != nil {
		return "", err
	}
	references := strings.Count(replacement, "$")
	var out []byte
	end := 0
	for _, match := range matches {
		if len(replacement)+references*(match[1]-match[0]) > memoryMax {
			return "", errMemory
		}
		before := len(out)
		out = append(out, text[end:match[0]]...)
		out = p.ExpandString(out, replacement, text, match)
		end = match[1]
		if err := r.text(len(out) - before); err != nil {
			return "", err
		}
	}
	if err := r.text(len(text) - end); err != nil {
		return "", err
	}
	return string(append(out, text[end:]...)), nil
}
