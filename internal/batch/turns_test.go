package batch

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tranche/internal/workflow"
)

// waitFor queues a turn without waiting for it.
func waitFor(t *turns, tenant, batch byte) *turn { return waitForSome(t, tenant, batch, 1) }

// waitForSome is waitFor for several places.
func waitForSome(t *turns, tenant, batch byte, places int) *turn {
	mine := &turn{tenantID: uuid.UUID{1, tenant}, batchID: uuid.UUID{2, tenant, batch}, came: t.come(), places: places, given: make(chan struct{})}
	t.add(mine)
	return mine
}

func (mine *turn) hasPlace() bool {
	select {
	case <-mine.given:
		return true
	default:
		return false
	}
}

func TestTurnsAreInOrder(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ waiting, want []string }{
		"one batch":                           {[]string{"1a", "1a"}, []string{"1a", "1a"}},
		"batches of a tenant":                 {[]string{"1a", "1a", "1a", "1b", "1b"}, []string{"1a", "1b", "1a", "1b", "1a"}},
		"a small one of another tenant":       {[]string{"1a", "1a", "1a", "2a"}, []string{"1a", "2a", "1a", "1a"}},
		"a tenant of many batches beside one": {[]string{"1a", "1b", "1c", "1d", "2a", "2a"}, []string{"1a", "2a", "1b", "2a", "1c", "1d"}},
	} {
		places := newTurns(1, 0)
		working := waitFor(places, '1', 'a')
		queued := make([]*turn, len(c.waiting))
		for i, who := range c.waiting {
			queued[i] = waitFor(places, who[0], who[1])
		}
		var order []string
		for range queued {
			places.leave(working)
			for i, mine := range queued {
				if mine != nil && mine.hasPlace() {
					order, working, queued[i] = append(order, c.waiting[i]), mine, nil
				}
			}
		}
		require.Equal(t, c.want, order, name)
	}
}

// However turns come and end: while anybody of a tenant waits, each other tenant
// has one turn at most, no place stays empty, and none is given twice.
func TestTurnsAreFair(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		const most = 2
		places, waiting, working := newTurns(most, 0), []*turn{}, []*turn{}
		since := map[uuid.UUID]map[uuid.UUID]int{} // of a tenant that waits: the turns of the others
		note := func() {
			left := waiting[:0]
			for _, mine := range waiting {
				if !mine.hasPlace() {
					left = append(left, mine)
					continue
				}
				working = append(working, mine)
				delete(since, mine.tenantID)
				for _, others := range since {
					others[mine.tenantID]++
					require.LessOrEqual(t, others[mine.tenantID], 1)
				}
			}
			waiting = left
			for _, mine := range waiting {
				if since[mine.tenantID] == nil {
					since[mine.tenantID] = map[uuid.UUID]int{}
				}
			}
			require.Len(t, working, min(most, len(working)+len(waiting)))
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if len(working) > 0 && rapid.Bool().Draw(t, "ends") {
				ended := rapid.IntRange(0, len(working)-1).Draw(t, "which")
				places.leave(working[ended])
				working = slices.Delete(working, ended, ended+1)
			} else {
				waiting = append(waiting, waitFor(places, rapid.ByteRange(1, 3).Draw(t, "tenant"), rapid.ByteRange(1, 3).Draw(t, "batch")))
			}
			note()
		}
	})
}

// Who takes places one after the other comes each time before those of its batch
// that came later.
func TestTurnsComeAgain(t *testing.T) {
	t.Parallel()
	places := newTurns(1, 0)
	again := waitFor(places, '1', 'a')
	later := waitFor(places, '1', 'a')
	another, third := *again, *again
	another.given, third.given = make(chan struct{}), make(chan struct{})
	places.add(&another)
	places.add(&third)
	places.leave(again)
	require.True(t, another.hasPlace(), "in the order in which it asked")
	places.leave(&another)
	require.True(t, third.hasPlace())
	require.False(t, later.hasPlace())
	places.leave(&third)
	require.True(t, later.hasPlace())
}

// Of the chunks that wait for a place the one gets it that came first, and what has
// begun before that.
func TestChunksTakePlacesInTheirOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &Service{Config: Config{Clock: time.Now}, calling: newTurns(1, 0)}
		first, second := &chunkRun{Service: s, came: s.calling.come(), plan: &workflow.Plan{}}, &chunkRun{Service: s, came: s.calling.come(), plan: &workflow.Plan{}}
		leave := second.place(t.Context(), second.came)
		var order []string
		for _, who := range []struct {
			name string
			run  *chunkRun
			came int
		}{{"second", second, second.came}, {"first", first, first.came}, {"begun", second, beforeAll}} {
			go func() {
				left := who.run.place(t.Context(), who.came)
				order = append(order, who.name)
				left()
			}()
			synctest.Wait()
		}
		leave()
		synctest.Wait()
		require.Equal(t, []string{"begun", "first", "second"}, order)
	})
}

// Who gives up while waiting leaves no place behind.
func TestTurnsAreGivenUp(t *testing.T) {
	t.Parallel()
	places := newTurns(1, 0)
	leave, err := places.take(t.Context(), uuid.New(), uuid.New())
	require.NoError(t, err)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = places.take(gone, uuid.New(), uuid.New())
	require.ErrorIs(t, err, context.Canceled)
	leave()
	if leave, err := places.take(gone, uuid.New(), uuid.New()); err == nil { // given a place or not, it is free again
		leave()
		leave()
	}
	_, err = places.take(t.Context(), uuid.New(), uuid.New())
	require.NoError(t, err)
	require.Zero(t, places.free)
	require.Len(t, places.held, 1)
}

// Who takes several places gets them when they are free, and lets others go first until
// then; of whose tenant nothing runs gets what there is.
func TestTurnsOfSeveralPlaces(t *testing.T) {
	t.Parallel()
	places := newTurns(4, 0)
	take := func(tenant byte, n int) *turn { return waitForSome(places, tenant, 'a', n) }
	first, second := take('1', 1), take('1', 1)
	heavy := take('1', 3)
	light := take('2', 1)
	require.False(t, heavy.hasPlace(), "two of three are free")
	require.True(t, light.hasPlace())
	places.leave(first)
	require.False(t, heavy.hasPlace())
	places.leave(light)
	require.True(t, heavy.hasPlace())
	places.leave(second)
	less := take('2', 3)
	require.True(t, less.hasPlace(), "nobody waits for one that holds much")
	require.Zero(t, places.free)
	places.leave(heavy)
	places.leave(less)
	require.Equal(t, 4, places.free)
	require.Empty(t, places.held)
}

// Who asked for more than was free and gives up lets those behind it have that.
func TestTurnsOfSeveralPlacesAreGivenUp(t *testing.T) {
	t.Parallel()
	places := newTurns(4, 0)
	waitForSome(places, '1', 'a', 2)
	heavy, light := waitForSome(places, '1', 'a', 3), waitFor(places, '1', 'a')
	require.False(t, light.hasPlace(), "the heavy one is before it")
	require.True(t, places.withdraw(heavy))
	require.True(t, light.hasPlace())
	require.False(t, heavy.hasPlace())
	require.Equal(t, 1, places.free)
}

// However heavy what hangs is, and whoever it belongs to, one more tenant gets a place.
func TestHeavyTurnsAreLeftToOthers(t *testing.T) {
	t.Parallel()
	for _, each := range []int{1, 4, 16, 33, 41, 60, 150, placesAtMost} {
		places := newTurns(callingMax, callingGreed)
		for tenant := byte('1'); tenant <= '4'; tenant++ {
			for i := range callingMax {
				waitForSome(places, tenant, byte(i%2), each)
			}
		}
		light := waitFor(places, '5', 'a')
		require.True(t, light.hasPlace(), "%d places each", each)
	}
}

// However many tenants hold places and give none back, one more gets some, and
// one alone most of them.
func TestTurnsAreLeftToOthers(t *testing.T) {
	t.Parallel()
	places := newTurns(125, 4)
	got := func(tenant byte) (held []*turn) {
		for range 125 {
			if mine := waitFor(places, tenant, 'a'); mine.hasPlace() {
				held = append(held, mine)
			}
		}
		return held
	}
	first := got('1')
	require.Len(t, first, 100)
	require.Len(t, got('2'), 20)
	require.Len(t, got('3'), 4)
	require.Len(t, got('4'), 1)
	for _, mine := range first[:10] {
		places.leave(mine)
	}
	require.NotEmpty(t, got('5'))
}
