package schedule

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/netresearch/go-cron"
)

// searchYearsMax is how far ahead the next time is searched. The rarest day is February
// 29, which does not exist between 2096 and 2104.
const searchYearsMax = 8

// Cron is a cron expression with five fields: minute, hour, day of month, month and day
// of week. It follows POSIX crontab and adds names and steps (contract 7.2). A day
// matches if the day of month or the day of week matches. If one of them is "*", only the
// other decides.
type Cron struct{ schedule cron.Schedule }

// ParseCron reads an expression. The error names every invalid field and the reason. It
// does not repeat the input.
func ParseCron(expression string) (*Cron, error) {
	// The library accepts more than the contract allows. So it gets the expression only
	// after field.parse has reduced it to lists of numbers.
	texts := strings.FieldsFunc(expression, func(r rune) bool { return r == ' ' || r == '\t' })
	if err := checkForm(texts); err != nil {
		return nil, err
	}
	plain := make([]string, len(texts))
	var faults []error
	for i, f := range fields() {
		values, err := f.parse(texts[i])
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", f.name, err))
			continue
		}
		plain[i] = values.String()
	}
	if len(faults) > 0 {
		return nil, joined(faults)
	}
	parser := cron.MustNewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.DowOrDom).
		WithMaxSearchYears(searchYearsMax)
	schedule, err := parser.Parse(strings.Join(plain, " "))
	if err != nil {
		return nil, fmt.Errorf("cannot be read: %w", err)
	}
	return &Cron{schedule}, nil
}

// checkForm refuses an expression that does not have five fields.
func checkForm(texts []string) error {
	switch {
	case len(texts) == 0:
		return errors.New("must not be empty")
	case strings.HasPrefix(texts[0], "@"):
		return errors.New("macros such as @daily are not supported; write the five fields")
	case strings.HasPrefix(texts[0], "TZ=") || strings.HasPrefix(texts[0], "CRON_TZ="):
		return errors.New("a time zone is not supported; set the offset from UTC in utcDeltaHours")
	case len(texts) > len(fields()):
		return fmt.Errorf("must have five fields: minute, hour, day of month, month, day of week; it has %d, and seconds and years are not supported", len(texts))
	case len(texts) < len(fields()):
		return fmt.Errorf("must have five fields: minute, hour, day of month, month, day of week; it has %d", len(texts))
	default:
		return nil
	}
}

// joined joins errors on one line.
func joined(faults []error) error {
	texts := make([]string, len(faults))
	for i, err := range faults {
		texts[i] = err.Error()
	}
	return errors.New(strings.Join(texts, "; "))
}

// Next returns the first time, in UTC, at which the expression fires after the given
// time. The fields mean local time, which is utcDeltaHours ahead of UTC. Next returns
// false if the expression never fires, such as on February 30.
func (c *Cron) Next(after time.Time, utcDeltaHours int) (time.Time, bool) {
	zone := time.FixedZone("", utcDeltaHours*int(time.Hour/time.Second))
	next := c.schedule.Next(after.In(zone))
	return next.UTC(), !next.IsZero()
}

// field is one of the five fields of a cron expression.
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

// values are the values of a field. For the two fields of days, "*" (all) differs from a
// list of all values (POSIX).
type values struct {
	all  bool
	list [60]bool
}

// String returns the values as the text of a field.
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

// parse reads the text of a field: items separated by commas. An item is "*", a value or
// a range; "*" and ranges can have a step.
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
			return errors.New("a step must follow * or a range")
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

// parseSpan reads "*", a value or a range, without a step.
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

// sundays makes Sunday 0 if a range of days begins with it, and 7 if the range ends with
// it.
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
		return 0, fmt.Errorf("must be from %d to %d", f.min, f.max)
	case text == "":
		return 0, errors.New("a value is missing")
	case strings.ContainsAny(text, "LlWw#?Hh"):
		return 0, errors.New("has a value that is neither a number nor a name; L, W, #, ? and H are not supported")
	case f.names != nil:
		return 0, fmt.Errorf("has a value that is neither a number nor a name such as %s", f.names[1])
	default:
		return 0, errors.New("has a value that is not a number")
	}
}

// number reads digits. More than four digits are always out of range.
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
