package consent

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	"codeberg.org/go-pdf/fpdf"
	"golang.org/x/image/font/gofont/gobold"
	"golang.org/x/image/font/gofont/gomono"
	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/sfnt"
)

// Sizes of the certificate, in millimetres and points.
const (
	pageMargin  = 18.0
	nameWidth   = 45.0
	lineHeight  = 5.2
	titleSize   = 18.0
	sectionSize = 12.0
	textSize    = 9.5
	hashSize    = 7.5
)

// WriteCertificate writes evidence as a PDF for people: the signer, the content, the
// steps of signing, and the hashes that prove them. The PDF contains only facts of the
// evidence; if they differ, the evidence counts. Characters that the font lacks are shown
// as numbers.
func WriteCertificate(w io.Writer, tenant string, e *Evidence) error {
	c, err := newCertificate()
	if err != nil {
		return err
	}
	a := e.Authorization
	c.title(a)
	c.section("Who")
	c.row("Signer", a.IdentityKey+" "+a.IdentityValue)
	c.row("Borrower", a.BorrowerID)
	c.row("Asked for by", tenant)
	c.section("What")
	c.row("Authorization", a.Label)
	c.row("Key", a.Key)
	c.row("Policy", a.PolicyLink)
	c.row("Form", a.FormID)
	c.row("External id", a.ExternalID)
	c.row("Holds until", readable(*a.ExpiresAt))
	c.row("Id", a.ID.String())
	c.section("When and how")
	for i := range e.Records {
		c.record(&e.Records[i])
	}
	c.section("The chain of evidence")
	c.text(fmt.Sprintf("Each record holds the SHA-256 of the one before it. The chain of %s has %d records and ends with", tenant, e.Head.Count))
	c.hash("", e.Head.Hash)
	if e.Intact {
		c.text("Every record of this certificate is what its hash and its commitment say.")
	} else {
		c.text("ATTENTION: a record of this certificate is NOT what its hash or its commitment says.")
	}
	return c.pdf.Output(w)
}

func readable(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.000 UTC") }

// certificate is a PDF that is being written.
type certificate struct {
	pdf    *fpdf.Fpdf
	font   *sfnt.Font // of the texts, to find characters that it lacks
	buffer sfnt.Buffer
}

func newCertificate() (*certificate, error) {
	font, err := sfnt.Parse(goregular.TTF)
	if err != nil {
		return nil, fmt.Errorf("read the font of certificates: %w", err)
	}
	pdf := fpdf.New("P", "mm", "A4", "")
	pdf.AddUTF8FontFromBytes("text", "", goregular.TTF)
	pdf.AddUTF8FontFromBytes("text", "B", gobold.TTF)
	pdf.AddUTF8FontFromBytes("mono", "", gomono.TTF)
	pdf.SetMargins(pageMargin, pageMargin, pageMargin)
	pdf.SetAutoPageBreak(true, pageMargin)
	pdf.AliasNbPages("")
	pdf.SetFooterFunc(func() {
		pdf.SetY(-pageMargin + 4)
		pdf.SetFont("text", "", hashSize)
		pdf.CellFormat(0, lineHeight, fmt.Sprintf("%d of {nb}", pdf.PageNo()), "", 0, "R", false, 0, "")
	})
	pdf.AddPage()
	return &certificate{pdf: pdf, font: font}, nil
}

func (c *certificate) title(a *Authorization) {
	c.pdf.SetTitle("Certificate of authorization "+a.ID.String(), true)
	c.pdf.SetCreator("Tranche", true)
	c.pdf.SetFont("text", "B", titleSize)
	c.pdf.MultiCell(0, 9, "Certificate of authorization", "", "L", false)
	status := "NOT SIGNED"
	if a.AuthorizedAt != nil {
		status = "Signed " + readable(*a.AuthorizedAt)
	}
	c.pdf.SetFont("text", "B", sectionSize)
	c.pdf.MultiCell(0, 7, status, "", "L", false)
}

func (c *certificate) section(name string) {
	c.pdf.Ln(3)
	c.pdf.SetFont("text", "B", sectionSize)
	c.pdf.MultiCell(0, 7, name, "B", "L", false)
	c.pdf.Ln(1)
}

// row prints a name and its value. It prints nothing if the value is empty.
func (c *certificate) row(name, text string) {
	if text == "" {
		return
	}
	c.pdf.SetFont("text", "", textSize)
	c.pdf.CellFormat(nameWidth, lineHeight, name, "", 0, "L", false, 0, "")
	c.pdf.MultiCell(0, lineHeight, c.written(text), "", "L", false)
}

func (c *certificate) text(text string) {
	c.pdf.SetFont("text", "", textSize)
	c.pdf.MultiCell(0, lineHeight, text, "", "L", false)
}

func (c *certificate) hash(name string, sum []byte) {
	c.pdf.SetFont("text", "", hashSize)
	if name != "" {
		c.pdf.CellFormat(nameWidth, lineHeight-1, name, "", 0, "L", false, 0, "")
	}
	c.pdf.SetFont("mono", "", hashSize)
	c.pdf.MultiCell(0, lineHeight-1, hex.EncodeToString(sum), "", "L", false)
}

// record prints a record: its content and its hashes.
func (c *certificate) record(r *Record) {
	c.pdf.SetFont("text", "B", textSize)
	c.pdf.MultiCell(0, lineHeight+1, fmt.Sprintf("%s   %s   record %d", readable(r.RecordedAt), strings.ReplaceAll(string(r.Kind), "_", " "), r.Position), "", "L", false)
	var content map[string]any
	if json.Unmarshal(r.Content, &content) == nil {
		for _, said := range flat("", content) {
			c.row("  "+said.name, said.text)
		}
	}
	c.hash("   commitment", r.Commitment)
	c.hash("   hash", r.Hash)
	c.pdf.Ln(1.5)
}

// flat lists the members of a content by dotted name. It omits the authorization, which
// other sections show.
func flat(path string, value any) []field {
	var found []field
	switch v := value.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if path == "" && name == "authorization" {
				continue
			}
			found = append(found, flat(strings.TrimPrefix(path+"."+name, "."), v[name])...)
		}
	case []any:
		for i, item := range v {
			found = append(found, flat(fmt.Sprintf("%s[%d]", path, i), item)...)
		}
	case nil:
	default:
		if text := fmt.Sprint(v); text != "" {
			found = append(found, field{path, text})
		}
	}
	return found
}

// written replaces characters that the font lacks by their number, such as \u{5C71}. With
// empty boxes, two names could look the same.
func (c *certificate) written(text string) string {
	var b strings.Builder
	for _, r := range text {
		if c.has(r) {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, `\u{%X}`, r)
		}
	}
	return b.String()
}

// has reports whether the font of the texts has a character. fpdf supports the basic
// plane only.
func (c *certificate) has(r rune) bool {
	if r > 0xFFFF || !unicode.IsGraphic(r) {
		return false
	}
	glyph, err := c.font.GlyphIndex(&c.buffer, r)
	return err == nil && glyph != 0
}
