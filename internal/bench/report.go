package bench

import (
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"
)

// target is what a measure is held to: in its own unit, or as a ratio to
// another measure of the same round.
type target struct {
	of, to measure // to is empty where the measure stands for itself
	atMost bool    // else at least
	bound  float64
	better float64 // a further aim; 0 for none
}

// targets are those of the project; docs/performance.md says why these.
func targets() []target {
	return []target{
		{syncAlone, insertAlone, true, 3, 2},
		{syncMany, insertMany, false, 0.35, 0.6},
		{syncMany, pgbenchMany, false, 0.35, 0.6},
		{callAlone, insertAlone, true, 4, 3},
		{asyncAlone, "", true, 10, 5},
		{asyncAccepted, insertMany, false, 0.25, 0.4},
		{asyncAccepted, pgbenchMany, false, 0.25, 0.4},
		{batchRate, drainRate, false, 1, 2},
		{effectRate, drainRate, false, 0.35, 0.5},
		{largeRate, batchRate, false, 0.8, 0},
		{peakMemory, "", true, 300, 150},
		{probeBusy, probeIdle, true, 5, 3},
		{list99, "", true, 50, 15},
		{readyTime, "", true, 1, 0},
		{idleCPU, "", true, 1, 0},
		{idleMemory, "", true, 80, 0},
	}
}

// Ratio is a target and what was reached.
type Ratio struct {
	Of     measure `json:"of"`
	To     measure `json:"to,omitempty"`
	Value  float64 `json:"value"` // the median of the rounds
	Least  float64 `json:"least"`
	Most   float64 `json:"most"`
	AtMost bool    `json:"atMost"` // Target is an upper bound; else a lower one
	Target float64 `json:"target"`
	Aim    float64 `json:"aim,omitempty"`
	Held   bool    `json:"held"`
}

// Report is the outcome of a run.
type Report struct {
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
		At: time.Now().UTC().Truncate(time.Second), Machine: machine(), PostgreSQL: b.db.version, Settings: b.db.settings,
		Rounds: b.Rounds, Items: b.Items, Figures: b.all,
	}
	for _, t := range targets() {
		if ratio, ok := b.reached(t); ok {
			r.Ratios = append(r.Ratios, ratio)
		}
	}
	return r
}

// reached compares round by round, because what a machine gives drifts from one
// to the next, or median to median where one side was measured once.
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
	return Ratio{
		Of: t.of, To: t.to, Value: r.Median, Least: r.Least, Most: r.Most,
		AtMost: t.atMost, Target: t.bound, Aim: t.better,
		Held: (t.atMost && r.Median <= t.bound) || (!t.atMost && r.Median >= t.bound),
	}, true
}

// machine says what was measured on.
func machine() string {
	model := runtime.GOARCH
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if _, rest, found := strings.Cut(string(text), "model name\t: "); found {
			model, _, _ = strings.Cut(rest, "\n")
		}
	}
	return fmt.Sprintf("%d × %s, %s, %s", runtime.NumCPU(), model, runtime.GOOS, runtime.Version())
}

// Print writes the report for people.
func (r *Report) Print(w io.Writer) error {
	fmt.Fprintf(w, "%s\nPostgreSQL %s with", r.Machine, r.PostgreSQL)
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
	return table.Flush()
}

// number writes three digits that count.
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
