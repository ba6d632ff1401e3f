package bureau

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"
)

const bodyBytesMax = 64 << 10

// answer is the stored answer to an Idempotency-Key.
type answer struct {
	request [sha256.Size]byte
	body    []byte
}

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/credit-reports", s.creditReport)
	mux.HandleFunc("GET /v1/fraud-scores/{borrower}", s.fraudScore)
	return mux
}

// creditReport answers with a report on a borrower. It requires an Idempotency-Key
// because a real bureau charges for each report.
func (s *Server) creditReport(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, bodyBytesMax))
	if err != nil {
		fail(w, http.StatusRequestEntityTooLarge, "the body is too large")
		return
	}
	var asked struct {
		BorrowerID string `json:"borrowerId"`
	}
	if json.Unmarshal(body, &asked) != nil || asked.BorrowerID == "" {
		fail(w, http.StatusBadRequest, "borrowerId is required")
		return
	}
	if r.Header.Get("Idempotency-Key") == "" {
		fail(w, http.StatusBadRequest, "an Idempotency-Key is required")
		return
	}
	s.respond(w, r, "credit", asked.BorrowerID, body)
}

func (s *Server) fraudScore(w http.ResponseWriter, r *http.Request) {
	s.respond(w, r, "fraud", r.PathValue("borrower"), []byte(r.URL.RequestURI()))
}

// respond writes the answer of a product on a borrower, after the delay for that
// borrower.
func (s *Server) respond(w http.ResponseWriter, r *http.Request, product, borrower string, request []byte) {
	if s.share("slow", product, borrower) < s.config.SlowShare {
		select {
		case <-time.After(s.config.SlowFor):
		case <-r.Context().Done():
			return
		}
	}
	status, body := s.decide(product, borrower, r.Header.Get("Idempotency-Key"), sha256.Sum256(request))
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

func (s *Server) decide(product, borrower, key string, request [sha256.Size]byte) (status int, body []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts.Calls++
	if given, ok := s.answers[key]; ok && key != "" {
		s.counts.Repeated++
		if given.request != request {
			return http.StatusUnprocessableEntity, problem("the Idempotency-Key was used for another request")
		}
		return http.StatusOK, given.body
	}
	luck := s.share("temper", product, borrower)
	if luck < s.config.DownShare {
		s.counts.Failed++
		return http.StatusInternalServerError, problem("the file cannot be read")
	}
	if subject := product + "/" + borrower; luck < s.config.DownShare+s.config.FlakyShare && !s.tried[subject] {
		s.tried[subject] = true
		s.counts.Failed++
		return http.StatusServiceUnavailable, problem("busy, try again")
	}
	body = s.result(product, borrower)
	if key != "" {
		s.answers[key] = answer{request: request, body: body}
	}
	return http.StatusOK, body
}

// result invents the answer of a product. Amounts have two decimal places and rates
// four, with trailing zeros, as in the answers of real bureaus.
func (s *Server) result(product, borrower string) []byte {
	r := rand.New(rand.NewPCG(s.config.Seed, s.hash("result", product, borrower))) // #nosec G404 -- fictitious answers that must repeat
	if product == "fraud" {
		risk := r.ExpFloat64() * 0.05
		level := "low"
		if risk > 0.25 {
			level = "high"
		} else if risk > 0.12 {
			level = "elevated"
		}
		return fmt.Appendf(nil, `{"level":%q,"risk":%.4f}`, level, math.Min(risk, 1))
	}
	score := min(850, max(300, int(r.NormFloat64()*65+695)))
	delinquencies := 0
	if score < 700 {
		delinquencies = r.IntN(4)
	}
	return fmt.Appendf(nil,
		`{"reportId":"CR-%012x","score":%d,"delinquencies":%d,"inquiries":%d,"utilisation":%.4f,"openBalance":%d.%02d,"monthlyObligations":%d.%02d}`,
		r.Uint64()>>16, score, delinquencies, r.IntN(7), r.Float64(), r.IntN(40_000), r.IntN(100), r.IntN(900), r.IntN(100))
}

// share returns a number from 0 to 1 that depends only on the seed and the names.
func (s *Server) share(names ...string) float64 {
	return float64(s.hash(names...)>>11) / (1 << 53)
}

func (s *Server) hash(names ...string) uint64 {
	var text bytes.Buffer
	fmt.Fprintf(&text, "%d/%s", s.config.Seed, strings.Join(names, "/"))
	sum := sha256.Sum256(text.Bytes())
	return binary.BigEndian.Uint64(sum[:8])
}

func fail(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(problem(message))
}

func problem(message string) []byte { return fmt.Appendf(nil, `{"error":%q}`, message) }
