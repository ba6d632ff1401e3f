package itemfile

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"strings"
)

// ColumnsMax is the most columns of a table that are read. As many again may be ignored.
const ColumnsMax = 1000

// Further limits of a file.
const (
	rowBytesMax   = 1 << 20 // of one row
	tableBytesMax = 4 << 30 // of the unpacked table
)

// Error says why a file cannot be read. Its text is safe to show, such as "loans.csv, row
// 17: a quote is out of place or not closed".
type Error struct {
	File   string
	Row    int // of the table (header = 1); 0 means the whole file
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

// rowError says why one row cannot be read. The rows after it can be read.
type rowError struct {
	column string // empty if it is not known
	reason string
}

func (e *rowError) Error() string { return e.reason }

var (
	errRowTooLong    = fmt.Errorf("the row is longer than %d bytes", rowBytesMax)
	errOffset        = errors.New("a negative offset")
	errTableTooLarge = fmt.Errorf("the table is larger than %d bytes", int64(tableBytesMax))
)

// file is a file of items that is being read.
type file struct {
	name   string
	format format
	source *sourceReader
	raw    io.Reader // the bytes, unpacked
}

// openFile opens a file and unpacks it. Faults of the file are *Error.
func openFile(name string, source io.Reader) (*file, error) {
	format, isGzip, ok := formatOf(name)
	if !ok {
		return nil, &Error{File: name, Reason: "the service does not read files of this type; the name must end in " + extensions()}
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

// bounded returns the text of the file as UTF-8, with limits for each row and the whole.
func (f *file) bounded() *boundedReader {
	return &boundedReader{source: decodeText(f.raw), rowLeft: rowBytesMax, tableLeft: tableBytesMax}
}

// whole returns the file for reading at any offset. It reads a seekable source in place
// and any other source into memory. If the file has more than sizeMax bytes, only the size
// is useful.
func (f *file) whole(sizeMax int64) (content io.ReaderAt, size int64, err error) {
	if seeker, ok := f.source.source.(io.Seeker); ok && f.raw == io.Reader(f.source) {
		size, err = seeker.Seek(0, io.SeekEnd)
		return &seekReader{source: f.source, seeker: seeker}, size, err
	}
	text, err := io.ReadAll(io.LimitReader(f.raw, sizeMax+1))
	return bytes.NewReader(text), int64(len(text)), err
}

// seekReader reads a source at any offset, for one goroutine.
type seekReader struct {
	source *sourceReader
	seeker io.Seeker
}

// ReadAt implements io.ReaderAt. A negative offset comes from a broken archive; it is no
// error of the source.
func (r *seekReader) ReadAt(p []byte, offset int64) (int, error) {
	if offset < 0 {
		return 0, errOffset
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

// broken converts an error of a decoder into an *Error. It returns an error of the source
// as it is.
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

// sourceReader remembers an error of the source, to distinguish it from a fault of the
// file. It returns the error again on later reads.
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

// boundedReader limits the bytes of a row and of the table.
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
