package schedule_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"tranche/internal/pgtest"
	"tranche/internal/schedule"
	"tranche/queries"
)

// consistent fails the test unless every firing that started has one run with
// one job, and there are no others.
func (b *bundle) consistent(t *testing.T) {
	t.Helper()
	require.Equal(t, "t t t t", pgtest.Text(t, b.pool, `SELECT concat_ws(' ',
		(SELECT count(*) FROM executions) = (SELECT count(*) FROM schedule_firings WHERE status = 'started'),
		(SELECT count(*) FROM execution_payloads) = (SELECT count(*) FROM executions),
		(SELECT count(*) FROM river.river_job WHERE kind = 'schedule_firing') = (SELECT count(*) FROM executions),
		NOT EXISTS (SELECT FROM executions e WHERE NOT EXISTS (SELECT FROM schedule_firings f WHERE f.execution_id = e.id)
			OR NOT EXISTS (SELECT FROM river.river_job j WHERE j.args ->> 'execution_id' = e.id::text)))`))
}

// Three replicas fire together, and each is killed at any moment: every time of
// every schedule fires, and none twice.
func TestEveryTimeFiresOnceDespiteCrashes(t *testing.T) {
	t.Parallel()
	const minutes, workflows = 40, 12
	b := setup(t)
	replicas := []*schedule.Service{b.replica(t, b.clock.now), b.replica(t, b.clock.now), b.replica(t, b.clock.now)}
	for range workflows {
		b.configure(t, replicas[0], b.publish(t), single("* * * * *", `{"amount":1}`))
	}
	killed := 0
	for minute := range minutes {
		b.clock.set(noon.Add(time.Duration(minute+1)*time.Minute + time.Second))
		var group sync.WaitGroup
		errs := make([]error, len(replicas))
		for i, replica := range replicas {
			group.Go(func() {
				ctx, kill := context.WithTimeout(t.Context(), rand.N(50*time.Millisecond))
				defer kill()
				_, errs[i] = replica.Fire(ctx)
			})
		}
		group.Wait()
		for _, err := range errs {
			if err != nil {
				killed++
			}
		}
		require.Eventually(t, func() bool { // the survivor; what the killed held is let go by the server
			_, err := replicas[minute%3].Fire(t.Context())
			require.NoError(t, err)
			return pgtest.Text(t, b.pool, `SELECT count(*)::text FROM schedules WHERE next_run_at <= $1`, noon.Add(time.Duration(minute+1)*time.Minute+time.Second)) == "0"
		}, 10*time.Second, 5*time.Millisecond)
		b.end(t)
	}
	t.Logf("%d of %d firings were killed", killed, minutes*len(replicas))
	require.Positive(t, killed)
	require.Equal(t, minutes*workflows, pgtest.Count(t, b.pool, "schedule_firings", ""))
	require.Equal(t, fmt.Sprint(minutes), pgtest.Text(t, b.pool, `SELECT count(DISTINCT scheduled_at)::text FROM schedule_firings`))
	b.consistent(t)
}

// The clocks of three replicas jump, each by itself and up to an hour to either
// side: no time fires twice, and a run is started for each that is recorded.
func TestNoTimeFiresTwiceDespiteClockJumps(t *testing.T) {
	t.Parallel()
	const workflows = 12
	b := setup(t)
	s := b.replica(t, b.clock.now)
	var ids []uuid.UUID
	for range workflows {
		ids = append(ids, b.publish(t))
		b.configure(t, s, ids[len(ids)-1], single("*/3 * * * *", `{"amount":1}`))
	}
	jumping := func(ctx context.Context, db queries.DBTX) (time.Time, error) {
		now, err := b.clock.now(ctx, db)
		return now.Add(rand.N(2*time.Hour) - time.Hour), err
	}
	var group sync.WaitGroup
	for range 3 {
		replica := b.replica(t, jumping)
		group.Go(func() {
			for range 60 {
				if _, err := replica.Fire(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for minute := range 60 {
		b.clock.set(noon.Add(time.Duration(minute) * time.Minute))
		id := ids[minute%workflows]
		if minute%2 == 0 { // configured anew in between, which may take it back
			b.configure(t, s, id, single("*/3 * * * *", `{"amount":1}`))
		}
		b.end(t)
	}
	group.Wait()
	b.consistent(t)
	require.NotEqual(t, 0, pgtest.Count(t, b.pool, "schedule_firings", "status = 'started'"))
}

// Ten thousand schedules are due in the same second: three replicas fire each
// once.
func TestManySchedulesDueInTheSameSecond(t *testing.T) {
	t.Parallel()
	const schedules = 10_000
	b := setup(t)
	pgtest.Exec(t, b.pool, `
		WITH alias AS (
			INSERT INTO workflow_aliases SELECT $1, 'w' || i, 1 FROM generate_series(1, $2::integer) i RETURNING tenant_id, alias
		), workflow AS (
			INSERT INTO workflows (id, tenant_id, alias, version, name, status, input_schema, tasks, edges)
			SELECT gen_random_uuid(), tenant_id, alias, 1, alias, 'active', '{}', '[{"id":"done","type":"end"}]', '[]' FROM alias RETURNING id, tenant_id
		)
		INSERT INTO schedules (tenant_id, workflow_id, slot, cron, utc_delta_hours, next_run_at, is_test, input)
		SELECT tenant_id, id, 'schedule', '0 * * * *', 0, $3, false, '{"amount":1.10}' FROM workflow`, b.tenant, schedules, noon)
	pgtest.Exec(t, b.pool, `ANALYZE workflows, schedules`)
	began := time.Now()
	var group sync.WaitGroup
	for range 3 {
		replica := b.replica(t, b.clock.now)
		group.Go(func() {
			for held := 1; held > 0; {
				var err error
				if held, err = replica.Fire(t.Context()); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	t.Logf("%d schedules fired in %v", schedules, time.Since(began))
	require.Equal(t, fmt.Sprint(schedules), pgtest.Text(t, b.pool, `SELECT count(DISTINCT workflow_id)::text FROM schedule_firings WHERE status = 'started'`))
	require.Equal(t, fmt.Sprint(schedules), pgtest.Text(t, b.pool, `SELECT count(DISTINCT workflow_id)::text FROM executions`))
	require.Equal(t, schedules, pgtest.Count(t, b.pool, "schedules", "next_run_at = $1", noon.Add(time.Hour)))
	b.consistent(t)
}
