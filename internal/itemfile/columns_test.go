package itemfile

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestColumnsAreUnionInOrder(t *testing.T) {
	t.Parallel()
	c := NewColumns("b", "a")
	c.AddLeaves(map[string]any{"z": 1, "a": 2, "c": map[string]any{"y": 1, "x": map[string]any{}}})
	c.AddLeaves(map[string]any{"c": map[string]any{"y": 1, "w": nil}, "b": []any{}})
	require.Equal(t, []string{"b", "a", "c.x", "c.y", "z", "c.w"}, c.Names())
}

// Batches of earlier versions have columns without backslashes.
func TestColumnsWithoutBackslashes(t *testing.T) {
	t.Parallel()
	c := NewColumns("a.b", `c\d`)
	for i, name := range []string{`a\.b`, `c\\d`} {
		got, ok := c.Index([]byte(name))
		require.True(t, ok, name)
		require.Equal(t, i, got, name)
	}
	for i := len(c.Names()); i < ColumnsMax; i++ {
		c.Add(fmt.Sprint(i))
	}
	_, ok := c.Index([]byte(`a\.b`))
	require.False(t, ok, "in a full set, the name may belong to another leaf")
}
