package api

import (
	"embed"
	"net/http"

	"github.com/swaggest/swgui/v5emb"
)

// docsPolicy lets the page of the documentation load what this service serves, and
// ask nobody else: no script in the page, of a description for instance, runs. The
// pictures of Swagger UI's stylesheet are within it.
const docsPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// docsFiles are the page, and what it has beside Swagger UI. The library's own page has
// its script and its style within, which the policy forbids.
//
//go:embed docs
var docsFiles embed.FS

// docsRoutes serves the page that shows the document.
func (s *Server) docsRoutes() {
	own, library := http.FileServerFS(docsFiles), v5emb.New("", documentPath, docsPath+"/")
	s.router.Get(docsPath, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, docsPath+"/", http.StatusMovedPermanently)
	})
	s.router.Get(docsPath+"/*", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", docsPolicy)
		asset := &assetWriter{ResponseWriter: w}
		switch r.URL.Path {
		case docsPath + "/", docsPath + "/page.css", docsPath + "/page.js":
			own.ServeHTTP(asset, r)
		default:
			library.ServeHTTP(asset, r)
		}
		if asset.missing {
			s.notFound(w, r)
		}
	})
}

// assetWriter holds back the page's own answer for an asset that it does not
// have, which has not the form of the contract.
type assetWriter struct {
	http.ResponseWriter
	missing bool
}

// WriteHeader sends every status but 404.
func (w *assetWriter) WriteHeader(status int) {
	if w.missing = status == http.StatusNotFound; !w.missing {
		w.ResponseWriter.WriteHeader(status)
	}
}

// Write sends what belongs to a status that was sent.
func (w *assetWriter) Write(data []byte) (int, error) {
	if w.missing {
		return len(data), nil
	}
	return w.ResponseWriter.Write(data)
}
