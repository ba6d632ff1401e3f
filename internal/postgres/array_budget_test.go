package postgres

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/require"
)

// Encoding a list allocates its buffer once.
func TestArrayBudget(t *testing.T) {
	m := pgtype.NewMap()
	registerArrays(m)
	var texts any = []string{strings.Repeat("x", 500), strings.Repeat("y", 500), ""}
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() {
		if _, err := m.Encode(pgtype.TextArrayOID, pgtype.BinaryFormatCode, texts, nil); err != nil {
			t.Fatal(err)
		}
	}), 2.0)
}
