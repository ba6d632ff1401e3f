package targettest

import (
	"io"
	"net"
	"net/http"
	"time"
)

// JSON answers 200 with a JSON body.
func JSON(body string) http.HandlerFunc { return StatusJSON(http.StatusOK, body) }

// StatusJSON answers a status with a JSON body.
func StatusJSON(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// Text answers a status with a text body.
func Text(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// Status answers a status with an empty body.
func Status(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
}

// After answers after a delay, as a slow service does. A test that waits for an event
// uses Target.Hold instead.
func After(delay time.Duration, answer http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		timer := time.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-timer.C:
			answer(w, r)
		case <-r.Context().Done():
		}
	}
}

// Never gives no answer until the caller closes the connection.
func Never() http.HandlerFunc {
	return func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
}

// Drip answers 200 and sends the body byte by byte, with a pause before each.
func Drip(pause time.Duration, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		flush(w)
		for i := range len(body) {
			select {
			case <-time.After(pause):
			case <-r.Context().Done():
				return
			}
			if _, err := io.WriteString(w, body[i:i+1]); err != nil {
				return
			}
			flush(w)
		}
	}
}

// Close closes the connection without an answer.
func Close() http.HandlerFunc {
	return func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
}

// CloseAfter answers 200, sends a part of the body and closes the connection before
// its end.
func CloseAfter(part string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, part)
		flush(w)
		panic(http.ErrAbortHandler)
	}
}

// Reset ends the connection with a TCP reset. It works with HTTP/1.1 without TLS.
func Reset() http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = conn.Close()
	}
}

func flush(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }
