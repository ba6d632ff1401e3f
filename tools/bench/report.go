package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// target is a bound for a measurement in its own unit, or for its ratio to another
// measurement of the same round.
type target struct {
	of, to measure // to is empty for a measurement in its own unit
	atMost bool    // the bound is an upper bound, else a lower bound
	bound  float64
}

// tolerance is the share of a target by which a figure may miss it and still counts as
// held. Repeated runs on one machine differ by that much.
const tolerance = 0.1

// targets returns the targets of docs/performance.md.
func targets() []target {
	return []target{
		{syncAlone, insertAlone, true, 3.3},
		{syncMany, insertMany, false, 0.35},
		{syncMany, pgbenchMany, false, 0.35},
		{callAlone, insertAlone, true, 5.5},
		{asyncAlone, "", true, 10},
		{asyncAccepted, insertMany, false, 0.25},
		{asyncAccepted, pgbenchMany, false, 0.25},
		{batchRate, drainRate, false, 0.8},
		{effectRate, drainRate, false, 0.25},
		{largeRate, batchRate, false, 0.8},
		{peakMemory, "", true, 300},
		{probeBusy, "", true, 25},
		{list99, "", true, 50},
		{readyTime, "", true, 1},
		{idleCPU, "", true, 1},
		{idleMemory, "", true, 80},
	}
}

// Ratio is a target with the measured value.
type Ratio struct {
	Of     measure `json:"of"`
	To     measure `json:"to,omitempty"`
	Value  float64 `json:"value"` // median of the rounds
	Least  float64 `json:"least"`
	Most   float64 `json:"most"`
	AtMost bool    `json:"atMost"` // Target is an upper bound, else a lower bound
	Target float64 `json:"target"`
	Held   bool    `json:"held"` // true if the miss is within tolerance
}

// Report is the outcome of a run.
type Report struct {
	Program    string            `json:"program"`
	At         time.Time         `json:"at"`
	Machine    string            `json:"machine"`
	PostgreSQL string            `json:"postgresql"`
	Settings   map[string]string `json:"settings"`
	Rounds     int               `json:"rounds"`
	Items      int               `json:"items"`
	Figures    []*figures        `json:"figures"`
	Ratios     []Ratio           `json:"ratios"`
}

func (b *bench) report() *Report {
	r := &Report{
		Program: b.program, At: time.Now().UTC().Truncate(time.Second), Machine: machine(), PostgreSQL: b.db.version, Settings: b.db.settings,
		Rounds: b.Rounds, Items: b.Items, Figures: b.all,
	}
	for _, t := range targets() {
		if ratio, ok := b.reached(t); ok {
			r.Ratios = append(r.Ratios, ratio)
		}
	}
	return r
}

// reached compares the measurements of each round, because the speed of a machine drifts
// between rounds. If one side was measured only once, it compares the medians.
func (b *bench) reached(t target) (Ratio, bool) {
	of := b.of(t.of)
	if of == nil {
		return Ratio{}, false
	}
	values := of.Values
	if t.to != "" {
		to := b.of(t.to)
		if to == nil {
			return Ratio{}, false
		}
		if len(to.Values) != len(values) {
			values = []float64{of.Median / to.Median}
		} else {
			values = make([]float64, len(to.Values))
			for i := range values {
				values[i] = of.Values[i] / to.Values[i]
			}
		}
	}
	f := record{}
	for _, value := range values {
		f.add(t.of, value)
	}
	r := f.all[0]
	held := r.Median >= t.bound*(1-tolerance)
	if t.atMost {
		held = r.Median <= t.bound*(1+tolerance)
	}
	return Ratio{
		Of: t.of, To: t.to, Value: r.Median, Least: r.Least, Most: r.Most,
		AtMost: t.atMost, Target: t.bound, Held: held,
	}, true
}

// machine describes the machine.
func machine() string {
	model := runtime.GOARCH
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if _, rest, found := strings.Cut(string(text), "model name\t: "); found {
			model, _, _ = strings.Cut(rest, "\n")
		}
	}
	return fmt.Sprintf("%d × %s, %s, %s", runtime.NumCPU(), model, runtime.GOOS, runtime.Version())
}

// missed counts the targets that are not held.
func (r *Report) missed() (n int) {
	for _, ratio := range r.Ratios {
		if !ratio.Held {
			n++
		}
	}
	return n
}

// printComparison writes the medians of several builds side by side, each with its
// ratio to that of the first.
func printComparison(w io.Writer, reports []*Report) error {
	if len(reports) < 2 {
		return nil
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, r := range reports {
		fmt.Fprintf(table, "%s\t\t", r.Program)
	}
	fmt.Fprint(table, "  \n")
	for _, first := range reports[0].Figures {
		for _, r := range reports {
			i := slices.IndexFunc(r.Figures, func(f *figures) bool { return f.Name == first.Name })
			if i < 0 {
				fmt.Fprint(table, "-\t\t")
				continue
			}
			fmt.Fprintf(table, "%s\t× %.2f\t", number(r.Figures[i].Median), r.Figures[i].Median/first.Median)
		}
		fmt.Fprintf(table, "  %s\n", first.Name)
	}
	return table.Flush()
}

// Print writes the report as text.
func (r *Report) Print(w io.Writer) error {
	fmt.Fprintf(w, "%s\n%s\nPostgreSQL %s with", r.Program, r.Machine, r.PostgreSQL)
	for _, name := range []string{"fsync", "synchronous_commit", "full_page_writes", "shared_buffers", "min_wal_size", "max_wal_size"} {
		fmt.Fprintf(w, " %s=%s", name, r.Settings[name])
	}
	fmt.Fprintf(w, "; %d rounds, batches of %d items\n\n", r.Rounds, r.Items)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(table, "median\tleast\tmost\t  \n")
	for _, f := range r.Figures {
		fmt.Fprintf(table, "%s\t%s\t%s\t  %s\n", number(f.Median), number(f.Least), number(f.Most), f.Name)
	}
	fmt.Fprint(table, "\nmedian\tleast\tmost\ttarget\t  \n")
	for _, ratio := range r.Ratios {
		sign, verdict := "≥", ""
		if ratio.AtMost {
			sign = "≤"
		}
		if !ratio.Held {
			verdict = "  MISSED"
		}
		name := string(ratio.Of)
		if ratio.To != "" {
			name += "  ÷  " + string(ratio.To)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s %s\t  %s%s\n", number(ratio.Value), number(ratio.Least), number(ratio.Most), sign, number(ratio.Target), name, verdict)
	}
	fmt.Fprintln(table)
	return table.Flush()
}

// number formats a value with three significant digits.
func number(v float64) string {
	switch abs := math.Abs(v); {
	case math.IsNaN(v):
		return "-"
	case abs >= 100:
		return fmt.Sprintf("%.0f", v)
	case abs >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}
