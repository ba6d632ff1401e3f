package itemfile

import (
	"archive/zip"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/xuri/excelize/v2"

	"tranche/internal/fault"
)

// spreadsheet is one of one sheet, whose rows are given as XML.
func spreadsheet(t *testing.T, rows string) []byte {
	t.Helper()
	return repacked(t, excelize.NewFile(), "xl/worksheets/sheet1.xml",
		`<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetData>`+rows+`</sheetData></worksheet>`)
}

// repacked writes a spreadsheet with another content of one of its parts, and
// what its archive says of each beyond the usual.
func repacked(tb testing.TB, f *excelize.File, name, content string, extra ...byte) []byte {
	tb.Helper()
	var plain, changed bytes.Buffer
	require.NoError(tb, f.Write(&plain))
	r, err := zip.NewReader(bytes.NewReader(plain.Bytes()), int64(plain.Len()))
	require.NoError(tb, err)
	w := zip.NewWriter(&changed)
	for _, part := range r.File {
		to, err := w.CreateHeader(&zip.FileHeader{Name: part.Name, Method: zip.Deflate, Extra: extra})
		require.NoError(tb, err)
		if part.Name == name {
			_, err = io.WriteString(to, content)
			require.NoError(tb, err)
			continue
		}
		from, err := part.Open()
		require.NoError(tb, err)
		_, err = io.Copy(to, from)
		require.NoError(tb, err)
	}
	require.NoError(tb, w.Close())
	return changed.Bytes()
}

const sheetHeader = `<row r="1"><c r="A1" t="inlineStr"><is><t>name</t></is></c><c r="B1" t="inlineStr"><is><t>amount</t></is></c></row>`

// What a cell shows is what is read, whatever way it is stored.
func TestSheetReadsCells(t *testing.T) {
	t.Parallel()
	header := strings.Replace(sheetHeader, "</row>", `<c r="C1" t="inlineStr"><is><t>owner</t></is></c></row>`, 1)
	for name, c := range map[string]struct {
		cells string // of the second row
		want  map[string]any
	}{
		"rich text":                {`<c r="A2" t="inlineStr"><is><r><t>bo</t></r><r><rPr><b/></rPr><t>ld</t></r><rPh sb="0" eb="1"><t>no</t></rPh></is></c>`, map[string]any{"name": "bold"}},
		"escaped character":        {`<c r="A2" t="inlineStr"><is><t>a_x000D_b_x005F_</t></is></c>`, map[string]any{"name": "a\rb_"}},
		"text of a formula":        {`<c r="A2" t="str"><f>"x"&amp;"y"</f><v>xy</v></c><c r="B2"><f>1+1</f><v>2</v></c>`, map[string]any{"name": "xy", "amount": json.Number("2")}},
		"empty text of a formula":  {`<c r="A2" t="str"><f>""</f><v></v></c><c r="B2"><v>1</v></c>`, map[string]any{"amount": json.Number("1")}},
		"number as text":           {`<c r="A2"><v>0.28999999999999998</v></c>`, map[string]any{"name": "0.29"}},
		"error in the 16th digit":  {`<c r="A2"><v>434.99999999999994</v></c><c r="B2"><v>434.99999999999994</v></c>`, map[string]any{"name": "435", "amount": json.Number("435")}},
		"digits of a text":         {`<c r="A2"><v>0.123456789012345678</v></c>`, map[string]any{"name": "0.123456789012345678"}},
		"boolean as number":        {`<c r="C2"><v>1</v></c>`, map[string]any{"owner": true}},
		"boolean as text":          {`<c r="A2" t="b"><v>1</v></c>`, map[string]any{"name": "TRUE"}},
		"exponent":                 {`<c r="B2"><v>1.5E-7</v></c>`, map[string]any{"amount": json.Number("0.00000015")}},
		"exponent as text":         {`<c r="A2"><v>1E-3</v></c><c r="B2"><v>-1.25E+16</v></c>`, map[string]any{"name": "0.001", "amount": json.Number("-12500000000000000")}},
		"exponents without end":    {`<c r="A2"><v>1E-300</v></c><c r="B2"><v>1E+300</v></c>`, map[string]any{"name": "1E-300", "amount": json.Number("1E+300")}},
		"cells without references": {`<c t="inlineStr"><is><t>x</t></is></c><c><v>1</v></c>`, map[string]any{"name": "x", "amount": json.Number("1")}},
		"date of the format":       {`<c r="A2" t="d"><v>2020-01-05T00:00:00</v></c>`, map[string]any{"name": "2020-01-05"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			items, err := readAll("a.xlsx", bytes.NewReader(spreadsheet(t, header+`<row r="2">`+c.cells+`</row>`)))
			require.NoError(t, err)
			require.Equal(t, []Item{{FileName: "a.xlsx", Row: 2, Input: c.want}}, items)
		})
	}
}

// A date is read as one where the property has no type for it too, and as a
// number where it is a number.
func TestSheetReadsDates(t *testing.T) {
	t.Parallel()
	f := excelize.NewFile()
	for cell, value := range map[string]any{
		"A1": "name", "B1": "amount", "C1": "seen", "D1": "address.zip",
		"A2": time.Date(2020, 1, 5, 0, 0, 0, 0, time.UTC), "B2": 43835, "C2": 43835.75, "D2": 43835,
	} {
		require.NoError(t, f.SetCellValue("Sheet1", cell, value))
	}
	custom := `[$-409]d\ "of" mmmm\,\ yyyy`
	style, err := f.NewStyle(&excelize.Style{CustomNumFmt: &custom})
	require.NoError(t, err)
	require.NoError(t, f.SetCellStyle("Sheet1", "B2", "C2", style))
	money := `#,##0.00\ "dy";[Red]d`
	style, err = f.NewStyle(&excelize.Style{CustomNumFmt: &money})
	require.NoError(t, err)
	require.NoError(t, f.SetCellStyle("Sheet1", "D2", "D2", style))
	var file bytes.Buffer
	require.NoError(t, f.Write(&file))
	items, err := readAll("a.xlsx", &file)
	require.NoError(t, err)
	require.Equal(t, map[string]any{
		"name": "2020-01-05", "amount": json.Number("43835"), "seen": "2020-01-05T18:00:00Z", "address": map[string]any{"zip": "43835"},
	}, items[0].Input)
}

// Styles of the format's own have numbers and no code in the file; 31 is a date in
// Chinese, Japanese and Korean.
func TestSheetReadsDatesOfBuiltInStyles(t *testing.T) {
	t.Parallel()
	for style, want := range map[string]string{"10": "43835", "14": "2020-01-05", "31": "2020-01-05", "46": "43835", "58": "2020-01-05"} {
		f := excelize.NewFile()
		require.NoError(t, f.SetCellValue("Sheet1", "A1", "name"))
		require.NoError(t, f.SetCellValue("Sheet1", "A2", 43835))
		second, err := f.NewStyle(&excelize.Style{NumFmt: 1})
		require.NoError(t, err)
		require.NoError(t, f.SetCellStyle("Sheet1", "A2", "A2", second))
		file := repacked(t, f, "xl/styles.xml", `<styleSheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main">`+
			`<cellXfs count="2"><xf numFmtId="0"/><xf numFmtId="`+style+`"/></cellXfs></styleSheet>`)
		items, err := readAll("a.xlsx", bytes.NewReader(file))
		require.NoError(t, err)
		require.Equal(t, map[string]any{"name": want}, items[0].Input, style)
	}
}

func TestTimesOfSheets(t *testing.T) {
	t.Parallel()
	for cell, want := range map[string]string{
		"1": "1900-01-01T00:00:00Z", "59": "1900-02-28T00:00:00Z", "60.5": "", "61": "1900-03-01T00:00:00Z", "44000.5": "2020-06-18T12:00:00Z",
		"2958465.99999": "9999-12-31T23:59:59Z", "2958466": "", "-1": "", "x": "", "NaN": "",
	} {
		at, ok := timeOf(cell, false)
		require.Equal(t, want != "", ok, cell)
		if ok {
			require.Equal(t, want, at.Format(time.RFC3339))
		}
	}
	at, ok := timeOf("60", true)
	require.True(t, ok)
	require.Equal(t, "1904-03-01", at.Format(time.DateOnly))
}

// A cell without a value that could be taken fails its row alone.
func TestSheetTellsFaultsOfRows(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ cell, reason string }{
		"error":                    {`<c r="B2" t="e"><v>#REF!</v></c>`, "is an error of the spreadsheet, such as #REF! or #N/A"},
		"formula without a result": {`<c r="B2"><f>1+1</f></c>`, "is a formula whose result is not stored; save the file with a spreadsheet program"},
		"unknown text":             {`<c r="B2" t="s"><v>9</v></c>`, "is a text that the file does not hold"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := spreadsheet(t, sheetHeader+`<row r="2"><c r="A2" t="inlineStr"><is><t>x</t></is></c>`+c.cell+`</row><row r="3"><c r="B3"><v>1</v></c></row>`)
			items, err := readAll("a.xlsx", bytes.NewReader(file))
			require.NoError(t, err)
			require.Equal(t, []Item{
				{FileName: "a.xlsx", Row: 2, Input: map[string]any{"name": "x"}, Faults: []fault.Detail{{Field: "amount", Message: c.reason}}, IsBroken: true},
				{FileName: "a.xlsx", Row: 3, Input: map[string]any{"amount": json.Number("1")}},
			}, items)
			_, err = readAll("a.xlsx", bytes.NewReader(spreadsheet(t, strings.ReplaceAll(`<row r="2">`+c.cell+`</row>`, "B2", "A2"))))
			require.EqualError(t, err, "a.xlsx, row 2: column 1 "+c.reason)
		})
	}
}

// Of a sheet that breaks off nothing is lost silently.
func TestSheetRefusesFiles(t *testing.T) {
	t.Parallel()
	const first = `<row r="2"><c r="B2"><v>1</v></c></row>`
	const notSheet = "a.xlsx: this is not a spreadsheet of the format .xlsx, or it is broken or cut off"
	changed := func(part, content string) []byte { return repacked(t, excelize.NewFile(), part, content) }
	for name, c := range map[string]struct {
		file []byte
		want string
	}{
		"not closed":             {spreadsheet(t, sheetHeader+first+`<row r="3"><c r="B3">`), "a.xlsx, row 3: the sheet is broken from here on"},
		"ampersand":              {spreadsheet(t, sheetHeader+first+`<row r="3"><c r="A3" t="inlineStr"><is><t>AT&T</t></is></c></row>`), "a.xlsx, row 3: the sheet is broken from here on"},
		"entity":                 {spreadsheet(t, `<!DOCTYPE x [<!ENTITY y "z">]>`+sheetHeader+`<row r="2"><c r="A2" t="inlineStr"><is><t>&y;</t></is></c></row>`), "a.xlsx, row 2: the sheet is broken from here on"},
		"row beyond the last":    {spreadsheet(t, sheetHeader+`<row r="99999999999"><c r="B99999999999"><v>1</v></c></row>`), "a.xlsx, row 2: the sheet is broken from here on"},
		"rows out of order":      {spreadsheet(t, sheetHeader+first+first), "a.xlsx, row 3: the sheet is broken from here on"},
		"column beyond the last": {spreadsheet(t, sheetHeader+`<row r="2"><c r="ZZZZZZZZ2"><v>1</v></c></row>`), "a.xlsx, row 2: the sheet is broken from here on"},
		"cells out of order":     {spreadsheet(t, sheetHeader+`<row r="2"><c r="B2"><v>1</v></c><c r="A2"><v>1</v></c></row>`), "a.xlsx, row 2: the sheet is broken from here on"},
		"no sheet":               {changed("xl/_rels/workbook.xml.rels", `<Relationships/>`), "a.xlsx: the spreadsheet has no visible sheet"},
		"broken workbook":        {changed("xl/workbook.xml", `<workbook><sheets>`), notSheet},
		"broken styles":          {changed("xl/styles.xml", `<`), notSheet},
		"another ZIP":            {changed("_rels/.rels", `<Relationships><Relationship Id="a" Type="x/officeDocument" Target="word/document.xml"/></Relationships>`), notSheet},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := readAll("a.xlsx", bytes.NewReader(c.file))
			require.EqualError(t, err, c.want)
			var broken *Error
			require.ErrorAs(t, err, &broken)
		})
	}
}

// astray is a spreadsheet whose parts are said to begin at an offset that only a
// ZIP64 archive can name.
func astray(tb testing.TB, offset uint64) []byte {
	tb.Helper()
	const zip64, offsetAt = 1, 42 // of an entry of the central directory
	file := repacked(tb, excelize.NewFile(), "", "", binary.LittleEndian.AppendUint64([]byte{zip64, 0, 8, 0}, offset)...)
	for at := 0; ; {
		next := bytes.Index(file[at:], []byte("PK\x01\x02"))
		if next < 0 {
			return file
		}
		at += next + offsetAt
		copy(file[at:], "\xFF\xFF\xFF\xFF")
	}
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

// Whatever an archive says of itself is a fault of the file, not of the service.
func TestSheetRefusesAbsurdArchives(t *testing.T) {
	t.Parallel()
	for _, offset := range []uint64{math.MaxUint64, math.MaxInt64, 1 << 63, 1 << 40} {
		for name, file := range map[string][]byte{"a.xlsx": astray(t, offset), "a.xlsx.gz": gzipped(t, astray(t, offset))} {
			_, err := readAll(name, bytes.NewReader(file))
			require.EqualError(t, err, name+": this is not a spreadsheet of the format .xlsx, or it is broken or cut off")
			var broken *Error
			require.ErrorAs(t, err, &broken)
		}
	}
}

// requireClear says that a file was read, items in their order after row before,
// or refused for a reason that names it.
func requireClear(t *testing.T, items []Item, before int, err error) {
	t.Helper()
	var broken *Error
	if err != nil && (!errors.As(err, &broken) || broken.File == "" || broken.Reason == "") {
		t.Fatalf("a fault of the file is no clear one: %v", err)
	}
	for _, it := range items {
		if it.Row <= before {
			t.Fatalf("row %d follows row %d", it.Row, before)
		}
		before = it.Row
	}
}

func FuzzSheet(f *testing.F) {
	for _, seed := range []string{sheetHeader + `<row r="2"><c r="A2" s="1"><v>44000</v></c></row>`, `<row><c t="s"><v>0</v></c></row>`, `<row r="1"><c r="A1"><f>1</f></c>`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, rows string) {
		items, err := readAll("a.xlsx", bytes.NewReader(spreadsheet(t, rows)))
		requireClear(t, items, 1, err)
	})
}

// The other parts of a spreadsheet.
func FuzzWorkbook(f *testing.F) {
	parts := []string{"_rels/.rels", "xl/workbook.xml", "xl/_rels/workbook.xml.rels", "xl/styles.xml", "xl/sharedStrings.xml"}
	archive, err := zip.NewReader(bytes.NewReader(repacked(f, excelize.NewFile(), "", "")), int64(len(repacked(f, excelize.NewFile(), "", ""))))
	require.NoError(f, err)
	for i, name := range parts {
		if part, err := archive.Open(name); err == nil {
			text, err := io.ReadAll(part)
			require.NoError(f, err)
			f.Add(uint8(i), string(text))
		}
	}
	f.Fuzz(func(t *testing.T, part uint8, content string) {
		items, err := readAll("a.xlsx", bytes.NewReader(repacked(t, excelize.NewFile(), parts[int(part)%len(parts)], content)))
		requireClear(t, items, 1, err)
	})
}

// The archive itself.
func FuzzWorkbookArchive(f *testing.F) {
	f.Add(repacked(f, excelize.NewFile(), "", ""))
	f.Add(astray(f, 1<<63))
	f.Fuzz(func(t *testing.T, file []byte) {
		items, err := readAll("a.xlsx", bytes.NewReader(file))
		requireClear(t, items, 1, err)
	})
}
