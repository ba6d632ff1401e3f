package api

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

// totalMax is how far the total of a list is counted exactly (decisions 1.10).
const totalMax = 10_000

// PageInput is the part of a list's input that says which page; embed it and
// add per-page with the list's own default.
type PageInput struct {
	Page   int    `query:"page" minimum:"1" maximum:"10000000" default:"1" doc:"Which page, from 1."`
	Cursor string `query:"cursor" maxLength:"64" doc:"**[ext]** Walks the list steadily instead of page: empty to begin, then the nextCursor of the answer before."`

	walks bool       // cursor was given, be it empty
	list  []byte     // which list it is, as a cursor names it
	after *uuid.UUID // the last of the page before; nil on the first
}

// Resolve reads the cursor; huma.Resolver.
func (p *PageInput) Resolve(ctx huma.Context) []error {
	address := ctx.URL()
	query := address.Query()
	p.walks = query.Has("cursor")
	if !p.walks {
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
	return []error{&huma.ErrorDetail{Location: "query.cursor", Message: "is not a cursor of this list"}}
}

// window is the part of a list to read; one row more than the page holds, which
// tells whether another follows.
func (p *PageInput) window(perPage int) queries.Window {
	window := queries.Window{After: p.after, Limit: perPage + 1, CountMax: totalMax + 1}
	if !p.walks {
		window.Offset = (p.Page - 1) * perPage
	}
	return window
}

// Pagination says which part of a list an answer holds (section 2.12 of the
// interface specification, decisions 1.10).
type Pagination struct {
	Page        int         `json:"page" doc:"The page, from 1." example:"1"`
	PerPage     int         `json:"perPage" doc:"How many items a page has." example:"20"`
	Total       int         `json:"total" doc:"How many items there are; see totalCapped." example:"1"`
	TotalPages  int         `json:"totalPages" doc:"How many pages the total makes." example:"1"`
	TotalCapped bool        `json:"totalCapped,omitempty" doc:"**[ext]** There are more than total, which is counted no further than 10000."`
	NextCursor  *nextCursor `json:"nextCursor,omitempty" nullable:"true" doc:"**[ext]** The cursor of the next page, null on the last; only where cursor was given."`
}

// nextCursor is a cursor, or null where there is none.
type nextCursor struct{ text string }

// MarshalJSON writes the cursor.
func (c nextCursor) MarshalJSON() ([]byte, error) {
	if c.text == "" {
		return []byte("null"), nil
	}
	return json.Marshal(c.text)
}

// Schema says that it is text or null; huma.SchemaProvider.
func (nextCursor) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Nullable: true}
}

// paginate cuts the rows of a window to the page and describes it. total is a
// count that went no further than totalMax+1.
func paginate[T any](p *PageInput, perPage int, rows []T, total int, id func(T) uuid.UUID) ([]T, Pagination) {
	page := Pagination{Page: p.Page, PerPage: perPage, Total: total}
	if total > totalMax {
		page.Total, page.TotalCapped = totalMax, true
	}
	page.TotalPages = (page.Total + perPage - 1) / perPage
	more := len(rows) > perPage
	if more {
		rows = rows[:perPage]
	}
	if p.walks {
		page.NextCursor = &nextCursor{}
		if more {
			page.NextCursor.text = p.cursorAfter(id(rows[perPage-1]))
		}
	}
	return rows, page
}

// cursorAfter is the cursor of the page that follows an item: the list, the item
// and which page it is.
func (p *PageInput) cursorAfter(id uuid.UUID) string {
	position := binary.BigEndian.AppendUint32(id[:], uint32(p.Page+1))
	return base64.RawURLEncoding.EncodeToString(append(bytes.Clone(p.list), position...))
}
