package itemfile

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"strings"
)

// ColumnsMax is how many columns of a table are read; as many again may be ignored.
const ColumnsMax = 1000

// Further limits of a file.
const (
	rowBytesMax   = 1 << 20 // of one row
	tableBytesMax = 4 << 30 // unpacked
)

// Error says why a file can not be read, in words that are safe to show:
// loans.csv, row 17: a quote is not closed.
type Error struct {
	File   string
	Row    int // of the table, header = 1; 0 where it concerns the whole file
	Column string
	Reason string
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	if e.Row > 0 {
		fmt.Fprintf(&b, ", row %d", e.Row)
	}
	if e.Column != "" {
		fmt.Fprintf(&b, ", column %s", e.Column)
	}
	b.WriteString(": " + e.Reason)
	return b.String()
}

// rowError says why one row can not be read, while those after it can.
type rowError struct {
	column string // empty where it is not known
	reason string
}

func (e *rowError) Error() string { return e.reason }

var (
	errRowTooLong    = fmt.Errorf("the row is longer than %d bytes", rowBytesMax)
	errNoPlace       = errors.New("a file has no place before its beginning")
	errTableTooLarge = fmt.Errorf("the table is larger than %d bytes", int64(tableBytesMax))
)

// file is a file of items that is being read.
type file struct {
	name   string
	format format
	source *sourceReader
	raw    io.Reader // the bytes, unpacked
}

// openFile begins to read a file. Faults of the file are *Error.
func openFile(name string, source io.Reader) (*file, error) {
	format, isGzip, ok := formatOf(name)
	if !ok {
		return nil, &Error{File: name, Reason: "files of this type are not read; the name must end in " + extensions()}
	}
	f := &file{name: name, format: format, source: &sourceReader{source: source}}
	f.raw = f.source
	if isGzip {
		unpacked, err := gzip.NewReader(f.source)
		if err != nil {
			return nil, f.broken(err, 0)
		}
		f.raw = unpacked
	}
	return f, nil
}

// bounded is the text of the file as UTF-8, bounded in its rows and as a whole.
func (f *file) bounded() *boundedReader {
	return &boundedReader{source: decodeText(f.raw), rowLeft: rowBytesMax, tableLeft: tableBytesMax}
}

// whole is all of the bytes, to be read from any place: where the source can be,
// as it is, else from memory. Of more than sizeMax bytes it gives the size alone.
func (f *file) whole(sizeMax int64) (content io.ReaderAt, size int64, err error) {
	if seeker, ok := f.source.source.(io.Seeker); ok && f.raw == io.Reader(f.source) {
		size, err = seeker.Seek(0, io.SeekEnd)
		return &placeReader{source: f.source, seeker: seeker}, size, err
	}
	text, err := io.ReadAll(io.LimitReader(f.raw, sizeMax+1))
	return bytes.NewReader(text), int64(len(text)), err
}

// placeReader reads a source from any place, for one goroutine.
type placeReader struct {
	source *sourceReader
	seeker io.Seeker
}

// ReadAt implements io.ReaderAt. That there is no such place is the fault of
// whoever names it, not of the source.
func (r *placeReader) ReadAt(p []byte, offset int64) (int, error) {
	if offset < 0 {
		return 0, errNoPlace
	}
	if _, r.source.err = r.seeker.Seek(offset, io.SeekStart); r.source.err != nil {
		return 0, r.source.err
	}
	n, err := io.ReadFull(r.source, p)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = io.EOF
	}
	return n, err
}

// broken turns an error of the decoders into one that names the file, unless it
// is the storage's.
func (f *file) broken(err error, row int) error {
	if f.source.err != nil {
		return fmt.Errorf("read %s: %w", f.name, f.source.err)
	}
	e := &Error{File: f.name, Row: row, Reason: "the file is broken or cut off"}
	switch {
	case errors.Is(err, errRowTooLong), errors.Is(err, errTableTooLarge):
		e.Reason = err.Error()
	case errors.Is(err, gzip.ErrHeader):
		e.Reason = "this is not a gzip file"
	}
	return e
}

// sourceReader keeps an error of the storage apart from one of the file, and
// gives it again.
type sourceReader struct {
	source io.Reader
	err    error
}

func (s *sourceReader) Read(p []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	n, err := s.source.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

// boundedReader bounds the bytes of a row and of the table.
type boundedReader struct {
	source             io.Reader
	rowLeft, tableLeft int64
}

func (b *boundedReader) Read(p []byte) (int, error) {
	if b.rowLeft <= 0 {
		return 0, errRowTooLong
	}
	if b.tableLeft <= 0 {
		return 0, errTableTooLarge
	}
	n, err := b.source.Read(p[:min(int64(len(p)), b.rowLeft)])
	b.rowLeft -= int64(n)
	b.tableLeft -= int64(n)
	return n, err
}
