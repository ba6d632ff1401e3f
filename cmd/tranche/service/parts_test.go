package service

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tranche/internal/pgtest"
	"tranche/internal/seal"
)

// Batches run on the one side and callers come to the other.
func TestBothSidesKnowTheCallers(t *testing.T) {
	t.Parallel()
	keys, err := seal.Parse(seal.Generate())
	require.NoError(t, err)
	s, err := New(t.Context(), Config{
		DatabaseURL: pgtest.ServiceURL(t, pgtest.URL(t)), Role: RoleAll, BaseURL: "http://127.0.0.1", Keys: keys,
		Clock: time.Now, Log: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Stop(context.Background())) })
	require.Same(t, s.parts.requests.executions.Callers, s.parts.background.executions.Callers)
}
