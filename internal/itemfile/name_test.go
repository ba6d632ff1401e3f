package itemfile

import (
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestNamesOfColumns(t *testing.T) {
	t.Parallel()
	for column, path := range map[string][]string{
		"income": {"income"}, "applicant.income": {"applicant", "income"}, `a\.b`: {"a.b"}, `a\.b.c\\`: {"a.b", `c\`},
		`C:\\d`: {`C:\d`}, ".a": {"", "a"}, "a.": {"a", ""}, "": {""},
	} {
		require.Equal(t, path, SplitName(column))
		require.Equal(t, column, joinName(path))
	}
	require.Equal(t, []string{`C:\dir\`, "a"}, SplitName(`C:\dir\\.a`))
	rapid.Check(t, func(t *rapid.T) {
		path := rapid.SliceOfN(rapid.StringMatching(`[a.\\_]{0,5}`), 1, 4).Draw(t, "path")
		require.Equal(t, path, SplitName(joinName(path)))
	})
}

// What Header writes is read as the property that it is of.
func TestHeadersReadBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		path := rapid.SliceOfN(rapid.StringMatching(`[a.\\_=' \t\x{a0}\x{feff}]{0,5}`), 1, 3).Draw(t, "path")
		file := Header(joinName(path)) + ",b\nx,y\n"
		r, err := Open("a.csv", strings.NewReader(file), nil)
		require.NoError(t, err)
		require.Equal(t, []string{joinName(path), "b"}, r.Columns())
		it, err := r.Next()
		require.NoError(t, err)
		it.Read()
		require.Empty(t, it.Faults)
		want := map[string]any{"b": "y"}
		place(want, path, "x")
		require.Equal(t, want, it.Input)
		_, err = r.Next()
		require.ErrorIs(t, err, io.EOF)
	})
}

// Faults of reading name properties as those of the input schema do, so that one cell has
// one fault.
func TestFaultsNameProperties(t *testing.T) {
	t.Parallel()
	integer := map[string]any{"type": "integer"}
	schema := map[string]any{"properties": map[string]any{`a\b`: integer, "a.b": integer}}
	r, err := Open("a.csv", strings.NewReader("a\\b,a\\.b\nx,y\n"), schema)
	require.NoError(t, err)
	it, err := r.Next()
	require.NoError(t, err)
	it.Read()
	require.Len(t, it.Faults, 2)
	require.Equal(t, []string{`a\b`, "a.b"}, []string{it.Faults[0].Field, it.Faults[1].Field})
}
