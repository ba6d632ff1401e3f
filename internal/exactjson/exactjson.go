// Package exactjson reads and writes JSON without losing a digit. A value is
// nil, bool, string, json.Number, []any or map[string]any, and nothing else;
// numbers keep the text they arrived with. Reading is strict: duplicate keys,
// invalid UTF-8, NUL characters, too deep nesting and absurd numbers are
// errors (contract 1.4). It must know no other package of the project.
package exactjson

import (
	"encoding/json"
	"math/big"
	"slices"
	"strconv"
	"strings"
)

// Limits of the texts that this package reads.
const (
	DepthMax    = 64  // nested arrays and objects
	DigitsMax   = 100 // digits of a number, its exponent not counted
	ExponentMax = 400 // absolute value of a number's exponent
)

// Error is a fault of a JSON text and its place. It never repeats a value.
type Error struct {
	// Path leads to the value as a caller would write it, items[3].amount;
	// empty for the whole text.
	Path    string
	Message string
}

func (e *Error) Error() string {
	if e.Path == "" {
		return e.Message
	}
	return e.Path + ": " + e.Message
}

// IsTooDeep reports whether a value nests more than DepthMax arrays and objects.
func IsTooDeep(v any) bool { return isDeeper(v, DepthMax) }

func isDeeper(v any, levels int) bool {
	switch v := v.(type) {
	case []any:
		return levels == 0 || slices.ContainsFunc(v, func(item any) bool { return isDeeper(item, levels-1) })
	case map[string]any:
		if levels == 0 {
			return true
		}
		for _, member := range v {
			if isDeeper(member, levels-1) {
				return true
			}
		}
	}
	return false
}

// NumberFits reports whether the JSON number s is within DigitsMax and ExponentMax.
func NumberFits(s string) bool {
	mantissa, exponent := s, ""
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		mantissa, exponent = s[:i], s[i+1:]
	}
	digits := 0
	for i := range len(mantissa) {
		if mantissa[i] >= '0' && mantissa[i] <= '9' {
			digits++
		}
	}
	if digits > DigitsMax {
		return false
	}
	if exponent == "" {
		return true
	}
	n, err := strconv.Atoi(exponent)
	return err == nil && n >= -ExponentMax && n <= ExponentMax
}

// Integer returns the integer that a number is, however it is written: 60.0 and 6e1 are
// integers to JSON Schema, and many libraries write them so. False for others, and for
// those that an int64 cannot hold.
func Integer(n json.Number) (int64, bool) {
	if i, err := strconv.ParseInt(string(n), 10, 64); err == nil {
		return i, true
	}
	if !NumberFits(string(n)) {
		return 0, false
	}
	exact, ok := new(big.Rat).SetString(string(n))
	if !ok || !exact.IsInt() || !exact.Num().IsInt64() {
		return 0, false
	}
	return exact.Num().Int64(), true
}
