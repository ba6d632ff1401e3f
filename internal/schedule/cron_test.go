package schedule_test

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tranche/internal/schedule"
)

func TestNextTimes(t *testing.T) {
	t.Parallel()
	file, err := os.Open("testdata/next.tsv")
	require.NoError(t, err)
	defer file.Close()
	expressions := map[string]bool{}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		row := strings.Split(lines.Text(), "\t")
		require.Len(t, row, 4)
		delta, err := strconv.Atoi(row[1])
		require.NoError(t, err)
		cron, err := schedule.ParseCron(row[0])
		require.NoError(t, err, row[0])
		next, ok := cron.Next(parseTime(t, row[2]), delta)
		require.True(t, ok, lines.Text())
		require.Equal(t, row[3], next.Format(time.RFC3339), lines.Text())
		expressions[row[0]] = true
	}
	require.GreaterOrEqual(t, len(expressions), 200)
}

func parseTime(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	require.NoError(t, err)
	return at
}

// part is a random field of an expression: its text, and the values that it
// means, known from how it was made and not from reading it.
type part struct {
	text   string
	values []int
	isStar bool
}

func (p part) has(value int) bool { return p.isStar || slices.Contains(p.values, value) }

// drawPart draws a field of values from low to high; names are of the values
// from low on.
func drawPart(rt *rapid.T, low, high int, names []string) part {
	if rapid.IntRange(0, 2).Draw(rt, "kind") == 0 {
		return part{text: "*", isStar: true}
	}
	write := func(value int) string {
		if names != nil && rapid.Bool().Draw(rt, "named") {
			return rapid.SampledFrom([]string{names[value-low], strings.ToUpper(names[value-low])}).Draw(rt, "name")
		}
		return fmt.Sprintf(rapid.SampledFrom([]string{"%d", "%02d"}).Draw(rt, "digits"), value)
	}
	var p part
	var texts []string
	for range rapid.IntRange(1, 3).Draw(rt, "items") {
		from, to := rapid.IntRange(low, high).Draw(rt, "from"), rapid.IntRange(low, high).Draw(rt, "to")
		if from > to {
			from, to = to, from
		}
		step := rapid.IntRange(2, high-low+2).Draw(rt, "step")
		switch rapid.IntRange(0, 3).Draw(rt, "form") {
		case 0:
			texts, to, step = append(texts, write(from)), from, 1
		case 1:
			texts, step = append(texts, write(from)+"-"+write(to)), 1
		case 2:
			texts = append(texts, write(from)+"-"+write(to)+"/"+strconv.Itoa(step))
		default:
			texts, from, to = append(texts, "*/"+strconv.Itoa(step)), low, high
		}
		for value := from; value <= to; value += step {
			p.values = append(p.values, value)
		}
	}
	p.text = strings.Join(texts, ",")
	return p
}

// The next time is the first minute that matches, found by trying one after the
// other.
func TestNextIsTheFirstMinuteThatMatches(t *testing.T) {
	t.Parallel()
	months := []string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}
	days := []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}
	first, last := parseTime(t, "2023-12-30T00:00:00Z").Unix(), parseTime(t, "2105-01-01T00:00:00Z").Unix()
	const minutesMax = 100 * 24 * 60
	rapid.Check(t, func(rt *rapid.T) {
		minute, hour := drawPart(rt, 0, 59, nil), drawPart(rt, 0, 23, nil)
		day, month, weekday := drawPart(rt, 1, 31, nil), drawPart(rt, 1, 12, months), drawPart(rt, 0, 6, days)
		matchesDay := func(at time.Time) bool {
			switch {
			case day.isStar:
				return weekday.has(int(at.Weekday()))
			case weekday.isStar:
				return day.has(at.Day())
			default:
				return day.has(at.Day()) || weekday.has(int(at.Weekday()))
			}
		}
		expression := strings.Join([]string{minute.text, hour.text, day.text, month.text, weekday.text}, rapid.SampledFrom([]string{" ", "\t", "  "}).Draw(rt, "blank"))
		after := time.Unix(rapid.Int64Range(first, last).Draw(rt, "after"), 0).UTC()
		delta := rapid.IntRange(-12, 14).Draw(rt, "delta")

		cron, err := schedule.ParseCron(expression)
		require.NoError(rt, err, expression)
		next, fires := cron.Next(after, delta)
		at := after.Truncate(time.Minute)
		for range minutesMax {
			at = at.Add(time.Minute)
			local := at.Add(time.Duration(delta) * time.Hour)
			if minute.has(local.Minute()) && hour.has(local.Hour()) && month.has(int(local.Month())) && matchesDay(local) {
				require.True(rt, fires, expression)
				require.Equal(rt, at, next, "%s after %v, %d hours from UTC", expression, after, delta)
				return
			}
		}
		require.True(rt, !fires || next.After(at), "%s after %v, %d hours from UTC: %v", expression, after, delta, next)
	})
}

func TestExpressionsThatNeverFire(t *testing.T) {
	t.Parallel()
	for _, expression := range []string{
		"0 0 30 2 *", "0 0 31 2 *", "0 0 30,31 feb *", "0 0 30-31 2 *", "* * 31 4 *", "0 0 31 4,6,9,11 *", "0 0 31 2,4 */1",
	} {
		cron, err := schedule.ParseCron(expression)
		require.NoError(t, err, expression)
		for _, after := range []string{"2026-11-21T02:09:25Z", "2096-02-29T00:00:00Z"} {
			_, fires := cron.Next(parseTime(t, after), 0)
			require.False(t, fires, expression)
		}
	}
}

func TestRefusedExpressions(t *testing.T) {
	t.Parallel()
	for expression, want := range map[string]string{
		"":                       "must not be empty",
		" \t":                    "must not be empty",
		"@daily":                 "macros such as @daily are not supported; write the five fields",
		"@every 1h":              "macros such as @daily are not supported; write the five fields",
		"@reboot * * * *":        "macros such as @daily are not supported; write the five fields",
		"TZ=UTC 0 0 * * *":       "a time zone is not supported; set the offset from UTC in utcDeltaHours",
		"CRON_TZ=UTC":            "a time zone is not supported; set the offset from UTC in utcDeltaHours",
		"* * * *":                "must have five fields: minute, hour, day of month, month, day of week; it has 4",
		"0 * * * * *":            "must have five fields: minute, hour, day of month, month, day of week; it has 6, and seconds and years are not supported",
		"60 * * * *":             "minute: must be from 0 to 59",
		"* 24 * * *":             "hour: must be from 0 to 23",
		"* * 0 * *":              "day of month: must be from 1 to 31",
		"* * 32 * *":             "day of month: must be from 1 to 31",
		"* * * 0 *":              "month: must be from 1 to 12",
		"* * * 13 *":             "month: must be from 1 to 12",
		"* * * * 8":              "day of week: must be from 0 to 7",
		"99999999999999 * * * *": "minute: must be from 0 to 59",
		"0-60 * * * *":           "minute: must be from 0 to 59",
		"-1 * * * *":             "minute: a value is missing",
		"1- * * * *":             "minute: a value is missing",
		"1-2-3 * * * *":          "minute: has a value that is not a number",
		"+1 * * * *":             "minute: has a value that is not a number",
		"1.5 * * * *":            "minute: has a value that is not a number",
		"x * * * *":              "minute: has a value that is not a number",
		"½ * * * *":              "minute: has a value that is not a number",
		"jan * * * *":            "minute: has a value that is not a number",
		"* * * foo *":            "month: has a value that is neither a number nor a name such as feb",
		"* * * january *":        "month: has a value that is neither a number nor a name such as feb",
		"* * * * funday":         "day of week: has a value that is neither a number nor a name such as mon",
		"* * * * jan":            "day of week: has a value that is neither a number nor a name such as mon",
		"1,,2 * * * *":           "minute: a value is missing",
		"1, * * * *":             "minute: a value is missing",
		", * * * *":              "minute: a value is missing",
		"30-10 * * * *":          "minute: a range must not run backwards",
		"* 22-2 * * *":           "hour: a range must not run backwards",
		"* * * nov-feb *":        "month: a range must not run backwards",
		"* * * * fri-mon":        "day of week: a range must not run backwards",
		"*/0 * * * *":            "minute: a step must be a whole number from 1",
		"*/ * * * *":             "minute: a step must be a whole number from 1",
		"*/x * * * *":            "minute: a step must be a whole number from 1",
		"*/-5 * * * *":           "minute: a step must be a whole number from 1",
		"*/5/5 * * * *":          "minute: a step must be a whole number from 1",
		"5/15 * * * *":           "minute: a step must follow * or a range",
		"** * * * *":             "minute: has a value that is not a number",
		"*-5 * * * *":            "minute: has a value that is not a number",
		"H * * * *":              "minute: has a value that is neither a number nor a name; L, W, #, ? and H are not supported",
		"* * ? * *":              "day of month: has a value that is neither a number nor a name; L, W, #, ? and H are not supported",
		"* * L * *":              "day of month: has a value that is neither a number nor a name; L, W, #, ? and H are not supported",
		"* * 15W * *":            "day of month: has a value that is neither a number nor a name; L, W, #, ? and H are not supported",
		"* * * * 5L":             "day of week: has a value that is neither a number nor a name; L, W, #, ? and H are not supported",
		"* * * * mon#2":          "day of week: has a value that is neither a number nor a name; L, W, #, ? and H are not supported",
		"0 0\n1 1 *":             "must have five fields: minute, hour, day of month, month, day of week; it has 4",
		"0 0 1 1 *\n":            "day of week: has a value that is neither a number nor a name such as mon",
		"61 24 0 13 8":           "minute: must be from 0 to 59; hour: must be from 0 to 23; day of month: must be from 1 to 31; month: must be from 1 to 12; day of week: must be from 0 to 7",
	} {
		_, err := schedule.ParseCron(expression)
		require.EqualError(t, err, want, "%q", expression)
	}
}

func FuzzParseCron(f *testing.F) {
	for _, seed := range []string{"* * * * *", "*/15 0-6,22 1,15 jan-mar mon-fri", "@daily", "TZ=UTC * * * * *", "5-0/2 * * * 7-2", "1,,2 - / * ?"} {
		f.Add(seed)
	}
	now := time.Date(2026, 11, 21, 2, 9, 25, 0, time.UTC)
	f.Fuzz(func(t *testing.T, expression string) {
		cron, err := schedule.ParseCron(expression)
		if err != nil {
			return
		}
		if next, fires := cron.Next(now, 0); fires {
			require.True(t, next.After(now))
			require.Zero(t, next.Second())
		}
	})
}
