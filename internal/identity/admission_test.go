package identity_test

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tranche/internal/fault"
	"tranche/internal/identity"
	"tranche/internal/pgtest"
	"tranche/queries"
)

func (b *bundle) setLimits(t *testing.T, limits ...identity.Limit) {
	t.Helper()
	require.NoError(t, pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
		return identity.SetLimits(t.Context(), tx, b.tenant.ID, limits)
	}))
}

func (b *bundle) principal() identity.Principal {
	return identity.Principal{TenantID: b.tenant.ID, TenantSlug: "acme", ClientID: b.credentials.ClientID}
}

// age moves into the past what has been counted for a subject, or, without one,
// for all.
func age(tb require.TestingT, pool *pgxpool.Pool, by time.Duration, subject ...uuid.UUID) {
	for _, statement := range []string{
		`UPDATE rate_limit_hits SET at = at - make_interval(secs => $1)`,
		`UPDATE rate_limits SET last_at = last_at - make_interval(secs => $1)`,
	} {
		_, err := pool.Exec(context.Background(), statement+` WHERE $2::uuid[] IS NULL OR subject = ANY ($2)`, by.Seconds(), subject)
		require.NoError(tb, err)
	}
}

// Three replicas are asked at once, many times as often as the limit allows:
// each category of the tenant lets through just its limit.
func TestAdmitIsExactOverReplicas(t *testing.T) {
	t.Parallel()
	b := setup(t)
	replicas := []*identity.Service{b.service, b.replica(t), b.replica(t)}
	for _, limit := range identity.DefaultLimits() {
		var mu sync.Mutex
		var admitted []int // what was left after each
		refused := 0
		var wait sync.WaitGroup
		for i := range 24 {
			wait.Go(func() {
				for range limit.PerMinute/8 + 1 {
					allowance, err := replicas[i%3].Admit(t.Context(), b.principal(), limit.Category)
					mu.Lock()
					if err == nil {
						admitted = append(admitted, allowance.Remaining)
					} else if fault.From(err).Kind == fault.RateLimited && allowance.Remaining == 0 {
						refused++
					}
					mu.Unlock()
				}
			})
		}
		wait.Wait()
		require.Len(t, admitted, limit.PerMinute, limit.Category)
		require.Equal(t, 24*(limit.PerMinute/8+1)-limit.PerMinute, refused, limit.Category)
		slices.Sort(admitted)
		for i, remaining := range admitted {
			require.Equal(t, i, remaining, "every admission leaves one less")
		}
	}
	stranger := b.principal()
	stranger.TenantID = pgtest.Tenant(t, b.pool).ID
	_, err := b.service.Admit(t.Context(), stranger, identity.LimitSingle)
	require.NoError(t, err, "another tenant has limits of its own")
}

// Bursts of any size come to three replicas after pauses of any length: no
// 60 s, wherever they begin, have more admissions of a category than its limit,
// and as soon as 60 s are quiet all of it is there again.
func TestAdmitInAnyWindowOverReplicas(t *testing.T) {
	t.Parallel()
	b := setup(t)
	replicas := []*identity.Service{b.service, b.replica(t), b.replica(t)}
	for _, limit := range identity.DefaultLimits() {
		t.Run(string(limit.Category), func(t *testing.T) {
			random := rand.New(rand.NewPCG(8, uint64(limit.PerMinute)))
			begun, passed := time.Now(), time.Duration(0)
			var mu sync.Mutex
			var admitted []admission
			burst := func(size int) (count int) {
				var wait sync.WaitGroup
				for i := range replicas {
					wait.Go(func() {
						for range size / len(replicas) {
							asked := time.Since(begun) + passed
							_, err := replicas[i].Admit(t.Context(), b.principal(), limit.Category)
							mu.Lock()
							if err == nil {
								admitted = append(admitted, admission{asked, time.Since(begun) + passed})
								count++
							}
							mu.Unlock()
						}
					})
				}
				wait.Wait()
				return count
			}
			for range 8 {
				burst(random.IntN(limit.PerMinute) + len(replicas))
				pause := time.Duration(random.IntN(45_000)) * time.Millisecond
				age(t, b.pool, pause, b.tenant.ID)
				passed += pause
			}
			age(t, b.pool, time.Minute, b.tenant.ID)
			passed += time.Minute
			require.Equal(t, limit.PerMinute, burst(2*limit.PerMinute+len(replicas)))

			slices.SortFunc(admitted, func(a, b admission) int { return cmp.Compare(a.answered, b.answered) })
			require.Greater(t, len(admitted), 2*limit.PerMinute)
			for i := range len(admitted) - limit.PerMinute {
				tooMany := admitted[i : i+limit.PerMinute+1]
				first := slices.MinFunc(tooMany, func(a, b admission) int { return cmp.Compare(a.asked, b.asked) })
				require.GreaterOrEqual(t, tooMany[limit.PerMinute].answered-first.asked, time.Minute, "from the %d. on", i+1)
			}
		})
	}
}

// admission is when somebody was let in: between the two.
type admission struct{ asked, answered time.Duration }

// However requests, waits and changes of the limit follow one another: no
// window of 60 s has more admissions than the limit in force, none is refused
// while there is room, and Retry-After is the least wait that succeeds.
func TestAdmitInAnyWindow(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	rapid.Check(t, func(r *rapid.T) {
		subject := uuid.New()
		limit := rapid.Int32Range(1, 8).Draw(r, "limit")
		var clock time.Duration // the test's own
		var hits []time.Duration
		take := func() queries.SysRateLimitAcquireRow {
			row, err := queries.New().SysRateLimitAcquire(context.Background(), pool, queries.SysRateLimitAcquireParams{
				Subject: subject, Category: "single", PerMinute: limit, Taking: true,
			})
			require.NoError(r, err)
			return row
		}
		wait := func(d time.Duration) {
			clock += d
			age(r, pool, d, subject)
		}
		// The database's clock goes on while the test works: ages are known but
		// for a second.
		within := func(span time.Duration) (n int) {
			for _, at := range hits {
				if clock-at <= span {
					n++
				}
			}
			return n
		}
		r.Repeat(map[string]func(*rapid.T){
			"take": func(r *rapid.T) {
				used, perhaps := within(59*time.Second), within(time.Minute)
				row := take()
				if used >= int(limit) {
					require.False(r, row.Admitted, "%d of %d are used", used, limit)
				}
				if perhaps < int(limit) {
					require.True(r, row.Admitted, "%d of %d are used", perhaps, limit)
				}
				if !row.Admitted {
					require.Positive(r, row.FreeInMs)
					require.LessOrEqual(r, row.FreeInMs, int32(60_000))
					wait(time.Duration(row.FreeInMs) * time.Millisecond)
					require.True(r, take().Admitted, "whoever waits is let in")
				}
				hits = append(hits, clock)
			},
			"wait": func(r *rapid.T) {
				wait(rapid.SampledFrom([]time.Duration{0, 7 * time.Second, 29 * time.Second, 61 * time.Second}).Draw(r, "wait"))
			},
			"change": func(r *rapid.T) { limit = rapid.Int32Range(1, 8).Draw(r, "limit") },
		})
	})
}

func TestAdmitReturnsTheAllowance(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.setLimits(t, identity.Limit{Category: identity.LimitBatch, PerMinute: 2})
	first, err := b.service.Admit(t.Context(), b.principal(), identity.LimitBatch)
	require.NoError(t, err)
	require.Equal(t, identity.Limit{Category: identity.LimitBatch, PerMinute: 2}, first.Limit)
	require.Equal(t, 1, first.Remaining)
	require.Equal(t, time.Minute, first.FreeIn)

	age(t, b.pool, 20*time.Second)
	second, err := b.service.Admit(t.Context(), b.principal(), identity.LimitBatch)
	require.NoError(t, err)
	require.Equal(t, 0, second.Remaining)
	require.InDelta(t, 40, second.FreeIn.Seconds(), 2)

	third, err := b.service.Admit(t.Context(), b.principal(), identity.LimitBatch)
	require.ErrorIs(t, err, fault.RateLimited)
	require.Equal(t, third.FreeIn, fault.From(err).RetryAfter)
	require.InDelta(t, 40, third.FreeIn.Seconds(), 2)
	require.Equal(t, "more than 2 requests of this kind in 60 s", err.Error())

	age(t, b.pool, third.FreeIn)
	_, err = b.service.Admit(t.Context(), b.principal(), identity.LimitBatch)
	require.NoError(t, err, "whoever waits is let in")
	_, err = b.service.Admit(t.Context(), b.principal(), identity.LimitBatch)
	require.ErrorIs(t, err, fault.RateLimited, "but for one only: the second is 20 s younger")
}

// An unlimited tenant costs nothing, and changes of limits reach every replica.
func TestChangedLimitsApply(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.setLimits(t, identity.Limit{Category: identity.LimitSingle, PerMinute: identity.Unlimited})
	replica := b.replica(t)
	for range 200 {
		allowance, err := replica.Admit(t.Context(), b.principal(), identity.LimitSingle)
		require.NoError(t, err)
		require.Equal(t, identity.Allowance{Limit: identity.Limit{Category: identity.LimitSingle}}, allowance)
	}
	rows := pgtest.Count(t, b.pool, "rate_limits", "")
	require.Zero(t, rows)

	_, err := b.service.Admit(t.Context(), b.principal(), identity.LimitBatch)
	require.NoError(t, err)
	b.setLimits(t, identity.Limit{Category: identity.LimitSingle, PerMinute: 1}, identity.Limit{Category: identity.LimitBatch, PerMinute: 1})
	b.now = b.now.Add(5 * time.Second)
	_, err = replica.Admit(t.Context(), b.principal(), identity.LimitSingle)
	require.NoError(t, err)
	_, err = replica.Admit(t.Context(), b.principal(), identity.LimitSingle)
	require.ErrorIs(t, err, fault.RateLimited)
	allowance, err := b.service.Admit(t.Context(), b.principal(), identity.LimitBatch)
	require.ErrorIs(t, err, fault.RateLimited, "what was let in under the old limit counts")
	require.Equal(t, 1, allowance.Limit.PerMinute)
}

// Of the limits those are read again that were set lately, or the reading would
// take as long as there are tenants.
func TestOldLimitsAreReadOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.setLimits(t, identity.Limit{Category: identity.LimitSingle, PerMinute: 7}, identity.Limit{Category: identity.LimitBatch, PerMinute: 8})
	limit := func(s *identity.Service, category identity.LimitCategory) int {
		allowance, err := s.Admit(t.Context(), b.principal(), category)
		require.NoError(t, err)
		return allowance.Limit.PerMinute
	}
	replica := b.replica(t)
	b.now = b.now.Add(5 * time.Second)
	require.Equal(t, 7, limit(replica, identity.LimitSingle))
	pgtest.Exec(t, b.pool, `UPDATE tenant_limits SET per_minute = 9; UPDATE tenant_limits SET set_at = now() - interval '1 hour'`)
	b.now = b.now.Add(5 * time.Second)
	require.Equal(t, 7, limit(replica, identity.LimitSingle))
	require.Equal(t, 9, limit(b.replica(t), identity.LimitSingle))
	b.setLimits(t, identity.Limit{Category: identity.LimitSingle, PerMinute: 10})
	b.now = b.now.Add(5 * time.Second)
	require.Equal(t, 10, limit(replica, identity.LimitSingle))
	require.Equal(t, 8, limit(replica, identity.LimitBatch), "what was known before stays")
	pgtest.Exec(t, b.pool, `INSERT INTO tenant_limits SELECT tenant_id, category, 11 FROM tenant_limits
		ON CONFLICT (tenant_id, category) DO UPDATE SET per_minute = excluded.per_minute`)
	b.now = b.now.Add(5 * time.Second)
	require.Equal(t, 11, limit(replica, identity.LimitBatch), "as the version before sets it")
}

func TestCountersAreSwept(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := b.service.Admit(t.Context(), b.principal(), identity.LimitBatch)
	require.NoError(t, err)
	age(t, b.pool, 2*time.Minute)
	_, err = b.service.Admit(t.Context(), b.principal(), identity.LimitPolling)
	require.NoError(t, err)
	age(t, b.pool, 50*time.Second)
	b.now = b.now.Add(2 * time.Minute)
	_, err = b.service.Admit(t.Context(), b.principal(), identity.LimitSingle)
	require.NoError(t, err)
	for _, table := range []string{"rate_limits", "rate_limit_hits"} {
		categories := pgtest.Text(t, b.pool, `SELECT string_agg(category, ',' ORDER BY category) FROM `+table)
		require.Equal(t, "polling,single", categories, "what counts still stays")
	}
}

// However many counters nobody uses any more, and whoever holds one: who asks for
// the limits does not wait until all of them are forgotten.
func TestCountersAreSweptInPages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const counters, hitsEach = 30, 1000
	pgtest.Exec(t, b.pool, `WITH counter AS (
			INSERT INTO rate_limits (subject, category, next, last_at)
			SELECT gen_random_uuid(), 'single', $2 + 1, now() - interval '3 minutes' FROM generate_series(1, $1) RETURNING subject, category, last_at
		) INSERT INTO rate_limit_hits SELECT subject, category, n, last_at FROM counter, generate_series(1, $2) n`, counters, hitsEach)
	hits := func() (n int) {
		b.now = b.now.Add(5 * time.Second)
		_, err := b.service.Admit(t.Context(), identity.Principal{TenantID: b.tenant.ID}, identity.LimitBatch)
		require.NoError(t, err)
		require.NoError(t, b.pool.QueryRow(t.Context(), `SELECT count(*) FROM rate_limit_hits WHERE category = 'single'`).Scan(&n))
		return n
	}
	tx, err := b.pool.Begin(t.Context())
	require.NoError(t, err)
	pgtest.Exec(t, tx, `SELECT FROM rate_limits ORDER BY subject LIMIT 1 FOR UPDATE`)
	b.now = b.now.Add(time.Minute)
	require.Equal(t, 20_000, hits())
	require.Equal(t, 10_000, hits())
	require.Equal(t, hitsEach, hits(), "of the one that is held")
	require.NoError(t, tx.Rollback(t.Context()))
	b.now = b.now.Add(time.Minute)
	require.Zero(t, hits())
	left := pgtest.Count(t, b.pool, "rate_limits", "category = 'single'")
	require.Zero(t, left)
}

func TestTokenEndpointIsLimited(t *testing.T) {
	t.Parallel()
	b := setup(t)
	issue := func(id, secret, from string) error {
		_, err := b.service.IssueToken(t.Context(), id, secret, from)
		return err
	}
	id := b.credentials.ClientID.String()
	for range 10 {
		require.ErrorIs(t, issue(id, "wrong", address), fault.Unauthorized)
	}
	require.ErrorIs(t, issue(id, "wrong", address), fault.RateLimited)
	require.ErrorIs(t, issue(id, b.credentials.Secret, address), fault.RateLimited, "nor is the right one compared")
	require.NoError(t, issue(id, b.credentials.Secret, "192.0.2.2"), "another address may")

	unknown := uuid.NewString()
	for range 10 {
		require.ErrorIs(t, issue(unknown, "wrong", address), fault.Unauthorized)
	}
	require.ErrorIs(t, issue(unknown, "wrong", address), fault.RateLimited, "an unknown client is treated alike")

	for range 100 { // who does not know the secret cannot use up what the client may try
		require.ErrorIs(t, issue(id, "wrong", address), fault.RateLimited)
	}
	for range 60 - 11 { // 10 failed above, one was right
		require.NoError(t, issue(id, b.credentials.Secret, "192.0.2.2"))
	}
	require.ErrorIs(t, issue(id, b.credentials.Secret, "192.0.2.2"), fault.RateLimited)
	age(t, b.pool, time.Minute)
	require.NoError(t, issue(id, b.credentials.Secret, address))
}

// Of many wrong secrets at once at most ten are told that they are wrong.
func TestConcurrentFailuresAreLimited(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var mu sync.Mutex
	wrong := 0
	var wait sync.WaitGroup
	for range 40 {
		wait.Go(func() {
			_, err := b.service.IssueToken(t.Context(), b.credentials.ClientID.String(), "wrong", address)
			mu.Lock()
			defer mu.Unlock()
			if fault.From(err).Kind == fault.Unauthorized {
				wrong++
			}
		})
	}
	wait.Wait()
	require.Equal(t, 10, wrong)
}

func BenchmarkAdmit(b *testing.B) {
	pool := pgtest.Pool(b)
	for name, limit := range map[string]int32{"refused": 1, "admitted": 1_000_000} {
		b.Run(name, func(b *testing.B) {
			params := queries.SysRateLimitAcquireParams{Subject: uuid.New(), Category: "single", PerMinute: limit, Taking: true}
			for b.Loop() {
				if _, err := queries.New().SysRateLimitAcquire(b.Context(), pool, params); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
