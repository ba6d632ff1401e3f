package demo

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/jedib0t/go-pretty/v6/progress"
	"github.com/jedib0t/go-pretty/v6/table"
	"golang.org/x/term"

	"tranche/internal/identity"
)

// lineInterval is the time between two lines of progress without a terminal.
const lineInterval = 2 * time.Second

// screen prints the steps of the demo.
type screen struct {
	out      io.Writer
	terminal bool
	begun    time.Time
}

func newScreen(out io.Writer) *screen {
	file, ok := out.(*os.File)
	return &screen{out: out, terminal: ok && term.IsTerminal(int(file.Fd())), begun: time.Now()}
}

// step prints a step that was done, with the time since the start.
func (s *screen) step(format string, args ...any) {
	fmt.Fprintf(s.out, "%5.1fs  %s\n", time.Since(s.begun).Seconds(), fmt.Sprintf(format, args...))
}

// say prints a line of text.
func (s *screen) say(format string, args ...any) { fmt.Fprintf(s.out, format+"\n", args...) }

// json prints an indented JSON text without changing its numbers.
func (s *screen) json(text json.RawMessage) {
	var b bytes.Buffer
	if json.Indent(&b, text, "        ", "  ") != nil {
		b.Reset()
		b.Write(text)
	}
	fmt.Fprintf(s.out, "        %s\n", b.String())
}

// table prints rows of names and values.
func (s *screen) table(rows ...[]any) {
	t := table.NewWriter()
	t.SetOutputMirror(s.out)
	t.SetStyle(table.StyleLight)
	for _, row := range rows {
		t.AppendRow(row)
	}
	t.Render()
}

// progress returns a function that shows the progress of a batch and one that ends
// it. A terminal shows a bar; other outputs get a line from time to time.
func (s *screen) progress() (report func(batch), end func()) {
	if s.terminal {
		return s.bar()
	}
	var status string
	var printed time.Time
	return func(b batch) {
		if b.Status == status && time.Since(printed) < lineInterval {
			return
		}
		status, printed = b.Status, time.Now()
		sum := b.State.Summary
		s.step("%-24s %d of %d", b.Status, sum.Completed+sum.Failed, sum.Total)
	}, func() {}
}

func (s *screen) bar() (report func(batch), end func()) {
	w := progress.NewWriter()
	w.SetOutputWriter(s.out)
	w.SetTrackerLength(40)
	w.SetMessageLength(26)
	w.SetUpdateFrequency(100 * time.Millisecond)
	style := progress.StyleBlocks
	style.Visibility.ETA = false
	style.Visibility.Speed = true
	w.SetStyle(style)
	tracker := &progress.Tracker{Message: "pending", Total: 1}
	w.AppendTracker(tracker)
	rendered := make(chan struct{})
	go func() {
		defer close(rendered)
		w.Render()
	}()
	report = func(b batch) {
		sum := b.State.Summary
		tracker.UpdateMessage(b.Status)
		if sum.Total > 0 {
			tracker.UpdateTotal(sum.Total)
			tracker.SetValue(min(sum.Completed+sum.Failed, sum.Total-1)) // a full tracker disappears from the screen
		}
	}
	return report, func() {
		tracker.MarkAsDone()
		w.Stop()
		<-rendered
	}
}

// printNext prints commands to try while the demo serves on.
func (s *screen) printNext(url, databaseURL string, credentials identity.Credentials) {
	s.say(`
The service keeps running; press Ctrl-C to stop it. Try these commands in the repository's directory:

  TOKEN=$(curl -s %[1]s/identity/resources/auth/v1/api-token --json '{"clientId":"%[2]s","secret":"%[3]s"}' | grep -o 'ey[^"]*' | head -1)
  curl -s %[1]s/v2/workflows -H "Authorization: Bearer $TOKEN"
  curl -s %[1]s/v1/workflows/%[4]s/latest/execute -H "Authorization: Bearer $TOKEN" --json @testdata/application.json

Documentation: %[1]s/docs
Show the jobs in the queue:

  psql '%[5]s' -c 'SELECT kind, state, count(*) FROM river.river_job GROUP BY 1, 2 ORDER BY 1, 2'
`, url, credentials.ClientID, credentials.Secret, singleAlias, databaseURL)
}
