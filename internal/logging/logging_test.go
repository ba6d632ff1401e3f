package logging_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"tranche/internal/logging"
)

func TestLinesCarryWhatTheContextKnows(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log, flush := logging.New(&out, slog.LevelInfo)
	ctx := logging.With(t.Context(), logging.RequestID, "r-1")
	ctx = logging.With(ctx, logging.Tenant, "acme")
	inner := logging.With(ctx, logging.RequestID, "r-2")

	log.With("component", "api").InfoContext(ctx, "served", "status", 200)
	log.InfoContext(inner, "replaced")
	log.Info("without context")
	log.DebugContext(ctx, "below the level")
	quiet := logging.AtLeast(log, slog.LevelWarn).With("component", "river")
	quiet.InfoContext(ctx, "too much")
	quiet.WarnContext(ctx, "amiss")
	flush()

	var lines []map[string]any
	decoder := json.NewDecoder(&out)
	for decoder.More() {
		var line map[string]any
		require.NoError(t, decoder.Decode(&line))
		delete(line, "time")
		delete(line, "level")
		lines = append(lines, line)
	}
	require.Empty(t, cmp.Diff([]map[string]any{
		{"msg": "served", "component": "api", "status": 200.0, "requestId": "r-1", "tenant": "acme"},
		{"msg": "replaced", "requestId": "r-2", "tenant": "acme"},
		{"msg": "without context"},
		{"msg": "amiss", "component": "river", "requestId": "r-1", "tenant": "acme"},
	}, lines))
}

// lines is where lines go that are written beside the test.
type lines struct {
	mu      sync.Mutex
	writes  int
	written strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.writes++
	return l.written.Write(p)
}

func (l *lines) got() (writes, lines int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.writes, strings.Count(l.written.String(), "\n")
}

// Lines are written together, soon, in their order and each once; a warning at once
// with those before it.
func TestLinesAreGathered(t *testing.T) {
	t.Parallel()
	const many = 1000
	synctest.Test(t, func(t *testing.T) {
		out := &lines{}
		log, flush := logging.New(out, slog.LevelInfo)
		got := func(writes, lines int) {
			t.Helper()
			w, l := out.got()
			require.Equal(t, [2]int{writes, lines}, [2]int{w, l})
		}
		log.Info("first")
		log.Info("second")
		got(0, 0)
		time.Sleep(20 * time.Millisecond)
		synctest.Wait()
		got(1, 2)
		log.Info("third")
		log.With("part", "of the same").WithGroup("g").Warn("amiss")
		got(2, 4)
		time.Sleep(time.Second)
		synctest.Wait()
		got(2, 4)
		log.Info("last")
		flush()
		flush()
		got(3, 5)
		for n := range many {
			log.Info("of many", "n", n)
		}
		writes, n := out.got()
		require.InDelta(t, many+5, n, many/2, "what is too much is written before the time")
		require.Less(t, writes, many/100)
		flush()
		_, n = out.got()
		require.Equal(t, many+5, n)
		require.Regexp(t, `(?s)first.*second.*third.*amiss.*last.*"n":0}.*"n":500}.*"n":999}\n$`, out.written.String())
	})
}
