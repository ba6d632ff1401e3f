package xlsx

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/xuri/excelize/v2"
)

// spreadsheet returns a file with one sheet of these rows.
func spreadsheet(tb testing.TB, rows string) []byte {
	tb.Helper()
	return repacked(tb, excelize.NewFile(), "xl/worksheets/sheet1.xml",
		`<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetData>`+rows+`</sheetData></worksheet>`)
}

// repacked writes a spreadsheet and replaces the content of one of its parts. Extra
// are the extra fields of each part in the archive.
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

// astray returns a file whose archive names an offset for each part that only ZIP64
// can express.
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

// rowOf is a row that was read: its number and its cells, or its fault.
type rowOf struct {
	number int
	cells  []Cell
	fault  string
}

func readAll(file []byte) (rows []rowOf, err error) {
	s, err := Open(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	for {
		cells, err := s.Next()
		fault, isCell := errors.AsType[*CellError](err)
		switch {
		case errors.Is(err, io.EOF):
			return rows, nil
		case err != nil && !isCell:
			return rows, err
		case isCell:
			rows = append(rows, rowOf{number: s.Row(), fault: fault.Error()})
		default:
			rows = append(rows, rowOf{number: s.Row(), cells: append([]Cell{}, cells...)})
		}
	}
}

func TestCellsAreReadAsShown(t *testing.T) {
	t.Parallel()
	text := func(text string) Cell { return Cell{Text: text} }
	number := func(text string) Cell { return Cell{Text: text, Kind: Number} }
	for name, c := range map[string]struct {
		cells string
		want  []Cell
	}{
		"rich text":                {`<c r="A1" t="inlineStr"><is><r><t>bo</t></r><r><rPr><b/></rPr><t>ld</t></r><rPh sb="0" eb="1"><t>no</t></rPh></is></c>`, []Cell{text("bold")}},
		"escaped character":        {`<c r="A1" t="inlineStr"><is><t>a_x000D_b_x005F_</t></is></c>`, []Cell{text("a\rb_")}},
		"text of a formula":        {`<c r="A1" t="str"><f>"x"&amp;"y"</f><v>xy</v></c><c r="B1"><f>1+1</f><v>2</v></c>`, []Cell{text("xy"), number("2")}},
		"empty text of a formula":  {`<c r="A1" t="str"><f>""</f><v></v></c><c r="B1"><v>1</v></c>`, []Cell{text(""), number("1")}},
		"binary fraction":          {`<c r="A1"><v>0.28999999999999998</v></c>`, []Cell{number("0.29")}},
		"error in the 16th digit":  {`<c r="A1"><v>434.99999999999994</v></c>`, []Cell{number("435")}},
		"digits of a text":         {`<c r="A1"><v>0.123456789012345678</v></c>`, []Cell{number("0.123456789012345678")}},
		"trailing zeros":           {`<c r="A1"><v>1000.10</v></c>`, []Cell{number("1000.10")}},
		"boolean":                  {`<c r="A1" t="b"><v>1</v></c><c r="B1" t="b"><v>0</v></c>`, []Cell{text("TRUE"), text("FALSE")}},
		"exponents":                {`<c r="A1"><v>1.5E-7</v></c><c r="B1"><v>-1.25E+16</v></c>`, []Cell{number("0.00000015"), number("-12500000000000000")}},
		"exponents with no end":    {`<c r="A1"><v>1E-300</v></c><c r="B1"><v>1E+300</v></c>`, []Cell{number("1E-300"), number("1E+300")}},
		"cells without references": {`<c t="inlineStr"><is><t>x</t></is></c><c><v>1</v></c>`, []Cell{text("x"), number("1")}},
		"cells left out":           {`<c r="C1"><v>1</v></c>`, []Cell{{}, {}, number("1")}},
		"date of the format":       {`<c r="A1" t="d"><v>2020-01-05T00:00:00</v></c>`, []Cell{text("2020-01-05")}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rows, err := readAll(spreadsheet(t, `<row r="1">`+c.cells+`</row>`))
			require.NoError(t, err)
			require.Equal(t, []rowOf{{number: 1, cells: c.want}}, rows)
		})
	}
}

func TestRowsKeepTheirNumbers(t *testing.T) {
	t.Parallel()
	rows, err := readAll(spreadsheet(t, `<row><c><v>1</v></c></row><row r="4"><c r="A4" t="str"><v></v></c></row><row><c><v>2</v></c></row>`))
	require.NoError(t, err)
	require.Len(t, rows, 2)
	require.Equal(t, []int{1, 5}, []int{rows[0].number, rows[1].number})
}

// The styles of the format itself have numbers, and no code in the file. Number 31 is
// a date in Chinese, Japanese and Korean.
func TestDateStyles(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		formats, id string
		want        Kind
	}{
		"built in, number":          {"", "10", Number},
		"built in, date":            {"", "14", Date},
		"built in, East Asian date": {"", "31", Date},
		"built in, duration":        {"", "46", Number},
		"built in, last":            {"", "58", Date},
		"custom date":               {`[$-409]d\ &quot;of&quot; mmmm\,\ yyyy`, "200", Date},
		"custom money":              {`#,##0.00\ &quot;dy&quot;;[Red]d`, "200", Number},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := excelize.NewFile()
			require.NoError(t, f.SetCellValue("Sheet1", "A1", 43835))
			second, err := f.NewStyle(&excelize.Style{NumFmt: 1})
			require.NoError(t, err)
			require.NoError(t, f.SetCellStyle("Sheet1", "A1", "A1", second))
			rows, err := readAll(repacked(t, f, "xl/styles.xml", `<styleSheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main">`+
				`<numFmts count="1"><numFmt numFmtId="200" formatCode="`+c.formats+`"/></numFmts>`+
				`<cellXfs count="2"><xf numFmtId="0"/><xf numFmtId="`+c.id+`"/></cellXfs></styleSheet>`))
			require.NoError(t, err)
			require.Equal(t, []Cell{{Text: "43835", Kind: c.want}}, rows[0].cells)
		})
	}
}

func TestTimeOfDays(t *testing.T) {
	t.Parallel()
	for days, want := range map[string]string{
		"1": "1900-01-01T00:00:00Z", "59": "1900-02-28T00:00:00Z", "60.5": "", "61": "1900-03-01T00:00:00Z", "44000.5": "2020-06-18T12:00:00Z",
		"2958465.99999": "9999-12-31T23:59:59Z", "2958466": "", "-1": "", "x": "", "NaN": "",
	} {
		at, ok := timeOf(days, false)
		require.Equal(t, want != "", ok, days)
		if ok {
			require.Equal(t, want, at.Format(time.RFC3339))
		}
	}
	at, ok := timeOf("60", true)
	require.True(t, ok)
	require.Equal(t, "1904-03-01", at.Format(time.DateOnly))
}

func TestBadCellFailsItsRowAlone(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ cell, want string }{
		"error":                    {`<c r="B1" t="e"><v>#REF!</v></c>`, "is an error of the spreadsheet, such as #REF! or #N/A"},
		"formula without a result": {`<c r="B1"><f>1+1</f></c>`, "is a formula whose result is not stored; save the file with a spreadsheet program"},
		"unknown text":             {`<c r="B1" t="s"><v>9</v></c>`, "refers to a text that the file does not contain"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rows, err := readAll(spreadsheet(t, `<row r="1">`+c.cell+`</row><row r="2"><c r="A2"><v>1</v></c></row>`))
			require.NoError(t, err)
			require.Equal(t, []rowOf{{number: 1, fault: c.want}, {number: 2, cells: []Cell{{Text: "1", Kind: Number}}}}, rows)
		})
	}
}

func TestBrokenFilesAreRefused(t *testing.T) {
	t.Parallel()
	const first = `<row r="1"><c r="B1"><v>1</v></c></row>`
	changed := func(part, content string) []byte { return repacked(t, excelize.NewFile(), part, content) }
	for name, c := range map[string]struct {
		file []byte
		rows int
		want *FormatError // nil for an error of a decoder
	}{
		"sheet not closed":       {spreadsheet(t, first+`<row r="2"><c r="B2">`), 1, nil},
		"ampersand":              {spreadsheet(t, first+`<row r="2"><c r="A2" t="inlineStr"><is><t>AT&T</t></is></c></row>`), 1, nil},
		"entity":                 {spreadsheet(t, `<!DOCTYPE x [<!ENTITY y "z">]>`+first+`<row r="2"><c r="A2" t="inlineStr"><is><t>&y;</t></is></c></row>`), 1, nil},
		"no rows at all":         {changed("xl/worksheets/sheet1.xml", `<worksheet/>`), 0, nil},
		"row beyond the last":    {spreadsheet(t, first+`<row r="99999999999"><c r="B99999999999"><v>1</v></c></row>`), 1, ErrFormat},
		"rows out of order":      {spreadsheet(t, first+first), 1, ErrFormat},
		"column beyond the last": {spreadsheet(t, first+`<row r="2"><c r="ZZZZZZZZ2"><v>1</v></c></row>`), 1, ErrFormat},
		"cells out of order":     {spreadsheet(t, first+`<row r="2"><c r="B2"><v>1</v></c><c r="A2"><v>1</v></c></row>`), 1, ErrFormat},
		"no sheet":               {changed("xl/_rels/workbook.xml.rels", `<Relationships/>`), 0, errNoSheet},
		"broken workbook":        {changed("xl/workbook.xml", `<workbook><sheets>`), 0, nil},
		"broken styles":          {changed("xl/styles.xml", `<`), 0, nil},
		"another ZIP":            {changed("_rels/.rels", `<Relationships><Relationship Id="a" Type="x/officeDocument" Target="word/document.xml"/></Relationships>`), 0, ErrFormat},
		"empty":                  {nil, 0, errEmpty},
		"old format":             {[]byte("\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1"), 0, errProtected},
		"no archive":             {[]byte("name,amount\n"), 0, ErrFormat},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rows, err := readAll(c.file)
			require.Error(t, err)
			require.Len(t, rows, c.rows)
			if c.want != nil {
				require.ErrorIs(t, err, c.want)
			}
		})
	}
}

func TestAbsurdOffsetsAreRefused(t *testing.T) {
	t.Parallel()
	for _, offset := range []uint64{math.MaxUint64, math.MaxInt64, 1 << 63, 1 << 40} {
		_, err := readAll(astray(t, offset))
		require.Error(t, err)
	}
}

// An error of the content is returned as it is: the caller tells it from a broken file.
func TestErrorsOfTheContent(t *testing.T) {
	t.Parallel()
	away := errors.New("the database is away")
	_, err := Open(readerAt{iotest.ErrReader(away)}, 1000)
	require.ErrorIs(t, err, away)
}

type readerAt struct{ io.Reader }

func (r readerAt) ReadAt(p []byte, _ int64) (int, error) { return r.Read(p) }

// requireRising checks that rows have rising numbers.
func requireRising(t *testing.T, rows []rowOf) {
	t.Helper()
	before := 0
	for _, row := range rows {
		if row.number <= before {
			t.Fatalf("row %d follows row %d", row.number, before)
		}
		before = row.number
	}
}

func FuzzSheet(f *testing.F) {
	for _, seed := range []string{`<row r="1"><c r="A1" s="1"><v>44000</v></c></row>`, `<row><c t="s"><v>0</v></c></row>`, `<row r="1"><c r="A1"><f>1</f></c>`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, rows string) {
		read, _ := readAll(spreadsheet(t, rows))
		requireRising(t, read)
	})
}

// FuzzWorkbook changes the parts that are no sheet.
func FuzzWorkbook(f *testing.F) {
	parts := []string{"_rels/.rels", "xl/workbook.xml", "xl/_rels/workbook.xml.rels", "xl/styles.xml", "xl/sharedStrings.xml"}
	file := repacked(f, excelize.NewFile(), "", "")
	archive, err := zip.NewReader(bytes.NewReader(file), int64(len(file)))
	require.NoError(f, err)
	for i, name := range parts {
		if part, err := archive.Open(name); err == nil {
			text, err := io.ReadAll(part)
			require.NoError(f, err)
			f.Add(uint8(i), string(text))
		}
	}
	f.Fuzz(func(t *testing.T, part uint8, content string) {
		read, _ := readAll(repacked(t, excelize.NewFile(), parts[int(part)%len(parts)], content))
		requireRising(t, read)
	})
}

func FuzzArchive(f *testing.F) {
	f.Add(repacked(f, excelize.NewFile(), "", ""))
	f.Add(astray(f, 1<<63))
	f.Fuzz(func(t *testing.T, file []byte) {
		read, _ := readAll(file)
		requireRising(t, read)
	})
}
