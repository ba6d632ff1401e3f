package itemfile

import (
	"archive/zip"
	"bufio"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// rowsVariable says how many rows the large files of the tests have.
const rowsVariable = "TRANCHE_TEST_FILE_ROWS"

const (
	// largeRow is of about 300 bytes, as an applicant's.
	largeRow     = `{"borrowerId":"B-%07d","firstName":"Maria","lastName":"Santos-%d","email":"%x@example.com","income":5400.50,"debt":912.35,"amount":12000.00,"months":36,"score":712,"purpose":"home improvement","address":{"street":"12 Long Avenue, Apartment 4, second floor","zip":"01234","city":"Springfield"}}` + "\n"
	largeHeader  = `<row><c t="inlineStr"><is><t>borrowerId</t></is></c><c t="inlineStr"><is><t>income</t></is></c><c t="inlineStr"><is><t>email</t></is></c><c t="inlineStr"><is><t>address.street</t></is></c></row>`
	largeCells   = `<row><c t="inlineStr"><is><t>B-%07d</t></is></c><c><v>%d.50</v></c><c t="inlineStr"><is><t>%x</t></is></c><c t="inlineStr"><is><t>12 Long Avenue, Apartment 4, second floor</t></is></c></row>`
	largeRelated = `<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="r1" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/%s" Target="%s"/></Relationships>`
	largeBook    = `<workbook xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main" xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"><sheets><sheet name="a" sheetId="1" r:id="r1"/></sheets></workbook>`
)

// noise keeps a file from being packed to almost nothing.
func noise(i int) [32]byte { return sha256.Sum256(strconv.AppendInt(nil, int64(i), 10)) }

// writeLines writes a large .jsonl.gz.
func writeLines(w io.Writer, rows int) error {
	packed := gzip.NewWriter(w)
	for i := range rows {
		if _, err := fmt.Fprintf(packed, largeRow, i, i, noise(i)); err != nil {
			return err
		}
	}
	return packed.Close()
}

// writeBook writes a large .xlsx.
func writeBook(w io.Writer, rows int) error {
	archive := zip.NewWriter(w)
	for _, part := range []struct{ name, text string }{
		{"_rels/.rels", fmt.Sprintf(largeRelated, "officeDocument", "xl/workbook.xml")},
		{"xl/workbook.xml", largeBook},
		{"xl/_rels/workbook.xml.rels", fmt.Sprintf(largeRelated, "worksheet", "sheet.xml")},
	} {
		p, err := archive.Create(part.name)
		if err != nil {
			return err
		}
		if _, err := io.WriteString(p, part.text); err != nil {
			return err
		}
	}
	p, err := archive.Create("xl/sheet.xml")
	if err != nil {
		return err
	}
	fmt.Fprint(p, `<worksheet><sheetData>`, largeHeader)
	for i := range rows {
		fmt.Fprintf(p, largeCells, i, i%9000, noise(i))
	}
	fmt.Fprint(p, `</sheetData></worksheet>`)
	return archive.Close()
}

// Files are read in little memory, however long they are.
func TestLargeFilesAreReadInLittleMemory(t *testing.T) { // it measures the heap of the process
	const heapMax = 384 << 10 // a file has twice as many bytes, and several megabytes when it is unpacked
	rows := 20_000
	if text := os.Getenv(rowsVariable); text != "" {
		var err error
		rows, err = strconv.Atoi(text)
		require.NoError(t, err)
	}
	for name, write := range map[string]func(io.Writer, int) error{"large.jsonl.gz": writeLines, "large.xlsx": writeBook} {
		t.Run(name, func(t *testing.T) { // not parallel: it measures the heap
			file, err := os.Create(filepath.Join(t.TempDir(), name))
			require.NoError(t, err)
			defer file.Close()
			buffer := bufio.NewWriter(file)
			require.NoError(t, write(buffer, rows))
			require.NoError(t, buffer.Flush())
			size, err := file.Seek(0, io.SeekEnd)
			require.NoError(t, err)
			_, err = file.Seek(0, io.SeekStart)
			require.NoError(t, err)

			before := liveHeap()
			r, err := Open(name, file, map[string]any{"type": "object"})
			require.NoError(t, err)
			read, most := 0, uint64(0)
			for ; ; read++ {
				if read%(rows/5) == 1 {
					most = max(most, liveHeap())
				}
				it, err := r.Next()
				if errors.Is(err, io.EOF) {
					break
				}
				require.NoError(t, err)
				it.Read()
				require.Empty(t, it.Faults)
			}
			require.Equal(t, rows, read)
			grown := max(most, before) - before
			t.Logf("%d rows, %d bytes on disk, in %d bytes of memory", rows, size, grown)
			require.Less(t, grown, uint64(heapMax))
		})
	}
}

// liveHeap is how many bytes of the heap are in use.
func liveHeap() uint64 {
	runtime.GC()
	runtime.GC() // what pools keep outlives one
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// Rows that wait to be checked keep their own cells only. The test measures the heap of
// the process, so it is not parallel.
func TestWaitingRowsUseLittleMemory(t *testing.T) {
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
				items[i-1] = Item{} // as when its page is over
			}
		}
		grown := max(liveHeap(), before) - before
		t.Logf("%s: %d bytes", name, grown)
		require.Less(t, grown, uint64(most), name)
		require.Equal(t, rows+1, items[rows-1].Row)
		runtime.KeepAlive(r) // and the file, which was there before
	}
}
