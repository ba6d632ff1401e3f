package ingest

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tranche/internal/itemfile"
)

func TestSkipPassesOverItems(t *testing.T) {
	t.Parallel()
	r, err := itemfile.Open("a.csv", strings.NewReader("name\na\n\nb\nc\n"), nil)
	require.NoError(t, err)
	n, err := skip(r, 2)
	require.NoError(t, err)
	require.Equal(t, 2, n)
	it, err := r.Next()
	require.NoError(t, err)
	it.Read()
	require.Equal(t, "c", it.Input["name"])
	require.Equal(t, 5, it.Row)
	n, err = skip(r, 2)
	require.NoError(t, err)
	require.Zero(t, n)
}
