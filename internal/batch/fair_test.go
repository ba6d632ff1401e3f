package batch_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"tranche/internal/apitest"
	"tranche/internal/identity"
)

// Large batches of a tenant advance together. They delay neither a small batch nor single
// executions of another tenant.
func TestFairScheduling(t *testing.T) {
	t.Parallel()
	s := apitest.Start(t)
	large, small := s.Tenant(t).As(t, identity.RoleAdmin), s.Tenant(t).As(t, identity.RoleAdmin)
	publish(t, large, affordability)
	publish(t, small, affordability)
	const batches, items = 4, 8_000
	var file strings.Builder
	file.WriteString("borrowerId,income,debt\n")
	for i := range items {
		fmt.Fprintf(&file, "B-%d,1000.00,%d.10\n", i, i%9)
	}
	name := upload(t, large, "large.csv", file.String())
	// The lock makes the batches begin to be read at the same time.
	gate, err := s.Pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = gate.Rollback(t.Context()) }()
	_, err = gate.Exec(t.Context(), "LOCK TABLE attachment_chunks")
	require.NoError(t, err)
	ids := make([]string, batches)
	for i := range ids {
		ids[i] = start(t, large, "affordability", map[string]any{"attachmentFileNames": []string{name}})
	}
	require.Eventually(t, func() bool {
		var waiting int
		require.NoError(t, s.Pool.QueryRow(t.Context(), "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'attachment_chunks'::regclass").Scan(&waiting))
		return waiting == batches
	}, waitMax, tick)
	require.NoError(t, gate.Commit(t.Context()))
	one := map[string]any{"borrowerId": "B-1", "income": 10, "debt": 1}
	alone := follow(t, small, start(t, small, "affordability", map[string]any{"workflowInput": map[string]any{"items": []any{one, one, one}}}))
	require.Equal(t, 3, alone.State.Summary.Completed)
	small.Post(t, "/v1/workflows/affordability/v1/execute", one).Expect(http.StatusOK)
	executed := time.Now()

	var ends []time.Time
	for _, id := range ids {
		r := follow(t, large, id)
		require.Equal(t, [4]int{items, items, 0, 0}, counts(r))
		require.True(t, alone.UpdatedAt.Before(r.UpdatedAt), "the small batch ended at %s, after a large one at %s", alone.UpdatedAt, r.UpdatedAt)
		require.True(t, executed.Before(r.UpdatedAt), "the execution ended after a large batch")
		ends = append(ends, r.UpdatedAt)
	}
	for _, id := range ids {
		for _, end := range ends {
			var ended int
			require.NoError(t, s.Pool.QueryRow(t.Context(), "SELECT count(*) FROM executions WHERE batch_id = $1 AND completed_at <= $2", uuid.MustParse(id), end).Scan(&ended))
			require.Greater(t, ended, items/10, "one batch was written while another had hardly begun")
		}
	}
}

// A target that hangs delays no batch of another tenant.
func TestHangingTargetDelaysOnlyItsBatch(t *testing.T) {
	t.Parallel()
	s := apitest.Start(t)
	slow, quick := s.Tenant(t).As(t, identity.RoleAdmin), s.Tenant(t).As(t, identity.RoleAdmin)
	hanging, answering := newTarget(t), newTarget(t)
	publish(t, slow, hanging.chain("chain"))
	publish(t, quick, answering.chain("chain"))
	hanging.showLight(t, slow)
	hanging.gate = make(chan struct{})
	const items, most = 1000, 800
	id := start(t, slow, "chain", ids(many(items)...))
	require.Eventually(t, func() bool { return hanging.count() == most }, waitMax, tick)

	r := follow(t, quick, start(t, quick, "chain", ids(many(50)...)))
	require.Equal(t, [4]int{50, 50, 0, 0}, counts(r))
	require.Equal(t, most, hanging.count(), "a tenant by itself has so many places")
	close(hanging.gate)
	require.Equal(t, [4]int{items, items, 0, 0}, counts(follow(t, slow, id)))
}
