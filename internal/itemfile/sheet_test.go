package itemfile

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/xuri/excelize/v2"

	"tranche/internal/fault"
)

// cells are the values of a sheet by their references.
type cells map[string]any

// formula is the value of a cell that has no stored result.
type formula string

// workbook writes a spreadsheet of one sheet. Cells that are also in styles get a
// number format.
func workbook(t *testing.T, values cells, styles map[string]string) []byte {
	t.Helper()
	f := excelize.NewFile()
	for cell, value := range values {
		if text, ok := value.(formula); ok {
			require.NoError(t, f.SetCellFormula("Sheet1", cell, string(text)))
			continue
		}
		require.NoError(t, f.SetCellValue("Sheet1", cell, value))
	}
	for cell, format := range styles {
		style, err := f.NewStyle(&excelize.Style{CustomNumFmt: &format})
		require.NoError(t, err)
		require.NoError(t, f.SetCellStyle("Sheet1", cell, cell, style))
	}
	var file bytes.Buffer
	require.NoError(t, f.Write(&file))
	return file.Bytes()
}

func gzipped(t *testing.T, content []byte) []byte {
	t.Helper()
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, err := w.Write(content)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return packed.Bytes()
}

// A stored number is a date, a boolean or a number, as the property and the cell's
// format say.
func TestSheetReadsTypedItems(t *testing.T) {
	t.Parallel()
	file := workbook(t, cells{
		"A1": "name", "B1": "amount", "C1": "seen", "D1": "address.zip", "E1": "owner",
		"A2": time.Date(2020, 1, 5, 0, 0, 0, 0, time.UTC), "B2": 43835, "C2": 43835.75, "D2": 43835, "E2": 1,
		"A4": "x", "B4": 434.99999999999994, "E4": true,
	}, map[string]string{"B2": `yyyy-mm-dd`, "C2": `yyyy-mm-dd`, "D2": `#,##0.00`})
	want := []Item{
		{Row: 2, Input: map[string]any{
			"name": "2020-01-05", "amount": json.Number("43835"), "seen": "2020-01-05T18:00:00Z", "address": map[string]any{"zip": "43835"}, "owner": true,
		}},
		{Row: 4, Input: map[string]any{"name": "x", "amount": json.Number("435"), "owner": true}},
	}
	for name, content := range map[string][]byte{"a.xlsx": file, "a.xlsx.gz": gzipped(t, file)} {
		items, err := readAll(name, bytes.NewReader(content))
		require.NoError(t, err)
		for i := range want {
			want[i].FileName = name
		}
		require.Equal(t, want, items)
	}
}

func TestSheetTellsFaultsOfRows(t *testing.T) {
	t.Parallel()
	const reason = "is a formula whose result is not stored; save the file with a spreadsheet program"
	file := workbook(t, cells{"A1": "name", "B1": "amount", "A2": "x", "B2": formula("1+1"), "B3": 1}, nil)
	items, err := readAll("a.xlsx", bytes.NewReader(file))
	require.NoError(t, err)
	require.Equal(t, []Item{
		{FileName: "a.xlsx", Row: 2, Input: map[string]any{"name": "x"}, Faults: []fault.Detail{{Field: "amount", Message: reason}}, IsBroken: true},
		{FileName: "a.xlsx", Row: 3, Input: map[string]any{"amount": json.Number("1")}},
	}, items)
	_, err = readAll("a.xlsx", bytes.NewReader(workbook(t, cells{"B2": formula("1+1")}, nil)))
	require.EqualError(t, err, "a.xlsx, row 2: column 2 "+reason)
}

func TestSheetRefusesFiles(t *testing.T) {
	t.Parallel()
	const notSheet = "this is not a spreadsheet of the format .xlsx, or it is broken or cut off"
	whole := workbook(t, cells{"A1": "name", "A2": "x"}, nil)
	for name, c := range map[string]struct {
		file []byte
		want string
	}{
		"empty":      {nil, "the file is empty"},
		"no archive": {[]byte("name\nx\n"), notSheet},
		"cut off":    {whole[:len(whole)-20], notSheet},
		"no rows":    {workbook(t, nil, nil), "the first visible sheet is empty; its first row must name the columns"},
	} {
		for fileName, content := range map[string][]byte{"a.xlsx": c.file, "a.xlsx.gz": gzipped(t, c.file)} {
			t.Run(name+" "+fileName, func(t *testing.T) {
				t.Parallel()
				_, err := readAll(fileName, bytes.NewReader(content))
				require.EqualError(t, err, fileName+": "+c.want)
				var broken *Error
				require.ErrorAs(t, err, &broken)
			})
		}
	}
}

// requireClear checks that a file was read or refused clearly: items have rising
// rows after the row before, and an error names the file and a reason.
func requireClear(t *testing.T, items []Item, before int, err error) {
	t.Helper()
	var broken *Error
	if err != nil && (!errors.As(err, &broken) || broken.File == "" || broken.Reason == "") {
		t.Fatalf("the error of the file is not clear: %v", err)
	}
	for _, it := range items {
		if it.Row <= before {
			t.Fatalf("row %d follows row %d", it.Row, before)
		}
		before = it.Row
	}
}
