package xlsx

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"tranche/internal/exactjson"
)

// numberDigitsMax is how many significant digits a spreadsheet program shows. The
// file stores more; they are the rounding errors of binary fractions.
const numberDigitsMax = 15

// Kind tells how a cell stores its value.
type Kind byte

// The kinds of cells.
const (
	Text Kind = iota
	Number
	Date // a number that the sheet shows as a date
)

// Cell is the value of one cell.
type Cell struct {
	// Text is the value as the spreadsheet program shows it. Of a date it is the
	// stored number of days; see Sheet.Time.
	Text string
	Kind Kind
}

// cellOf reads a stored value. The type and the style are attributes of the cell.
func (b *workbook) cellOf(value, cellType, style string) (cell Cell, fault string) {
	switch cellType {
	case "s":
		if i, err := strconv.Atoi(value); err == nil && i >= 0 && i < len(b.texts) {
			return Cell{Text: b.texts[i]}, ""
		}
		return Cell{}, "refers to a text that the file does not contain"
	case "b":
		return Cell{Text: strings.ToUpper(strconv.FormatBool(value == "1" || value == "true"))}, ""
	case "e":
		return Cell{}, "is an error of the spreadsheet, such as #REF! or #N/A"
	case "n":
		if i, err := strconv.Atoi(style); err == nil && i >= 0 && i < len(b.dateStyles) && b.dateStyles[i] {
			return Cell{Text: value, Kind: Date}, ""
		}
		return Cell{Text: shownNumber(value), Kind: Number}, ""
	case "d":
		return Cell{Text: strings.TrimSuffix(value, "T00:00:00")}, ""
	default:
		return Cell{Text: unescape(value)}, ""
	}
}

// timeOf converts a number of days into a time. The calendar of the format has a
// 29 February 1900 by mistake; that day is no time.
func timeOf(text string, isDate1904 bool) (time.Time, bool) {
	const dayOfMistake, daysMax = 60, 2958466 // 9999-12-31
	days, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(days) || days < 0 || days >= daysMax || !isDate1904 && math.Floor(days) == dayOfMistake {
		return time.Time{}, false
	}
	first := time.Date(1899, 12, 30, 0, 0, 0, 0, time.UTC)
	if isDate1904 {
		first = time.Date(1904, 1, 1, 0, 0, 0, 0, time.UTC)
	} else if days < dayOfMistake {
		first = first.AddDate(0, 0, 1)
	}
	whole, part := math.Modf(days)
	return first.AddDate(0, 0, int(whole)).Add(time.Duration(math.Round(part*86400)) * time.Second), true
}

// shownNumber writes a stored number as a spreadsheet program shows it. A binary
// fraction is rounded: 0.28999999999999998 is 0.29. An exponent such as 1E-3 is
// written out, because it is how the file stores the number and not how a person
// typed it. A number with more digits than a binary fraction has stays as it is.
func shownNumber(stored string) string {
	mantissa, _, hasExponent := strings.Cut(strings.ToLower(stored), "e")
	digits := len(strings.TrimLeft(strings.NewReplacer("-", "", ".", "").Replace(mantissa), "0"))
	isBinary := digits > numberDigitsMax && strings.Contains(stored, ".")
	if digits > numberDigitsMax+2 || !isBinary && !hasExponent {
		return stored
	}
	value, err := strconv.ParseFloat(stored, 64)
	if err != nil {
		return stored
	}
	rounded, err := strconv.ParseFloat(strconv.FormatFloat(value, 'g', numberDigitsMax, 64), 64)
	if err != nil {
		return stored
	}
	shown := strconv.FormatFloat(rounded, 'f', -1, 64)
	if len(shown) > exactjson.DigitsMax {
		return stored
	}
	return shown
}

// richText is a text, or a text in pieces of different looks.
type richText struct {
	Text   string   `xml:"t"`
	Pieces []string `xml:"r>t"`
}

func (t *richText) String() string { return unescape(t.Text + strings.Join(t.Pieces, "")) }

var escapes = regexp.MustCompile(`_x[0-9A-Fa-f]{4}_`)

// unescape reads characters that XML cannot contain. They are written as _x000D_.
func unescape(text string) string {
	if !strings.Contains(text, "_x") {
		return text
	}
	return escapes.ReplaceAllStringFunc(text, func(escape string) string {
		code, err := strconv.ParseUint(escape[2:6], 16, 16)
		if err != nil {
			return escape
		}
		return string(rune(code))
	})
}
