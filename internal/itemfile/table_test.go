package itemfile

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/csv"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/unicode"

	"tranche/internal/exactjson"
	"tranche/internal/fault"
)

var loanSchema = decodeObject(`{
	"type": "object",
	"properties": {
		"name": {"type": "string"},
		"amount": {"type": "number"},
		"months": {"type": ["integer", "null"]},
		"owner": {"type": "boolean"},
		"grade": {"enum": ["A", 1]},
		"tags": {"type": "array"},
		"address": {"$ref": "#/$defs/address"}
	},
	"$defs": {"address": {"type": "object", "properties": {"zip": {"type": "string"}, "floor": {"type": "integer"}}}}
}`)

func decodeObject(text string) map[string]any {
	value, err := exactjson.Decode([]byte(text))
	if err != nil {
		panic(err)
	}
	return value.(map[string]any)
}

// readAll reads a file whole.
func readAll(fileName string, source io.Reader) ([]Item, error) {
	r, err := Open(fileName, source, loanSchema)
	if err != nil {
		return nil, err
	}
	var items []Item
	for {
		it, err := r.Next()
		if errors.Is(err, io.EOF) {
			return items, nil
		}
		if err != nil {
			return items, err
		}
		it.Read()
		items = append(items, it)
	}
}

func TestTableReadsTypedItems(t *testing.T) {
	t.Parallel()
	text := "name,amount,months,owner,grade,tags,address.zip,address.floor,_error\n" +
		`"Zoë ""Z"" Lima",1000.10,36,TRUE,A,"[1.10,""x""]",01234,2,old` + "\n" +
		`,,,,1,,,,` + "\n"
	items, err := readAll("loans.csv", strings.NewReader(text))
	require.NoError(t, err)
	want := []Item{
		{FileName: "loans.csv", Row: 2, Input: map[string]any{
			"name": `Zoë "Z" Lima`, "amount": json.Number("1000.10"), "months": json.Number("36"), "owner": true, "grade": "A",
			"tags": []any{json.Number("1.10"), "x"}, "address": map[string]any{"zip": "01234", "floor": json.Number("2")},
		}},
		{FileName: "loans.csv", Row: 3, Input: map[string]any{"grade": json.Number("1")}},
	}
	require.Empty(t, cmp.Diff(want, items, cmp.AllowUnexported(Item{})))
}

func TestTableDetectsEncoding(t *testing.T) {
	t.Parallel()
	const text = "name;amount\nMüller €;1\n"
	long := "name;amount\n" + strings.Repeat("plain text;1\n", 20_000) + "Müller €;2\n"
	encode := func(e encoding.Encoding, s string) string {
		encoded, err := e.NewEncoder().String(s)
		require.NoError(t, err)
		return encoded
	}
	for name, file := range map[string]string{
		"UTF-8":                         text,
		"UTF-8 with BOM":                "\xEF\xBB\xBF" + text,
		"UTF-16 LE with BOM":            encode(unicode.UTF16(unicode.LittleEndian, unicode.UseBOM), text),
		"UTF-16 BE with BOM":            encode(unicode.UTF16(unicode.BigEndian, unicode.UseBOM), text),
		"UTF-16 LE":                     encode(unicode.UTF16(unicode.LittleEndian, unicode.IgnoreBOM), text),
		"UTF-16 BE":                     encode(unicode.UTF16(unicode.BigEndian, unicode.IgnoreBOM), text),
		"Windows-1252":                  encode(charmap.Windows1252, text),
		"UTF-8, told late":              long,
		"Windows-1252, told late":       encode(charmap.Windows1252, long),
		"a sequence on a sample's edge": "name;amount\nü" + strings.Repeat("é", sampleBytes) + ";1\nMüller €;1\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, source := range []io.Reader{strings.NewReader(file), iotest.HalfReader(strings.NewReader(file))} {
				items, err := readAll("loans.csv", source)
				require.NoError(t, err)
				require.Equal(t, "Müller €", items[len(items)-1].Input["name"])
				require.Empty(t, items[len(items)-1].Faults)
			}
		})
	}
}

// A sheet of one column that is formatted to its end is saved with a million lines
// without text; they are no items and no part of a row.
func TestTableOfOneColumnEndsInBlankLines(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"\n", "\r\n"} {
		blank := strings.Repeat(end, rowBytesMax)
		items, err := readAll("loans.csv", strings.NewReader("name"+end+"Müller"+end+end+"\"a"+end+"b\""+end+blank+"Zoë"+end+blank))
		require.NoError(t, err)
		require.Equal(t, []any{"Müller", "a" + end + "b", "Zoë"}, []any{items[0].Input["name"], items[1].Input["name"], items[2].Input["name"]})
		require.Equal(t, []int{2, 4, rowBytesMax + 5}, []int{items[0].Row, items[1].Row, items[2].Row})
	}
}

// One row in another encoding, as of files that were joined, spoils no other.
func TestTableTellsBrokenUTF8FromWindows1252(t *testing.T) {
	t.Parallel()
	items, err := readAll("loans.csv", strings.NewReader("name,amount\nMüller,1\nJos\xe9,2\nZoë,3\n"))
	require.NoError(t, err)
	require.Equal(t, []any{"Müller", "Jos\uFFFD", "Zoë"}, []any{items[0].Input["name"], items[1].Input["name"], items[2].Input["name"]})
	require.Equal(t, []fault.Detail{{Field: "name", Message: "must be valid text in the encoding of the file"}}, items[1].Faults)

	items, err = readAll("loans.csv", strings.NewReader("name,amount\nM\xfcller,1\nJos\xe9,2\n\xc3\xbcber,3\n"))
	require.NoError(t, err)
	require.Equal(t, []any{"Müller", "José"}, []any{items[0].Input["name"], items[1].Input["name"]})

	// The sample that tells may end within a letter.
	text := "é" + strings.Repeat("x", sampleBytes-3) + "é"
	items, err = readAll("loans.csv", strings.NewReader("name\n"+text+"\n"))
	require.NoError(t, err)
	require.Equal(t, text, items[0].Input["name"])
}

// Items are read after those that follow them, too.
func TestItemsKeepTheirCells(t *testing.T) {
	t.Parallel()
	r, err := Open("loans.csv", strings.NewReader("name,amount\na,1\nb,2\n"), loanSchema)
	require.NoError(t, err)
	first, err := r.Next()
	require.NoError(t, err)
	_, err = r.Next()
	require.NoError(t, err)
	first.Read()
	require.Equal(t, map[string]any{"name": "a", "amount": json.Number("1")}, first.Input)
}

// The bound of a row is that of each, not of all of them.
func TestRowLimitAppliesToEachObject(t *testing.T) {
	t.Parallel()
	row := `{"name":"` + strings.Repeat("x", rowBytesMax/3) + `"}`
	long := `{"name":"` + strings.Repeat("x", 2*rowBytesMax) + `"}`
	items, err := readAll("loans.json", strings.NewReader("["+strings.Repeat(row+",", 9)+"5]"))
	require.NoError(t, err)
	require.Len(t, items, 10)
	require.True(t, items[9].IsBroken)
	require.Equal(t, 10, items[9].Row)
	require.Equal(t, []fault.Detail{{Message: "must be a JSON object"}}, items[9].Faults)

	items, err = readAll("loans.jsonl", strings.NewReader(row+"\n\n"+long+"\n"+row+"\n[]\n"))
	require.NoError(t, err)
	require.Len(t, items, 4)
	for i, line := range []int{1, 3, 4, 5} {
		require.Equal(t, line, items[i].Row)
		require.Equal(t, line == 3 || line == 5, items[i].IsBroken)
	}
	require.Equal(t, []fault.Detail{{Message: errRowTooLong.Error()}}, items[1].Faults)
}

func TestTableDetectsDelimiter(t *testing.T) {
	t.Parallel()
	for name, file := range map[string]string{
		"comma":                "name,amount\nx;y|z,1.5\n",
		"semicolon":            "name;amount\n\"a, b\";1.5\nc, d;1.5\n",
		"decimal commas":       "name;note;amount\na;1,5;1.5\nb;2,5;1.5\n",
		"tab":                  "name\tamount\na,b;c\t1.5\n",
		"pipe":                 "name|amount\na,b;c|1.5\n",
		"quoted header":        "\"name, of person\";name;amount\n1;2;1.5\n",
		"carriage returns":     "name,amount\r\nx,1.5\r\n",
		"no newline at end":    "name,amount\nx,1.5",
		"more in the header":   "name;amount;a,b,c,d\nx;1.5;x\n",
		"blank lines in front": "\n\nname,amount\nx,1.5\n",
		"declared":             "sep=;\r\nname;a,b,c;amount\r\nx;1,2,3;1.5\r\n",
		"declared in quotes":   "\"sep=|\"\nname|amount\nx|1.5\n",
		"declared after a BOM": "\xEF\xBB\xBFSEP=,\nname,amount\nx,1.5\n",
		"declared, another":    "sep=^\nname^amount\nx;y^1.5\n",
		"ends in CR alone":     "name;amount\r\"x\ry\";2\rz;1.5\r",
		"CR, declared":         "sep=;\rname;amount\rx;1.5",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			items, err := readAll("loans.csv", strings.NewReader(file))
			require.NoError(t, err)
			require.Equal(t, json.Number("1.5"), items[len(items)-1].Input["amount"])
		})
	}
	items, err := readAll("one.csv", strings.NewReader("name\nx\n"))
	require.NoError(t, err)
	require.Equal(t, map[string]any{"name": "x"}, items[0].Input)
	items, err = readAll("loans.tsv", strings.NewReader("name,x\tamount\na\t1\n"))
	require.NoError(t, err)
	require.Equal(t, map[string]any{"name,x": "a", "amount": json.Number("1")}, items[0].Input)
	for _, header := range []string{"sep=", "sep=;;", "separator=;", `sep="`} { // names of columns
		items, err = readAll("sep.tsv", strings.NewReader(header+"\nx\n"))
		if header == `sep="` {
			require.EqualError(t, err, "sep.tsv, row 1: a quote is out of place or not closed")
			continue
		}
		require.NoError(t, err)
		require.Equal(t, map[string]any{header: "x"}, items[0].Input)
	}
}

// The line that declares the delimiter is no row, and a carriage return in a
// cell of a file whose lines end with them is a newline.
func TestTableReadsWhatExcelWrites(t *testing.T) {
	t.Parallel()
	items, err := readAll("a.csv", strings.NewReader("sep=;\rname;amount\r\"x\ry\";2\r\"a\"\"b\";1,5"))
	require.NoError(t, err)
	require.Equal(t, []Item{
		{FileName: "a.csv", Row: 2, Input: map[string]any{"name": "x\ny", "amount": json.Number("2")}},
		{FileName: "a.csv", Row: 3, Input: map[string]any{"name": `a"b`, "amount": "1,5"}, Faults: []fault.Detail{{Field: "amount", Message: "must be a number such as 1234.56"}}},
	}, items)
}

// A quoted cell keeps its bytes: a carriage return in it is part of the value.
func TestQuotedCellKeepsLineEnds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, delimiter string }{{"a.csv", ","}, {"a.csv", ";"}, {"a.tsv", "\t"}} {
		text := strings.ReplaceAll("name,amount\r\n\"one\r\n\r\ntwo\",1\r\n\"three\nfour\rfive\r\n\",2\r\n3,\"4\"\r\n", ",", c.delimiter)
		for name, file := range map[string][]byte{c.name: []byte(text), c.name + ".gz": gzipped(t, []byte(text))} {
			items, err := readAll(name, bytes.NewReader(file))
			require.NoError(t, err)
			require.Equal(t, []Item{
				{FileName: name, Row: 2, Input: map[string]any{"name": "one\r\n\r\ntwo", "amount": json.Number("1")}},
				{FileName: name, Row: 3, Input: map[string]any{"name": "three\nfour\rfive\r\n", "amount": json.Number("2")}},
				{FileName: name, Row: 4, Input: map[string]any{"name": "3", "amount": json.Number("4")}},
			}, items)
		}
	}
}

// A row with a quote out of place fails alone: those after it are read.
func TestMisplacedQuoteFailsItsRowAlone(t *testing.T) {
	t.Parallel()
	r, err := Open("a.csv", strings.NewReader("name,amount,months\na,1,1\n\nb,5\" pipe,2\n\"c\" d,1,3\ne,\"f\",4\n\"\"g,1,1\n"), loanSchema)
	require.NoError(t, err)
	require.NoError(t, r.Skip())
	const reason = "a quote is out of place or not closed"
	for _, want := range []Item{
		{Row: 4, Input: map[string]any{"name": "b"}, Faults: []fault.Detail{{Field: "amount", Message: reason}}, IsBroken: true},
		{Row: 5, Input: map[string]any{}, Faults: []fault.Detail{{Field: "name", Message: reason}}, IsBroken: true},
		{Row: 6, Input: map[string]any{"name": "e", "amount": "f", "months": json.Number("4")}, Faults: []fault.Detail{{Field: "amount", Message: "must be a number such as 1234.56"}}},
	} {
		want.FileName = "a.csv"
		got, err := r.Next()
		require.NoError(t, err)
		got.Read()
		require.Equal(t, want, got)
	}
	require.NoError(t, r.Skip(), "a broken row is skipped like any other")
	require.ErrorIs(t, r.Skip(), io.EOF)
}

func TestTableNumbersRows(t *testing.T) {
	t.Parallel()
	text := "name,amount\n" + // 1
		"\"two\nlines\",1\n" + // 2
		"\n\n" + // 3, 4
		"five,2\n" + // 5
		",\n" + // 6
		"seven,\"\n\"\n" + // 7
		"eight,3" // 8
	items, err := readAll("loans.csv", strings.NewReader(text))
	require.NoError(t, err)
	var rows []int
	for _, it := range items {
		rows = append(rows, it.Row)
	}
	require.Equal(t, []int{2, 5, 7, 8}, rows)
}

func TestTableTellsFaultsOfItems(t *testing.T) {
	t.Parallel()
	const header = "name,amount,months,owner,tags,address.floor\n"
	for name, c := range map[string]struct {
		row  string
		want fault.Detail
	}{
		"not a number":      {"x,1 000,1,true,[],1", fault.Detail{Field: "amount", Message: "must be a number such as 1234.56"}},
		"comma for a point": {`x,"1,5",1,true,[],1`, fault.Detail{Field: "amount", Message: "must be a number such as 1234.56"}},
		"leading zero":      {"x,007,1,true,[],1", fault.Detail{Field: "amount", Message: "must be a number such as 1234.56"}},
		"too many digits":   {"x," + strings.Repeat("9", 101) + ",1,true,[],1", fault.Detail{Field: "amount", Message: "has too many digits"}},
		"not a boolean":     {"x,1,1,yes,[],1", fault.Detail{Field: "owner", Message: "must be true or false"}},
		"not an array":      {"x,1,1,true,a,1", fault.Detail{Field: "tags", Message: "must be a JSON array"}},
		"object for array":  {"x,1,1,true,{},1", fault.Detail{Field: "tags", Message: "must be a JSON array"}},
		"nested":            {"x,1,1,true,[],first", fault.Detail{Field: "address.floor", Message: "must be a number such as 1234.56"}},
		"NUL":               {"x\x00y,1,1,true,[],1", fault.Detail{Field: "name", Message: "must not contain NUL characters"}},
		"broken UTF-8":      {"ééé\xff,1,1,true,[],1", fault.Detail{Field: "name", Message: "must be valid text in the encoding of the file"}},
		"too few cells":     {"x,1,1", fault.Detail{Message: "the row has 3 cells, but the header has 6"}},
		"too many cells":    {"x,1,1,true,[],1,more", fault.Detail{Message: "cell 7 has no column in the header"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			items, err := readAll("loans.csv", strings.NewReader(header+c.row+"\nlast,1,1,true,[],1\n"))
			require.NoError(t, err)
			require.Equal(t, []fault.Detail{c.want}, items[len(items)-2].Faults)
			require.Empty(t, items[len(items)-1].Faults)
		})
	}
	items, err := readAll("loans.csv", strings.NewReader("name,,\nx,,,,\n"))
	require.NoError(t, err)
	require.Empty(t, items[0].Faults, "empty cells beyond the header are no fault")
}

// A column may be within another's property as long as no row fills both: so
// failed.csv can be read whose items had an object in one place and none in another.
func TestTableReadsParentsBesideChildren(t *testing.T) {
	t.Parallel()
	items, err := readAll("a.csv", strings.NewReader("name,address,address.zip,address.floor\na,{},,\nb,,01234,2\nc,\"{\"\"zip\"\":\"\"1\"\"}\",,\nd,{},01234,\ne,,,\n"))
	require.NoError(t, err)
	within := fault.Detail{Field: "address.zip", Message: "is within address, which also has a value in this row"}
	for i, want := range []Item{
		{Input: map[string]any{"name": "a", "address": map[string]any{}}},
		{Input: map[string]any{"name": "b", "address": map[string]any{"zip": "01234", "floor": json.Number("2")}}},
		{Input: map[string]any{"name": "c", "address": map[string]any{"zip": "1"}}},
		{Input: map[string]any{"name": "d", "address": map[string]any{"zip": "01234"}}, Faults: []fault.Detail{within}},
		{Input: map[string]any{"name": "e"}},
	} {
		want.FileName, want.Row = "a.csv", i+2
		require.Equal(t, want, items[i])
	}
}

func TestTableRefusesFiles(t *testing.T) {
	t.Parallel()
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, err := w.Write([]byte("name,amount\n" + strings.Repeat("x,1\n", 50_000)))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	for name, c := range map[string]struct{ file, text, want string }{
		"empty":               {"a.csv", "", "a.csv: the file is empty; the first row must name the columns"},
		"only blank lines":    {"a.csv", "\n\n", "a.csv: the file is empty; the first row must name the columns"},
		"quote not closed":    {"a.csv", "name,amount\nx,1\n\ny,\"2\nz,3\n", "a.csv, row 4: a quote is out of place or not closed"},
		"quote in the header": {"a.csv", "name,am\"ount\nx,1\n", "a.csv, row 1: a quote is out of place or not closed"},
		"column twice":        {"a.csv", "name,amount,name\nx,1,y\n", "a.csv, row 1, column name: the name must be unique; it occurs twice"},
		"empty name part":     {"a.csv", "address..zip\nx\n", "a.csv, row 1, column address..zip: the name must not have an empty part between dots"},
		"too deep":            {"a.csv", strings.Repeat("a.", 70) + "b\nx\n", "a.csv, row 1, column " + strings.Repeat("a.", 70) + "b: the name must have fewer than 64 parts"},
		"no column is read":   {"a.csv", "_a,_b\nx,y\n", "a.csv, row 1: no column is read; name a column without a leading _"},
		"too many columns":    {"a.csv", strings.Repeat("a,", 1000) + "b\n", "a.csv, row 1: the table must have at most 1000 columns"},
		"row too long":        {"a.csv", "name\nx\n" + strings.Repeat("y", 2<<20), "a.csv, row 3: the row is longer than 1048576 bytes; is a quote not closed?"},
		"too many ignored":    {"a.csv", "name" + strings.Repeat(",_a", 1001) + "\n", "a.csv, row 1: the table must have at most 1000 columns"},
		"binary":              {"a.csv", "PK\x03\x04\x00\x00\x08", "a.csv, row 1: the file must be a table of text"},
		"not gzip":            {"a.csv.gz", "name,amount\nx,1\n", "a.csv.gz: this is not a gzip file"},
		"gzip cut off":        {"a.csv.gz", packed.String()[:packed.Len()-20], "a.csv.gz, row 48442: the file is broken or cut off"},
		"gzip changed":        {"a.csv.gz", packed.String()[:packed.Len()-8] + "\x00\x00\x00\x00" + packed.String()[packed.Len()-4:], "a.csv.gz, row 50002: the file is broken or cut off"},
		"gzip as csv":         {"a.csv", packed.String(), "a.csv, row 1: the file must be a table of text"},
		"another type":        {"a.pdf", "x", "a.pdf: the service does not read files of this type; the name must end in .csv, .csv.gz, .tsv, .tsv.gz, .json, .json.gz, .jsonl, .jsonl.gz, .ndjson, .ndjson.gz, .xlsx or .xlsx.gz"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := readAll(c.file, strings.NewReader(c.text))
			var broken *Error
			require.ErrorAs(t, err, &broken)
			require.Equal(t, c.want, err.Error())
		})
	}
	items, err := readAll("a.csv.gz", &packed)
	require.NoError(t, err)
	require.Len(t, items, 50_000)
}

// An error of the storage is no fault of the file: the job is to be repeated.
func TestTableReturnsErrorsOfTheSource(t *testing.T) {
	t.Parallel()
	away := errors.New("the database is away")
	for _, text := range []string{"", "name,amount\n", "name,amount\nx,1\n", "name,amount\n\"x"} {
		_, err := readAll("a.csv", io.MultiReader(strings.NewReader(text), iotest.ErrReader(away)))
		require.ErrorIs(t, err, away)
		var broken *Error
		require.NotErrorAs(t, err, &broken)
	}
}

// Files of objects: .json and .jsonl.
func FuzzObjects(f *testing.F) {
	for _, seed := range []string{
		`[{"name":"x","amount":1.10},{"name":"x","name":"y"},1]`, "{\"name\":\"x\"}\r\n\n{\"amount\":1e400}\n{", "\xFF\xFE[\x00]\x00", `[{"a":[[[]]]},]`, "[\n]", "\xEF\xBB\xBF{}", `[{"a":"\ud800"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		for _, name := range []string{"a.json", "a.jsonl"} {
			items, err := readAll(name, bytes.NewReader(content))
			requireClear(t, items, 0, err)
			for _, it := range items {
				text, err := exactjson.Encode(it.Input)
				require.NoError(t, err)
				_, err = exactjson.Decode(text)
				require.NoError(t, err, "an item that cannot be stored")
			}
		}
	})
}

// FuzzRows compares table with encoding/csv, which differs in one point: it replaces
// CR LF in a quoted cell by LF.
func FuzzRows(f *testing.F) {
	for _, seed := range []string{
		"a,b\r\n\"x\r\ny\",\"\"\"\"\r\n\r\n,\r\n", "\"a\"b,c\nd,e\"\n\"f", "\"a\n\" b\nc", "a\r\r\n\"b\r\r\n\"\r", "\"\"\n\"\",\"\"\r", "\"a\nb",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		file, err := openFile("a.csv", strings.NewReader(text))
		require.NoError(t, err)
		ours := &table{file: file, text: &boundedReader{source: file.raw, tableLeft: tableBytesMax}, delimiter: []byte(",")}
		ours.lines = bufio.NewReaderSize(ours.text, 16) // the least: most lines are longer
		theirs := csv.NewReader(strings.NewReader(text))
		theirs.FieldsPerRecord = -1
		for {
			got, gotErr := ours.read()
			want, wantErr := theirs.Read()
			if parse, ok := errors.AsType[*csv.ParseError](wantErr); ok {
				var broken *rowError
				require.Equal(t, parse.Line == parse.StartLine, errors.As(gotErr, &broken), "%v instead of %v", gotErr, wantErr)
			} else {
				require.Equal(t, wantErr, gotErr)
			}
			require.Len(t, got, len(want))
			for i := range got {
				require.Equal(t, want[i], strings.ReplaceAll(got[i], "\r\n", "\n"))
			}
			if parse, ok := errors.AsType[*csv.ParseError](wantErr); errors.Is(wantErr, io.EOF) || ok && parse.Line > parse.StartLine {
				return
			}
		}
	})
}

func FuzzCSV(f *testing.F) {
	for _, seed := range []string{
		"name,amount\nx,1\n", "\xEF\xBB\xBFname;amount\n\"a\nb\";1,5\n", "\xFF\xFEn\x00\n\x00x\x00", "a.b,a.c\n'=1,2\n",
		"name\tamount\r\n\r\nx\ty\r\n", "\"", "sep=;\rname;amount\r\"a\" b;1\rc;2\r", "a,a\n", "tags\n\"[1,{\"\"x\"\":2}]\"\n", "M\xfcller\n\xe9",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		items, err := readAll("a.csv", bytes.NewReader(file))
		requireClear(t, items, 1, err)
		for _, it := range items {
			text, err := exactjson.Encode(it.Input)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := exactjson.Decode(text); err != nil {
				t.Fatalf("an item that cannot be stored: %v", err)
			}
		}
		again, err2 := readAll("a.csv", iotest.OneByteReader(bytes.NewReader(file)))
		if diff := cmp.Diff(items, again, cmp.AllowUnexported(Item{})); diff != "" || (err == nil) != (err2 == nil) {
			t.Fatalf("reading in other pieces gives something else: %s", diff)
		}
	})
}
