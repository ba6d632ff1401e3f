package expression

import (
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/cockroachdb/apd/v3"
)

// patternLengthMax bounds the pattern of format and date, in bytes.
const patternLengthMax = 100

// format writes a date or a number with a pattern: YYYY-MM-DD, #,##0.00.
func format(c *call) (any, error) {
	pattern, err := c.text(1)
	if err != nil {
		return nil, err
	}
	if n, ok := toNumber(c.args[0]); ok {
		return boxedText(formatNumber(n, pattern))
	}
	t, ok := ToTime(c.args[0])
	if !ok {
		return nil, c.wrong(0, "a number or a date")
	}
	tokens, err := dateTokens(pattern)
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	for _, token := range tokens {
		b.WriteString(token.format(t))
	}
	return b.String(), nil
}

// dateToken is a part of a date's pattern: a field of two or more digits, or
// text that stands for itself.
type dateToken struct {
	field   string
	literal string
}

const dateFields = "the pattern of a date has YYYY, MM, M, DD, D, HH, H, mm, ss and SSS"

// dateTokens reads YYYY MM M DD D HH H mm ss SSS, T, Z, text in quotation
// marks, and any other character that is not a letter.
func dateTokens(pattern string) ([]dateToken, error) {
	if len(pattern) > patternLengthMax {
		return nil, problemf("a pattern has at most %d characters", patternLengthMax)
	}
	var tokens []dateToken
	for rest := pattern; rest != ""; {
		field := longestField(rest)
		switch {
		case field != "" && strings.HasPrefix(rest[len(field):], field[:1]):
			return nil, problemf("%s, but no “%s”", dateFields, rest[:len(field)+1])
		case field != "":
			tokens = append(tokens, dateToken{field: field})
			rest = rest[len(field):]
		case rest[0] == '\'':
			end := strings.IndexByte(rest[1:], '\'')
			if end < 0 {
				return nil, problem("a quoted text in the pattern is not closed; add '")
			}
			tokens = append(tokens, dateToken{literal: rest[1 : 1+end]})
			rest = rest[end+2:]
		case isLetter(rest[0]) && rest[0] != 'T' && rest[0] != 'Z':
			return nil, problemf("%s, but no “%c”", dateFields, rest[0])
		default:
			tokens = append(tokens, dateToken{literal: rest[:1]})
			rest = rest[1:]
		}
	}
	return tokens, nil
}

func longestField(pattern string) string {
	for _, field := range [...]string{"YYYY", "yyyy", "SSS", "MM", "DD", "dd", "HH", "mm", "ss", "M", "D", "H"} {
		if strings.HasPrefix(pattern, field) {
			return field
		}
	}
	return ""
}

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

func (token dateToken) format(t time.Time) string {
	switch token.field {
	case "YYYY", "yyyy":
		return t.Format("2006")
	case "MM":
		return t.Format("01")
	case "M":
		return t.Format("1")
	case "DD", "dd":
		return t.Format("02")
	case "D":
		return t.Format("2")
	case "HH":
		return t.Format("15")
	case "H":
		return strconv.Itoa(t.Hour())
	case "mm":
		return t.Format("04")
	case "ss":
		return t.Format("05")
	case "SSS":
		return strings.TrimPrefix(t.Format(".000"), ".")
	default:
		return token.literal
	}
}

// parseDate reads a text that a pattern describes; fields that the pattern
// lacks are the start of year 0, month 1, day 1 and midnight.
func parseDate(text string, tokens []dateToken) (time.Time, bool) {
	fields := map[byte]int{'Y': 0, 'M': 1, 'D': 1, 'H': 0, 'm': 0, 's': 0, 'S': 0}
	for _, token := range tokens {
		if token.field == "" {
			var ok bool
			if text, ok = strings.CutPrefix(text, token.literal); !ok {
				return time.Time{}, false
			}
			continue
		}
		digits := 0
		for digits < len(text) && digits < max(2, len(token.field)) && text[digits] >= '0' && text[digits] <= '9' {
			digits++
		}
		if digits == 0 || len(token.field) > 1 && digits < len(token.field) {
			return time.Time{}, false
		}
		n, err := strconv.Atoi(text[:digits])
		if err != nil {
			return time.Time{}, false
		}
		name := token.field[0]
		switch name {
		case 'y':
			name = 'Y'
		case 'd':
			name = 'D'
		}
		fields[name] = n
		text = text[digits:]
	}
	t := time.Date(fields['Y'], time.Month(fields['M']), fields['D'],
		fields['H'], fields['m'], fields['s'], fields['S']*int(time.Millisecond), time.UTC)
	exists := t.Month() == time.Month(fields['M']) && t.Day() == fields['D'] &&
		t.Hour() == fields['H'] && t.Minute() == fields['m'] && t.Second() == fields['s']
	return t, exists && text == ""
}

const errNumberPattern problem = "the pattern of a number must look like 0.00 or #,##0.00"

// formatNumber writes a number with a pattern such as #,##0.00. A zero is a digit that is
// always written, # a decimal that is written if needed, and a comma groups thousands.
// Text before and after the digits is copied.
func formatNumber(n *number, pattern string) (string, error) {
	first := strings.IndexAny(pattern, "0#")
	last := strings.LastIndexAny(pattern, "0#")
	if first < 0 || len(pattern) > patternLengthMax {
		return "", errNumberPattern
	}
	digits := pattern[first : last+1]
	if before, isPoint := strings.CutSuffix(pattern[:first], "."); isPoint && !strings.Contains(digits, ".") {
		// $.00 begins with the decimals, Nr.000, Nº.000 and v2.000 do not.
		if last, _ := utf8.DecodeLastRuneInString(before); !unicode.IsLetter(last) && !unicode.IsDigit(last) {
			first--
			digits = "." + digits
		}
	}
	whole, decimals, _ := strings.Cut(digits, ".")
	if strings.Trim(whole, "0#,") != "" || strings.Trim(decimals, "0#") != "" {
		return "", errNumberPattern
	}
	rounded, err := roundTo(new(number), n, len(decimals), apd.RoundHalfEven)
	if err != nil {
		return "", err
	}
	integer, fraction, _ := strings.Cut(rounded.plain(), ".")
	negative := strings.HasPrefix(integer, "-")
	integer = strings.TrimPrefix(integer, "-")
	if missing := strings.Count(whole, "0") - len(integer); missing > 0 {
		integer = strings.Repeat("0", missing) + integer
	}
	if missing := strings.Count(decimals, "0") - len(fraction); missing > 0 {
		fraction += strings.Repeat("0", missing)
	}
	if strings.Contains(whole, ",") {
		integer = grouped(integer)
	}
	if fraction != "" {
		integer += "." + fraction
	}
	if negative {
		integer = "-" + integer
	}
	return pattern[:first] + integer + pattern[last+1:], nil
}

// grouped puts a comma before every third digit from the right.
func grouped(digits string) string {
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
