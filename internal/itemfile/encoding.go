package itemfile

import (
	"bufio"
	"bytes"
	"io"
	"slices"
	"unicode/utf8"

	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/unicode"
)

// sampleBytes is the length of the sample for detecting the encoding and the delimiter.
const sampleBytes = 64 << 10

// decodeText returns the text of a file as UTF-8. The file can be UTF-8, UTF-16 or
// Windows-1252 (contract 6.2). In UTF-8, broken sequences remain as they are.
func decodeText(source io.Reader) io.Reader {
	r := bufio.NewReaderSize(source, sampleBytes)
	head, _ := r.Peek(sampleBytes) // Read returns an error again
	switch {
	case bytes.HasPrefix(head, []byte("\xEF\xBB\xBF")):
		_, _ = r.Discard(3) // it was peeked
		return r
	case bytes.HasPrefix(head, []byte("\xFF\xFE")), bytes.HasPrefix(head, []byte("\xFE\xFF")):
		return unicode.UTF16(unicode.LittleEndian, unicode.ExpectBOM).NewDecoder().Reader(r)
	}
	switch evenNULs, oddNULs := countNULs(head); {
	case oddNULs > len(head)/4 && evenNULs == 0:
		return unicode.UTF16(unicode.LittleEndian, unicode.IgnoreBOM).NewDecoder().Reader(r)
	case evenNULs > len(head)/4 && oddNULs == 0:
		return unicode.UTF16(unicode.BigEndian, unicode.IgnoreBOM).NewDecoder().Reader(r)
	}
	return &asciiUntil{source: r}
}

// countNULs counts zero bytes at even and odd positions. In UTF-16 without a byte order
// mark every other byte of ASCII text is zero.
func countNULs(head []byte) (even, odd int) {
	for i, b := range head {
		if b != 0 {
			continue
		}
		if i%2 == 0 {
			even++
		} else {
			odd++
		}
	}
	return even, odd
}

// asciiUntil returns ASCII as it is, because it is the same in UTF-8 and Windows-1252. At
// the first other byte, anywhere in the file, it decides between the two.
type asciiUntil struct {
	source  *bufio.Reader
	decided io.Reader
}

// Read implements io.Reader.
func (a *asciiUntil) Read(p []byte) (int, error) {
	if a.decided != nil {
		return a.decided.Read(p)
	}
	if _, err := a.source.Peek(1); err != nil {
		return 0, err
	}
	buffered, _ := a.source.Peek(min(len(p), a.source.Buffered())) // this many bytes are buffered
	n := slices.IndexFunc(buffered, func(b byte) bool { return b >= utf8.RuneSelf })
	if n == 0 {
		a.decide()
		return a.decided.Read(p)
	}
	if n < 0 {
		n = len(buffered)
	}
	return a.source.Read(p[:n])
}

func (a *asciiUntil) decide() {
	window, err := a.source.Peek(sampleBytes)
	if err == nil { // the window can end within a sequence
		window = trimPartialRune(window)
	}
	if isUTF8(window) {
		a.decided = a.source
		return
	}
	a.decided = charmap.Windows1252.NewDecoder().Reader(a.source)
}

// isUTF8 reports whether the text has more complete UTF-8 sequences than invalid bytes.
// In Windows-1252, letters beyond ASCII rarely form a UTF-8 sequence. In UTF-8, one broken
// byte affects only its row.
func isUTF8(text []byte) bool {
	whole, broken := 0, 0
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		switch {
		case r == utf8.RuneError && size == 1:
			broken++
		case size > 1:
			whole++
		}
		text = text[size:]
	}
	return whole > broken
}

// trimPartialRune removes an incomplete sequence at the end of the window.
func trimPartialRune(window []byte) []byte {
	for i := 1; i < utf8.UTFMax && i <= len(window); i++ {
		if tail := window[len(window)-i:]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) {
				return window[:len(window)-i]
			}
			break
		}
	}
	return window
}
