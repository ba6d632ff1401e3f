package main_test

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"
)

// soakTarget is somebody who is asked and paid, and exact about who asked for what
// under which key. One request in forty gets no answer at first, or 503, after which a
// retry of its execution may come under another key.
type soakTarget struct {
	*httptest.Server
	mu       sync.Mutex
	about    map[string]string         // what was asked for under a key
	requests map[string]int            // how many came under a key
	answered map[string]map[string]int // how many were answered under each key, by what was asked for
}

func newSoakTarget(t *testing.T) *soakTarget {
	t.Helper()
	o := &soakTarget{about: map[string]string{}, requests: map[string]int{}, answered: map[string]map[string]int{}}
	o.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key, what := r.Header.Get("Idempotency-Key"), r.URL.RequestURI()
		if first := o.note(t, key, what); first {
			switch rand.IntN(40) {
			case 0:
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			case 1:
				if r.Method == http.MethodGet { // a POST without an answer is not repeated
					panic(http.ErrAbortHandler)
				}
			}
		}
		time.Sleep(rand.N(40 * time.Millisecond))
		o.count(key, what)
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"points": %d}`, points(r.URL.Query().Get("id")))
	}))
	t.Cleanup(o.Close)
	return o
}

// note holds a key to what it was first used for, and reports whether this is the
// first request under it.
func (o *soakTarget) note(t *testing.T, key, what string) (first bool) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	if before, ok := o.about[key]; ok && before != what {
		t.Errorf("key %s was for %s and is for %s", key, before, what)
	}
	o.about[key] = what
	o.requests[key]++
	return o.requests[key] == 1
}

// count counts an answer.
func (o *soakTarget) count(key, what string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.answered[what] == nil {
		o.answered[what] = map[string]int{}
	}
	o.answered[what][key]++
}

// check reports what was answered under several keys, and returns how much was asked
// for and how often in all.
func (o *soakTarget) check(t *testing.T) (asked, requests int) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	for what, keys := range o.answered {
		if len(keys) != 1 {
			t.Errorf("%s was answered under %d keys: %v", what, len(keys), keys)
		}
	}
	for _, n := range o.requests {
		requests += n
	}
	return len(o.answered), requests
}

// points is what the target answers about an id.
func points(id string) int64 {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(id))
	return int64(sum.Sum32() % 1000)
}
