package schedule

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/netresearch/go-cron"
)

// searchYearsMax is how far ahead a time is looked for. What fires at all fires
// within eight years: the rarest day is February 29, and between 2096 and 2104
// there is none.
const searchYearsMax = 8

// Cron is a cron expression of five fields: minute, hour, day of month, month,
// day of week, as POSIX describes them in crontab, with ranges' steps and names
// in addition (decisions 7.2). A day matches if the day of month or the day of
// week does; where one of them is *, the other alone decides.
type Cron struct{ schedule cron.Schedule }

// ParseCron reads an expression. The error says of every field that is at fault
// which it is and why, without repeating what it says.
func ParseCron(expression string) (*Cron, error) {
	// The parser understands more than is allowed here, so it is given only
	// what the fields' own grammar (field.go) has made plain.
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

// checkForm refuses what is no row of fields.
func checkForm(texts []string) error {
	switch {
	case len(texts) == 0:
		return errors.New("must not be empty")
	case strings.HasPrefix(texts[0], "@"):
		return errors.New("macros such as @daily are not supported; write the five fields")
	case strings.HasPrefix(texts[0], "TZ=") || strings.HasPrefix(texts[0], "CRON_TZ="):
		return errors.New("a time zone is not supported; utcDeltaHours says the offset from UTC")
	case len(texts) > len(fields()):
		return fmt.Errorf("must have five fields: minute, hour, day of month, month, day of week; it has %d, and seconds and years are not supported", len(texts))
	case len(texts) < len(fields()):
		return fmt.Errorf("must have five fields: minute, hour, day of month, month, day of week; it has %d", len(texts))
	default:
		return nil
	}
}

// joined is one error of several, on one line.
func joined(faults []error) error {
	texts := make([]string, len(faults))
	for i, err := range faults {
		texts[i] = err.Error()
	}
	return errors.New(strings.Join(texts, "; "))
}

// Next returns the first time after the given one, in UTC, at which the
// expression fires where clocks are so many hours ahead of UTC; false if it
// never does (February 30).
func (c *Cron) Next(after time.Time, utcDeltaHours int) (time.Time, bool) {
	zone := time.FixedZone("", utcDeltaHours*int(time.Hour/time.Second))
	next := c.schedule.Next(after.In(zone))
	return next.UTC(), !next.IsZero()
}
