package httpapi

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"math"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"tranche/queries"
)

// totalMax is the largest total of a list that is counted (contract 1.10).
const totalMax = 10_000

// PageInput holds the parameters page and cursor of a list. An input embeds it and
// adds per-page with its own default.
type PageInput struct {
	Page   int    `query:"page" minimum:"1" maximum:"10000000" default:"1" doc:"The number of the page, starting at 1."`
	Cursor string `query:"cursor" maxLength:"64" doc:"**[ext]** Use it instead of page to read a long list without gaps or duplicates. Send an empty cursor for the first page, then the nextCursor of the previous response."`

	byCursor bool       // the request has the parameter cursor
	list     []byte     // hash of the list's path, which its cursors begin with
	after    *uuid.UUID // the last item of the previous page; nil for the first page
}

// Resolve decodes the cursor. It implements huma.Resolver.
func (p *PageInput) Resolve(ctx huma.Context) []error {
	address := ctx.URL()
	query := address.Query()
	p.byCursor = query.Has("cursor")
	if !p.byCursor {
		return nil
	}
	if query.Has("page") {
		return []error{&huma.ErrorDetail{Location: "query.cursor", Message: "cannot be combined with page"}}
	}
	path := sha256.Sum256([]byte(address.Path))
	p.list = path[:8]
	if p.Cursor == "" {
		return nil
	}
	text, err := base64.RawURLEncoding.Strict().DecodeString(p.Cursor)
	position, isOwn := bytes.CutPrefix(text, p.list)
	if err == nil && isOwn && len(position) == len(uuid.UUID{})+4 {
		p.after = (*uuid.UUID)(position)
		p.Page = int(binary.BigEndian.Uint32(position[len(p.after):]))
		if p.Page > 1 && p.Page <= math.MaxInt32 {
			return nil
		}
	}
	return []error{&huma.ErrorDetail{Location: "query.cursor", Message: "is not a cursor of this list; send the nextCursor of the previous response"}}
}

// HasCursor reports whether the request has the parameter cursor.
func (p *PageInput) HasCursor() bool { return p.byCursor }

// Window returns the rows to read: those of the page and one more, which shows
// whether another page follows.
func (p *PageInput) Window(perPage int) queries.Window {
	window := queries.Window{After: p.after, Limit: perPage + 1, CountMax: totalMax + 1}
	if !p.byCursor {
		window.Offset = (p.Page - 1) * perPage
	}
	return window
}

// Pagination describes the page of a list (contract A.2.12, 1.10).
type Pagination struct {
	Page        int         `json:"page" doc:"The number of the page, starting at 1." example:"1"`
	PerPage     int         `json:"perPage" doc:"The number of items on a page." example:"20"`
	Total       int         `json:"total" doc:"The number of items in the list, at most 10,000. See totalCapped." example:"1"`
	TotalPages  int         `json:"totalPages" doc:"The number of pages for this total." example:"1"`
	TotalCapped bool        `json:"totalCapped,omitempty" doc:"**[ext]** true if the list has more items than total."`
	NextCursor  *nextCursor `json:"nextCursor,omitempty" nullable:"true" doc:"**[ext]** The cursor of the next page, or null on the last page. Present only if the request has cursor."`
}

// nextCursor is a cursor; empty means null.
type nextCursor struct{ text string }

// MarshalJSON encodes the cursor.
func (c nextCursor) MarshalJSON() ([]byte, error) {
	if c.text == "" {
		return []byte("null"), nil
	}
	return json.Marshal(c.text)
}

// Schema returns the schema of a string or null. It implements huma.SchemaProvider.
func (nextCursor) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Nullable: true}
}

// Paginate returns the rows of a Window that belong to the page, and the description
// of the page. total is a count that stops at totalMax+1.
func Paginate[T any](p *PageInput, perPage int, rows []T, total int, id func(T) uuid.UUID) ([]T, Pagination) {
	page := Pagination{Page: p.Page, PerPage: perPage, Total: total}
	if total > totalMax {
		page.Total, page.TotalCapped = totalMax, true
	}
	page.TotalPages = (page.Total + perPage - 1) / perPage
	more := len(rows) > perPage
	if more {
		rows = rows[:perPage]
	}
	if p.byCursor {
		page.NextCursor = &nextCursor{}
		if more {
			page.NextCursor.text = p.cursorAfter(id(rows[perPage-1]))
		}
	}
	return rows, page
}

// cursorAfter returns the cursor of the next page: the list, the last item of this page
// and the number of the next page.
func (p *PageInput) cursorAfter(id uuid.UUID) string {
	position := binary.BigEndian.AppendUint32(id[:], uint32(p.Page+1))
	return base64.RawURLEncoding.EncodeToString(append(bytes.Clone(p.list), position...))
}
