package main_test

import (
	"hash/fnv"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"tranche/internal/targettest"
)

// soakTarget answers calls with points and records its answers. At the first call of a
// key, one call in forty gets 503 and one GET in forty no answer. Retries of such an
// execution may use another key.
type soakTarget struct {
	*targettest.Target
	mu       sync.Mutex
	answered map[string]map[string]int // number of answers by URI and key
}

func newSoakTarget(t *testing.T) *soakTarget {
	t.Helper()
	o := &soakTarget{answered: map[string]map[string]int{}}
	o.Target = targettest.New(t, targettest.WithAnswer(o.answer))
	return o
}

func (o *soakTarget) answer(w http.ResponseWriter, r *http.Request) {
	c := targettest.CallOf(r)
	if c.Attempt == 1 {
		switch rand.IntN(40) {
		case 0:
			targettest.Status(http.StatusServiceUnavailable)(w, r)
			return
		case 1:
			if c.Method == http.MethodGet { // a POST without an answer is not repeated
				targettest.Close()(w, r)
			}
		}
	}
	targettest.After(rand.N(40*time.Millisecond), func(w http.ResponseWriter, r *http.Request) {
		o.count(c)
		targettest.JSON(`{"points": `+strconv.FormatInt(points(c.Query.Get("id")), 10)+`}`)(w, r)
	})(w, r)
}

func (o *soakTarget) count(c targettest.Call) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.answered[c.URI] == nil {
		o.answered[c.URI] = map[string]int{}
	}
	o.answered[c.URI][c.Key]++
}

// check reports keys with several URIs and URIs that were answered with several keys. It
// returns the number of answered URIs and of all calls.
func (o *soakTarget) check(t *testing.T) (answered, calls int) {
	t.Helper()
	uris := map[string]string{}
	for _, c := range o.Calls() {
		if before, ok := uris[c.Key]; ok && before != c.URI {
			t.Errorf("key %s has the URIs %s and %s", c.Key, before, c.URI)
		}
		uris[c.Key] = c.URI
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for uri, keys := range o.answered {
		if len(keys) != 1 {
			t.Errorf("%s was answered with %d keys: %v", uri, len(keys), keys)
		}
	}
	return len(o.answered), o.Count()
}

// points returns the target's answer for an id.
func points(id string) int64 {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(id))
	return int64(sum.Sum32() % 1000)
}
