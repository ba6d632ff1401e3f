package httpapi

import (
	"embed"
	"net/http"

	"github.com/swaggest/swgui/v5emb"
)

// docsPolicy lets the documentation page load files of this service only. Inline
// scripts do not run, for instance one in a description. Swagger UI's stylesheet has
// its images as data URLs.
const docsPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// docsFiles are the page and its own script and style. The page of the Swagger UI
// library has them inline, which docsPolicy forbids.
//
//go:embed docs
var docsFiles embed.FS

// serveDocs serves the page that shows the document at /docs and /docs/, and its files
// below /docs/.
func (s *Server) serveDocs() {
	own, library := http.FileServerFS(docsFiles), v5emb.New("", documentPath, docsPath+"/")
	serve := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", docsPolicy)
		asset := &assetWriter{ResponseWriter: w}
		switch r.URL.Path {
		case docsPath, docsPath + "/":
			http.ServeFileFS(asset, r, docsFiles, "docs/index.html")
		case docsPath + "/page.css", docsPath + "/page.js":
			own.ServeHTTP(asset, r)
		default:
			library.ServeHTTP(asset, r)
		}
		if asset.missing {
			s.notFound(w, r)
		}
	}
	s.router.Get(docsPath, serve)
	s.router.Get(docsPath+"/*", serve)
}

// assetWriter suppresses the 404 of a file server, which is not a problem.
type assetWriter struct {
	http.ResponseWriter
	missing bool
}

// WriteHeader sends every status except 404.
func (w *assetWriter) WriteHeader(status int) {
	if w.missing = status == http.StatusNotFound; !w.missing {
		w.ResponseWriter.WriteHeader(status)
	}
}

// Write sends the body of a status that was sent.
func (w *assetWriter) Write(data []byte) (int, error) {
	if w.missing {
		return len(data), nil
	}
	return w.ResponseWriter.Write(data)
}
