package logging_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"tranche/internal/logging"
)

func TestContextAttributes(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := logging.New(&out, slog.LevelInfo)
	ctx := logging.With(t.Context(), logging.RequestID, "r-1")
	ctx = logging.With(ctx, logging.Tenant, "acme")
	inner := logging.With(ctx, logging.RequestID, "r-2")

	log.With("component", "api").InfoContext(ctx, "served", "status", 200)
	log.InfoContext(inner, "replaced")
	log.Info("without context")
	log.DebugContext(ctx, "below the level")
	quiet := logging.AtLeast(log, slog.LevelWarn).With("component", "river")
	quiet.InfoContext(ctx, "below the level of AtLeast")
	quiet.WarnContext(ctx, "kept")

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
		{"msg": "kept", "component": "river", "requestId": "r-1", "tenant": "acme"},
	}, lines))
}
