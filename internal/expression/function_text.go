package expression

import (
	"strings"
	"unicode/utf8"
)

func textFunction(name string) function {
	switch name {
	case "string":
		return function{1, 1, toText}
	case "trim":
		return function{1, 2, trim}
	case "trimPrefix":
		return function{2, 2, affix(strings.TrimPrefix)}
	case "trimSuffix":
		return function{2, 2, affix(strings.TrimSuffix)}
	case "upper":
		return function{1, 1, cased(strings.ToUpper)}
	case "lower":
		return function{1, 1, cased(strings.ToLower)}
	case "split":
		return function{2, 3, split(strings.SplitN)}
	case "splitAfter":
		return function{2, 3, split(strings.SplitAfterN)}
	case "join":
		return function{1, 2, join}
	case "replace":
		return function{3, 4, replace}
	case "repeat":
		return function{2, 2, repeat}
	case "indexOf":
		return function{2, 2, indexed(strings.Index)}
	case "lastIndexOf":
		return function{2, 2, indexed(strings.LastIndex)}
	case "hasPrefix":
		return function{2, 2, affix(strings.HasPrefix)}
	case "hasSuffix":
		return function{2, 2, affix(strings.HasSuffix)}
	case "regexMatch":
		return function{2, 2, regexMatch}
	case "regexReplace":
		return function{3, 3, regexReplace}
	default:
		return function{}
	}
}

func toText(c *call) (any, error) { return boxedText(c.run.show(c.args[0])) }

func boxedText(text string, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return text, nil
}

// trimMax bounds the characters that trim removes, in bytes.
const trimMax = 100

// trim removes white space, or the characters given, from both ends.
func trim(c *call) (any, error) {
	texts, err := c.texts()
	if err != nil {
		return nil, err
	}
	if len(texts) == 1 {
		return strings.TrimSpace(texts[0]), c.run.scan(len(texts[0]))
	}
	if len(texts[1]) > trimMax {
		return nil, problemf("trim takes at most %d characters to remove", trimMax)
	}
	if err := c.run.scan(len(texts[0]) * (1 + len(texts[1]))); err != nil {
		return nil, err
	}
	return strings.Trim(texts[0], texts[1]), nil
}

// affix looks for a part at an end of a text.
func affix[T bool | string](by func(text, part string) T) func(*call) (any, error) {
	return func(c *call) (any, error) {
		texts, err := c.texts()
		if err != nil {
			return nil, err
		}
		return by(texts[0], texts[1]), c.run.scan(len(texts[1]))
	}
}

// caseGrowth is how many times longer a text can become in another case.
const caseGrowth = 3

func cased(by func(string) string) func(*call) (any, error) {
	return func(c *call) (any, error) {
		text, err := c.text(0)
		if err != nil {
			return nil, err
		}
		if err := c.run.text(caseGrowth * len(text)); err != nil {
			return nil, err
		}
		return by(text), nil
	}
}

// split cuts a text at each separator, into at most the number of parts given.
func split(by func(text, separator string, parts int) []string) func(*call) (any, error) {
	return func(c *call) (any, error) {
		text, err := c.text(0)
		if err != nil {
			return nil, err
		}
		separator, err := c.text(1)
		if err != nil {
			return nil, err
		}
		parts, err := c.whole(2, -1, countMax)
		if err != nil {
			return nil, err
		}
		if err := c.run.scan(len(text)); err != nil {
			return nil, err
		}
		if err := c.run.list(strings.Count(text, separator) + 1); err != nil {
			return nil, err
		}
		pieces := by(text, separator, parts)
		list := make([]any, len(pieces))
		for i, piece := range pieces {
			list[i] = piece
		}
		return list, nil
	}
}

// join writes the elements one after the other, with a separator between them.
func join(c *call) (any, error) {
	list, err := c.list(0)
	if err != nil {
		return nil, err
	}
	separator := ""
	if len(c.args) > 1 {
		if separator, err = c.text(1); err != nil {
			return nil, err
		}
	}
	var b strings.Builder
	for i, v := range list {
		if err := c.run.step(1); err != nil {
			return nil, err
		}
		text, err := c.run.show(v)
		if err != nil {
			return nil, err
		}
		if err := c.run.text(len(text) + len(separator)); err != nil {
			return nil, err
		}
		if i > 0 {
			b.WriteString(separator)
		}
		b.WriteString(text)
	}
	return b.String(), nil
}

// replace replaces all matches of the pattern; $1 or ${name} stand for groups.
func replace(c *call) (any, error) {
	var texts [3]string
	for i := range texts {
		var err error
		if texts[i], err = c.text(i); err != nil {
			return nil, err
		}
	}
	limit, err := c.whole(3, -1, countMax)
	if err != nil {
		return nil, err
	}
	text, part, with := texts[0], texts[1], texts[2]
	if err := c.run.scan(len(text)); err != nil {
		return nil, err
	}
	count := strings.Count(text, part)
	if limit >= 0 {
		count = min(count, limit)
	}
	if err := c.run.text(len(text)); err != nil {
		return nil, err
	}
	if err := c.run.repeated(count, len(with)); err != nil {
		return nil, err
	}
	return strings.Replace(text, part, with, count), nil
}

// repeated accounts for a text of that many bytes made count times.
func (r *run) repeated(count, bytes int) error {
	if bytes > 0 && count > memoryMax/bytes {
		return errMemory
	}
	return r.text(count * bytes)
}

func repeat(c *call) (any, error) {
	text, err := c.text(0)
	if err != nil {
		return nil, err
	}
	count, err := c.whole(1, 0, countMax)
	if err != nil {
		return nil, err
	}
	if count < 0 {
		return nil, problem("repeat needs a count that is not negative")
	}
	if err := c.run.repeated(count, len(text)); err != nil {
		return nil, err
	}
	return strings.Repeat(text, count), nil
}

// indexed returns the position of a part, counted in characters from 0, or -1.
func indexed(by func(text, part string) int) func(*call) (any, error) {
	return func(c *call) (any, error) {
		texts, err := c.texts()
		if err != nil {
			return nil, err
		}
		if err := c.run.scan(2 * len(texts[0])); err != nil {
			return nil, err
		}
		at := by(texts[0], texts[1])
		if at > 0 {
			at = utf8.RuneCountInString(texts[0][:at])
		}
		return newNumber(at), nil
	}
}

func regexMatch(c *call) (any, error) {
	texts, err := c.texts()
	if err != nil {
		return nil, err
	}
	return boxedBool(c.run.matches(texts[0], texts[1]))
}

func regexReplace(c *call) (any, error) {
	texts, err := c.texts()
	if err != nil {
		return nil, err
	}
	return boxedText(c.run.replace(texts[0], texts[1], texts[2]))
}
