package expression

import "time"

func dateFunction(name string) function {
	switch name {
	case "now":
		return function{0, 0, func(c *call) (any, error) { return c.run.env.Now.UTC().Truncate(time.Millisecond), nil }}
	case "date":
		return function{1, 2, date}
	case "dateAdd":
		return function{3, 3, dateAdd}
	case "dateDiff":
		return function{2, 3, dateDiff}
	case "format":
		return function{2, 2, format}
	default:
		return function{}
	}
}

// amountMax bounds the amount that dateAdd adds. It exceeds the years of the calendar in
// milliseconds.
const amountMax = 400_000_000_000_000

// dateTextMax bounds the text of a date, in bytes.
const dateTextMax = 64

// ToTime converts the result of an expression, a date or the text of a date, to the time
// that date(v) returns. Text without an offset is UTC.
func ToTime(v any) (time.Time, bool) {
	if t, ok := v.(time.Time); ok {
		return t, true
	}
	text, ok := v.(string)
	if !ok || len(text) < len(time.DateOnly) || len(text) > dateTextMax || text[4] != '-' {
		return time.Time{}, false
	}
	for _, layout := range [...]string{
		time.RFC3339Nano, time.DateOnly, "2006-01-02T15:04:05", time.DateTime, "2006-01-02T15:04",
	} {
		if t, err := time.Parse(layout, text); err == nil {
			return inCalendar(t)
		}
	}
	return time.Time{}, false
}

// inCalendar brings a time to UTC and milliseconds and checks that its year
// has at most four digits.
func inCalendar(t time.Time) (time.Time, bool) {
	t = t.UTC().Truncate(time.Millisecond)
	return t, t.Year() >= 0 && t.Year() <= 9999
}

func date(c *call) (any, error) {
	if !c.has(1) {
		return boxedTime(c.time(0))
	}
	text, err := c.text(0)
	if err != nil {
		return nil, err
	}
	pattern, err := c.text(1)
	if err != nil {
		return nil, err
	}
	tokens, err := dateTokens(pattern)
	if err != nil {
		return nil, err
	}
	t, ok := parseDate(text, tokens)
	if !ok {
		return nil, problemf("date cannot read %s with that pattern", c.labels[0])
	}
	return t, nil
}

func boxedTime(t time.Time, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return t, nil
}

// unit is a unit of time: months of the calendar, or milliseconds.
type unit struct{ months, milliseconds int64 }

func (c *call) unit(i int) (unit, error) {
	name := "days"
	if i < len(c.args) {
		var err error
		if name, err = c.text(i); err != nil {
			return unit{}, err
		}
	}
	switch name {
	case "years", "year":
		return unit{months: 12}, nil
	case "months", "month":
		return unit{months: 1}, nil
	case "weeks", "week":
		return unit{milliseconds: 7 * 86_400_000}, nil
	case "days", "day":
		return unit{milliseconds: 86_400_000}, nil
	case "hours", "hour":
		return unit{milliseconds: 3_600_000}, nil
	case "minutes", "minute":
		return unit{milliseconds: 60_000}, nil
	case "seconds", "second":
		return unit{milliseconds: 1_000}, nil
	case "milliseconds", "millisecond":
		return unit{milliseconds: 1}, nil
	default:
		return unit{}, problemf("the unit of %s must be years, months, weeks, days, hours, minutes, seconds or milliseconds", c.name)
	}
}

// dateAdd adds a number of units. Where a month is too short for the day the
// result is its last day.
func dateAdd(c *call) (any, error) {
	t, err := c.time(0)
	if err != nil {
		return nil, err
	}
	amount, err := c.whole(1, 0, amountMax)
	if err != nil {
		return nil, err
	}
	u, err := c.unit(2)
	if err != nil {
		return nil, err
	}
	span := max(u.months, u.milliseconds)
	if n := int64(amount); n > amountMax/span || n < -amountMax/span {
		return nil, problem("the year of a date must be from 0 to 9999")
	}
	result, ok := time.Time{}, false
	if u.months > 0 {
		result, ok = addMonths(t, int64(amount)*u.months)
	} else {
		result, ok = inCalendar(time.UnixMilli(t.UnixMilli() + int64(amount)*u.milliseconds))
	}
	if !ok {
		return nil, problem("the year of a date must be from 0 to 9999")
	}
	return result, nil
}

// monthsMax is more than the months of the calendar.
const monthsMax = 12 * 10_000

func addMonths(t time.Time, months int64) (time.Time, bool) {
	if months > monthsMax || months < -monthsMax {
		return time.Time{}, false
	}
	first := time.Date(t.Year(), t.Month()+time.Month(months), 1, t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), time.UTC)
	lastDay := first.AddDate(0, 1, -1).Day()
	return inCalendar(first.AddDate(0, 0, min(t.Day(), lastDay)-1))
}

// dateDiff counts the whole units from the first date to the second; it is
// negative if the second is earlier.
func dateDiff(c *call) (any, error) {
	from, err := c.time(0)
	if err != nil {
		return nil, err
	}
	to, err := c.time(1)
	if err != nil {
		return nil, err
	}
	u, err := c.unit(2)
	if err != nil {
		return nil, err
	}
	if u.months == 0 {
		return newNumber(int((to.UnixMilli() - from.UnixMilli()) / u.milliseconds)), nil
	}
	return newNumber(int(monthsBetween(from, to) / u.months)), nil
}

// monthsBetween counts whole months: the most that can be added to from
// without passing to.
func monthsBetween(from, to time.Time) int64 {
	months := int64(to.Year()-from.Year())*12 + int64(to.Month()-from.Month())
	reached, _ := addMonths(from, months)
	switch {
	case months > 0 && reached.After(to):
		return months - 1
	case months < 0 && reached.Before(to):
		return months + 1
	default:
		return months
	}
}
