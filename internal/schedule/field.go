package schedule

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// field is one of the five of a cron expression.
type field struct {
	name     string
	min, max int
	names    []string // of the values from min on
}

const dayOfWeek = "day of week"

func fields() []field {
	return []field{
		{name: "minute", max: 59},
		{name: "hour", max: 23},
		{name: "day of month", min: 1, max: 31},
		{name: "month", min: 1, max: 12, names: []string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}},
		{name: dayOfWeek, max: 7, names: []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}},
	}
}

// values are those a field lists; all stands for every one, which for the two
// fields of days is something else than a list of all (POSIX).
type values struct {
	all  bool
	list [60]bool
}

// String writes the values as a field.
func (v *values) String() string {
	if v.all {
		return "*"
	}
	var texts []string
	for value, listed := range v.list {
		if listed {
			texts = append(texts, strconv.Itoa(value))
		}
	}
	return strings.Join(texts, ",")
}

// parse reads the text of a field: items separated by commas, each *, a value or
// a range of values; * and ranges may have a step.
func (f *field) parse(text string) (*values, error) {
	var v values
	for item := range strings.SplitSeq(text, ",") {
		if err := f.parseItem(item, &v); err != nil {
			return nil, err
		}
	}
	return &v, nil
}

func (f *field) parseItem(item string, v *values) error {
	span, stepText, hasStep := strings.Cut(item, "/")
	low, high, err := f.parseSpan(span)
	if err != nil {
		return err
	}
	step := 1
	if hasStep {
		if span != "*" && !strings.Contains(span, "-") {
			return errors.New("a step needs * or a range before it")
		}
		var ok bool
		if step, ok = number(stepText); !ok || step == 0 {
			return errors.New("a step must be a whole number from 1")
		}
	}
	v.all = v.all || span == "*" && step == 1
	for value := low; value <= high; value += step {
		if f.name == dayOfWeek {
			v.list[value%7] = true // 7 is Sunday too
		} else {
			v.list[value] = true
		}
	}
	return nil
}

// parseSpan reads *, a value or a range, without a step.
func (f *field) parseSpan(span string) (low, high int, err error) {
	if span == "*" {
		if f.name == dayOfWeek {
			return 0, 6, nil
		}
		return f.min, f.max, nil
	}
	from, to, isRange := strings.Cut(span, "-")
	if low, err = f.value(from); err != nil {
		return 0, 0, err
	}
	if !isRange {
		return low, low, nil
	}
	if high, err = f.value(to); err != nil {
		return 0, 0, err
	}
	if f.name == dayOfWeek {
		low, high = sundays(low, high)
	}
	if low > high {
		return 0, 0, errors.New("a range must not run backwards")
	}
	return low, high, nil
}

// sundays makes Sunday the day that fits a range of days: 0 where the range
// begins with it, 7 where it ends with it.
func sundays(low, high int) (int, int) {
	if low == 7 && high < 7 {
		low = 0
	}
	if high == 0 && low > 0 {
		high = 7
	}
	return low, high
}

// value reads a number or a name.
func (f *field) value(text string) (int, error) {
	if i := slices.Index(f.names, strings.ToLower(text)); i >= 0 {
		return f.min + i, nil
	}
	n, ok := number(text)
	switch {
	case ok && n >= f.min && n <= f.max:
		return n, nil
	case ok:
		return 0, fmt.Errorf("must be within %d and %d", f.min, f.max)
	case text == "":
		return 0, errors.New("has a value missing")
	case strings.ContainsAny(text, "LlWw#?Hh"):
		return 0, errors.New("has a value that is neither a number nor a name; L, W, #, ? and H are not supported")
	case f.names != nil:
		return 0, fmt.Errorf("has a value that is neither a number nor a name such as %s", f.names[1])
	default:
		return 0, errors.New("has a value that is not a number")
	}
}

// number reads digits; more than four are as good as out of range.
func number(text string) (n int, ok bool) {
	if text == "" || strings.Trim(text, "0123456789") != "" {
		return 0, false
	}
	if len(text) > 4 {
		return 9999, true
	}
	n, err := strconv.Atoi(text)
	return n, err == nil
}
