package main_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tranche/internal/pgtest"
)

// Three replicas fire schedules while they are killed and replaced one after the other.
// Every time of every schedule fires once.
func TestKillReplicasDuringScheduleFiring(t *testing.T) {
	t.Parallel()
	const schedules, rounds = 400, 5
	url := pgtest.URL(t)
	env := onDatabase(url)
	var replicas [3]*running
	for i := range replicas {
		replicas[i] = env.serve(t)
	}
	pool := pgtest.OpenPool(t, url)
	tenant := pgtest.Tenant(t, pool).ID
	_, err := pool.Exec(t.Context(), `
		WITH alias AS (
			INSERT INTO workflow_aliases SELECT $1, 'w' || i, 1 FROM generate_series(1, $2::integer) i RETURNING tenant_id, alias
		), workflow AS (
			INSERT INTO workflows (id, tenant_id, alias, version, name, status, input_schema, tasks, edges)
			SELECT gen_random_uuid(), tenant_id, alias, 1, alias, 'active', '{"type":"object"}', '[{"id":"done","type":"end","config":{}}]', '[]'
			FROM alias RETURNING id, tenant_id
		)
		INSERT INTO schedules (tenant_id, workflow_id, slot, cron, utc_delta_hours, next_run_at, is_test, input)
		SELECT tenant_id, id, 'schedule', '0 0 1 1 *', 0, 'infinity', false, '{}' FROM workflow`, tenant, schedules)
	require.NoError(t, err)

	for round := range rounds {
		due := time.Date(2026, 1, 1, 0, round, 0, 0, time.UTC)
		_, err := pool.Exec(t.Context(), `UPDATE schedules SET next_run_at = $1`, due)
		require.NoError(t, err)
		victim := round % len(replicas)
		time.Sleep(rand.N(1100 * time.Millisecond)) // replicas look for due schedules about every second
		require.NoError(t, replicas[victim].cmd.Process.Kill())
		<-replicas[victim].ended
		require.Eventually(t, func() bool {
			var left int
			require.NoError(t, pool.QueryRow(t.Context(), `SELECT count(*) FROM schedules WHERE next_run_at = $1`, due).Scan(&left))
			return left == 0
		}, takeOverMax, 20*time.Millisecond)
		replicas[victim] = env.serve(t)
	}

	var firings, times, started, executions, foreign int
	require.NoError(t, pool.QueryRow(t.Context(), `
		SELECT count(*), count(DISTINCT scheduled_at), count(*) FILTER (WHERE status = 'started'), (SELECT count(*) FROM executions),
			(SELECT count(*) FROM executions e WHERE NOT EXISTS (SELECT FROM schedule_firings f WHERE f.execution_id = e.id))
		FROM schedule_firings`).Scan(&firings, &times, &started, &executions, &foreign))
	require.Equal(t, schedules*rounds, firings)
	require.Equal(t, rounds, times)
	require.Equal(t, started, executions)
	require.Zero(t, foreign)
	t.Logf("%d firings, %d of them skipped because the previous run had not ended", firings, firings-started)

	// The other replicas take over the executions of the killed ones.
	require.Eventually(t, func() bool {
		var ended int
		require.NoError(t, pool.QueryRow(t.Context(), `SELECT count(*) FROM executions WHERE status = 'completed' AND principal_id LIKE 'schedule:%'`).Scan(&ended))
		return ended == executions
	}, takeOverMax, 100*time.Millisecond)
	for _, replica := range replicas {
		replica.stop(t)
	}
}
