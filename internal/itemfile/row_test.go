package itemfile

import (
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tranche/internal/exactjson"
)

// A row that is written as a regular one has the input that reading it would give,
// and the text of that: for rows of all kinds of cells.
func TestRegularRows(t *testing.T) {
	t.Parallel()
	const seed = 22
	random := rand.New(rand.NewPCG(seed, 0))
	headers := []struct {
		names      string
		hasRegular bool
	}{
		{"name,amount,months,owner,grade,tags,address.zip,address.floor", true},
		{"address.floor,tags,x.y.z,x.y.a,x.b,_note,owner,name,amount,other,ä<>", true},
		{"borrowerId,é.\"q\".z,é.\"q\".b", true},
		{"name,amount,,grade", false},       // a column without a name
		{"name,address,address.zip", false}, // one within another
		{"name,meta,amount", false},         // an object as JSON
	}
	cells := []string{
		"", "", "Zoë", "a<b>&c", "line\nbreak", "1", "-12.50", "1e400", "007", "TRUE", "false", "A", "[1, {\"b\": 2.50}]", "[", "{\"a\": {\"b\": 1}}",
		"{}", "'=1+1", "\x00", "\xff", " 12 ", "\u2028", strings.Repeat("9", 400),
	}
	for _, header := range headers {
		l, err := newLayout("a.csv", strings.Split(header.names, ","), decodeObject(regularSchema))
		require.NoError(t, err)
		var w RowWriter
		hasRegular := false
		for range 600 {
			values := make([]string, len(l.named))
			if random.IntN(20) == 0 {
				values = values[:random.IntN(len(values))]
			}
			for i := range values {
				if random.IntN(2) == 0 {
					values[i] = cells[random.IntN(len(cells))]
				}
			}
			if random.IntN(20) == 0 {
				values = append(values, "more")
			}
			written, read := Item{layout: l, cells: values}, Item{layout: l, cells: values}
			if !w.Write(&written) {
				require.Equal(t, read, written)
				continue
			}
			hasRegular = true
			read.Read()
			require.Empty(t, read.Faults)
			require.Equal(t, read.Input, written.Input)
			text, err := exactjson.Encode(read.Input)
			require.NoError(t, err)
			require.Equal(t, string(text), string(w.Text))
		}
		require.Equal(t, header.hasRegular, hasRegular, header.names)
	}
}

const regularSchema = `{"type": "object", "properties": {
	"name": {"type": "string", "maxLength": 10}, "amount": {"type": "number"}, "months": {"type": "integer", "maximum": 360},
	"owner": {"type": "boolean"}, "grade": {"enum": ["A", "", 1]}, "tags": {"type": ["array", "string"]}, "meta": {"type": "object"},
	"address": {"type": "object", "properties": {"zip": {"type": "string"}, "floor": {"type": "integer"}}, "required": ["zip"]}}}`

// Rows that wait to be checked keep what they have, and nothing of their neighbours.
// It measures the heap of the process, so no other test runs beside it.
func TestRowsKeepLittle(t *testing.T) {
	const rows, most = 10, 640 << 10
	for name, file := range map[string]string{
		"empty cells at the end": "name\n" + strings.Repeat("x"+strings.Repeat(",", 200_000)+"\n", rows),
		"cells too many":         "name\n" + strings.Repeat("x"+strings.Repeat(",", 200_000)+"y\n", rows),
		"long cells":             "name,note\n" + strings.Repeat("x,"+strings.Repeat("y", 500_000)+"\n", rows),
	} {
		r, err := Open("a.csv", strings.NewReader(file), loanSchema)
		require.NoError(t, err)
		before, items := uint64(0), make([]Item, rows)
		for i := range items {
			items[i], err = r.Next()
			require.NoError(t, err)
			switch {
			case i == 0:
				before = liveHeap() // with what the reader itself needs for such rows
			case name == "long cells":
				items[i-1] = Item{} // as when its portion is over
			}
		}
		grown := max(liveHeap(), before) - before
		t.Logf("%s: %d bytes", name, grown)
		require.Less(t, grown, uint64(most), name)
		require.Equal(t, rows+1, items[rows-1].Row)
		runtime.KeepAlive(r) // and the file, which was there before
	}
}
