package batch_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"tranche/internal/apitest"
	"tranche/internal/identity"
)

// BenchmarkBatchWithEffects measures a batch with one call of 20 ms an item:
// go test -bench WithEffects -benchtime 10000x ./internal/batch.
func BenchmarkBatchWithEffects(b *testing.B) {
	if b.N < 1000 {
		return // the try that the testing package begins with
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(20 * time.Millisecond)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"score": 700.50}`))
	}))
	b.Cleanup(server.Close)
	s := apitest.Start(b)
	c := s.Tenant(b).As(b, identity.RoleAdmin)
	publish(b, c, `{"name": "Bureau", "alias": "bureau", "inputSchema": {"type": "object", "properties": {"borrowerId": {"type": "string"}}},
		"tasks": [{"id": "score", "type": "http-request", "config": {"method": "GET", "url": "`+server.URL+`/score"}}], "edges": []}`)
	var file strings.Builder
	file.WriteString("borrowerId\n")
	for i := range b.N {
		fmt.Fprintf(&file, "B-%d\n", i)
	}
	name := upload(b, c, "loans.csv", file.String())
	b.ResetTimer()
	timeStages(b, c, start(b, c, "bureau", map[string]any{"attachmentFileNames": []string{name}}))
}
