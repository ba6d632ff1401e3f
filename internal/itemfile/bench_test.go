package itemfile

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkReadItems is what reading a row of a table costs beside checking it.
func BenchmarkReadItems(b *testing.B) {
	var file strings.Builder
	file.WriteString("name,amount,months,owner,grade,note,address.zip,address.floor\n")
	for i := range b.N {
		fmt.Fprintf(&file, "Maria Santos %d,%d.10,36,true,A,home improvement,0%d,2\n", i, i, 1000+i%9000)
	}
	b.ReportAllocs()
	b.ResetTimer()
	r, err := Open("loans.csv", strings.NewReader(file.String()), loanSchema)
	require.NoError(b, err)
	for range b.N {
		it, err := r.Next()
		if err != nil {
			b.Fatal(err)
		}
		it.Read()
	}
	_, err = r.Next()
	require.True(b, errors.Is(err, io.EOF))
}
