package service

import (
	"context"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/riverqueue/river/rivertype"
	"github.com/stretchr/testify/require"
)

// threadsOf returns threads in whose bubble time passes as it is slept.
func threadsOf(t *testing.T, most int) *threads {
	t.Helper()
	before := runtime.GOMAXPROCS(0)
	made := newThreads(most)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
	synctest.Wait()
	return made
}

func requireThreads(t *testing.T, n int) {
	t.Helper()
	synctest.Wait()
	require.Equal(t, n, runtime.GOMAXPROCS(0))
}

func TestOneThreadWhileOneThingIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 7
		th := threadsOf(t, most)
		defer th.leave()
		requireThreads(t, most) // to start
		time.Sleep(aloneTime)
		requireThreads(t, 1)

		one := th.do(requestThings)
		requireThreads(t, 1)
		two := th.do(requestThings)
		requireThreads(t, most)
		two()
		time.Sleep(aloneTime - 1)
		requireThreads(t, most) // another may come yet
		time.Sleep(aloneTime)
		requireThreads(t, 1)
		one()

		for range 5 { // again and again, for short
			one, two := th.do(requestThings), th.do(requestThings)
			one()
			two()
			time.Sleep(aloneTime * 3 / 4)
			requireThreads(t, most)
		}
		time.Sleep(2 * aloneTime)
		requireThreads(t, 1)
	})
}

func TestAllThreadsForAsLongAsAJobRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 7
		th := threadsOf(t, most)
		defer th.leave()
		time.Sleep(2 * aloneTime)
		work, ok := th.middleware().(rivertype.WorkerMiddleware)
		require.True(t, ok)
		err := work.Work(t.Context(), nil, func(context.Context) error {
			for range 3 {
				time.Sleep(2 * aloneTime)
				requireThreads(t, most)
			}
			return nil
		})
		require.NoError(t, err)
		time.Sleep(2 * aloneTime)
		requireThreads(t, 1)
	})
}

func TestAllThreadsForRequestsBesideEachOtherAndLargeOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 7
		th := threadsOf(t, most)
		defer th.leave()
		time.Sleep(2 * aloneTime)
		var handler http.Handler
		handler = th.handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				requireThreads(t, 1)
				handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
				return
			}
			requireThreads(t, most)
		}))
		handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", nil))
		require.Zero(t, th.things.Load())

		time.Sleep(2 * aloneTime)
		requireThreads(t, 1)
		large := httptest.NewRequest(http.MethodPut, "/", strings.NewReader(strings.Repeat("x", largeBodyBytes+1)))
		handler.ServeHTTP(httptest.NewRecorder(), large) // alone
		time.Sleep(2 * aloneTime)
		unknown := httptest.NewRequest(http.MethodPut, "/", strings.NewReader("x"))
		unknown.ContentLength = -1
		handler.ServeHTTP(httptest.NewRecorder(), unknown)
		require.Zero(t, th.things.Load())
	})
}

func TestThreadsAreAsBeforeInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 7
		before := runtime.GOMAXPROCS(0)
		th := threadsOf(t, most)
		time.Sleep(2 * aloneTime)
		requireThreads(t, 1)
		th.leave()
		requireThreads(t, before)
	})
}
