//go:build ignore

// Generate writes the files of items that a text editor cannot create: unusual encodings,
// spreadsheets and archives.
//
//	go generate ./testdata
package main

import (
	"archive/zip"
	"bytes"
	"compress/gzip"
	"io"
	"log"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/xuri/excelize/v2"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/unicode"
)

const rows = "id,name,amount\nA-1,Zoë,1.10\nA-2,Ömer,2000\n"

func main() {
	write("bom.csv", []byte("\xEF\xBB\xBF"+rows))
	write("cr.csv", []byte(strings.ReplaceAll(rows, "\n", "\r")))
	write("sep.csv", []byte("sep=;\r\nid;name;amount\r\nA-1;\"a, b; c\";1.10\r\nA-2;1,5;2000\r\n"))
	write("crlf.csv", []byte(strings.ReplaceAll(rows, "\n", "\r\n")))
	write("semicolon.csv", []byte("id;name;amount\nA-1;\"a, b; c\";1.10\nA-2;x,y;2000\n"))
	write("windows-1252.csv", must(charmap.Windows1252.NewEncoder().Bytes([]byte("id,name\nA-1,Zoë €\n"))))
	write("utf-16le.csv", must(unicode.UTF16(unicode.LittleEndian, unicode.UseBOM).NewEncoder().Bytes([]byte(rows))))
	write("utf-16be-without-bom.csv", must(unicode.UTF16(unicode.BigEndian, unicode.IgnoreBOM).NewEncoder().Bytes([]byte(rows))))
	write("utf-16le.jsonl", must(unicode.UTF16(unicode.LittleEndian, unicode.UseBOM).NewEncoder().Bytes([]byte("{\"id\":\"A-1\",\"name\":\"Zoë\"}\n"))))
	write("empty.csv", nil)
	write("empty.json", nil)
	write("empty.xlsx", nil)
	write("binary.csv", []byte("\x7fELF\x02\x01\x01\x00\x00\x00"))
	names, values := make([]string, 500), make([]string, 500)
	for i := range names {
		names[i], values[i] = "c"+strconv.Itoa(i), strconv.Itoa(i)
	}
	write("500-columns.csv", []byte(strings.Join(names, ",")+"\n"+strings.Join(values, ",")+"\n"))
	write("1001-columns.csv", []byte(strings.Repeat("x,", 1000)+"x\n"))
	packed := pack(rows)
	write("rows.csv.gz", packed)
	write("truncated.csv.gz", packed[:len(packed)-12])
	write("not-gzip.csv.gz", []byte(rows))
	write("lines.ndjson.gz", pack("{\"id\":\"A-1\"}\n{\"id\":\"A-2\"}\n"))
	write("array.json.gz", pack("[{\"id\":\"A-1\"}]"))
	writeSheets()
}

func writeSheets() {
	plain := sheet(func(f *excelize.File) {})
	write("plain.xlsx", plain)
	write("plain.xlsx.gz", pack(string(plain)))
	write("truncated.xlsx", plain[:len(plain)/2])
	write("text.xlsx", []byte(rows))
	write("dates.xlsx", sheet(func(f *excelize.File) {
		style := must(f.NewStyle(&excelize.Style{NumFmt: 14}))
		check(f.SetSheetRow("Sheet1", "A1", &[]any{"id", "born", "seen"}))
		check(f.SetSheetRow("Sheet1", "A2", &[]any{"A-1", time.Date(1980, 2, 29, 0, 0, 0, 0, time.UTC), time.Date(2026, 11, 21, 2, 9, 25, 0, time.UTC)}))
		check(f.SetCellStyle("Sheet1", "B2", "C2", style))
		check(f.SetSheetRow("Sheet1", "A3", &[]any{"A-2", "1980-02-29", "2026-11-21T02:09:25Z"}))
		check(f.SetSheetRow("Sheet1", "A4", &[]any{"A-3", "29.2.1980", ""}))
	}))
	write("formulas.xlsx", sheet(func(f *excelize.File) {
		check(f.SetCellFormula("Sheet1", "C2", "1+1"))  // no result is stored
		check(f.SetCellValue("Sheet1", "C3", 0.1+0.19)) // 0.29000000000000004
	}))
	write("merged.xlsx", sheet(func(f *excelize.File) { check(f.MergeCell("Sheet1", "B2", "B3")) }))
	write("hidden.xlsx", sheet(func(f *excelize.File) {
		must(f.NewSheet("Data"))
		check(f.SetSheetRow("Data", "A1", &[]any{"id", "active"}))
		check(f.SetSheetRow("Data", "A4", &[]any{"A-9", true}))
		f.SetActiveSheet(1)
		check(f.SetSheetVisible("Sheet1", false))
	}))
	write("no-rows.xlsx", sheet(func(f *excelize.File) { must(f.NewSheet("Data")); check(f.DeleteSheet("Sheet1")) }))
	locked := excelize.NewFile()
	check(locked.SetSheetRow("Sheet1", "A1", &[]any{"id"}))
	var buffer bytes.Buffer
	check(locked.Write(&buffer, excelize.Options{Password: "secret"}))
	write("encrypted.xlsx", buffer.Bytes())
	write("bomb.xlsx", bomb(plain))
}

// sheet is a spreadsheet of two rows, changed as the caller likes.
func sheet(change func(*excelize.File)) []byte {
	f := excelize.NewFile()
	check(f.SetSheetRow("Sheet1", "A1", &[]any{"id", "name", "amount", "active"}))
	check(f.SetSheetRow("Sheet1", "A2", &[]any{"A-1", "Zoë", 1234.5, true}))
	check(f.SetSheetRow("Sheet1", "A3", &[]any{"A-2", "Ömer", "12345678901234567890.10", false}))
	change(f)
	var buffer bytes.Buffer
	check(f.Write(&buffer))
	return buffer.Bytes()
}

// bomb is a spreadsheet that unpacks to 1.1 GB.
func bomb(plain []byte) []byte {
	var buffer bytes.Buffer
	w := zip.NewWriter(&buffer)
	for _, entry := range must(zip.NewReader(bytes.NewReader(plain), int64(len(plain)))).File {
		part := must(w.Create(entry.Name))
		content := must(entry.Open())
		must(io.Copy(part, content))
		if strings.HasSuffix(entry.Name, "sheet1.xml") {
			block := bytes.Repeat([]byte(" "), 1<<20)
			for range 1100 {
				must(part.Write(block))
			}
		}
	}
	check(w.Close())
	return buffer.Bytes()
}

func pack(text string) []byte {
	var buffer bytes.Buffer
	w := gzip.NewWriter(&buffer)
	must(io.WriteString(w, text))
	check(w.Close())
	return buffer.Bytes()
}

func write(name string, content []byte) { check(os.WriteFile("files/"+name, content, 0o644)) }

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
