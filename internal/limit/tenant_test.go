package limit

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

func TestPerTenantWeightIsCapped(t *testing.T) {
	t.Parallel()
	l, tenant := NewPerTenant(10), uuid.New()
	release, err := l.Acquire(t.Context(), tenant, 99)
	require.NoError(t, err)
	expired, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err = l.Acquire(expired, tenant, 1)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	release()
	release, err = l.Acquire(t.Context(), tenant, 10)
	require.NoError(t, err)
	release()
}

func TestPerTenantIsolation(t *testing.T) {
	t.Parallel()
	l := NewPerTenant(10)
	first, err := l.Acquire(t.Context(), uuid.New(), 10)
	require.NoError(t, err)
	defer first()
	second, err := l.Acquire(t.Context(), uuid.New(), 10)
	require.NoError(t, err)
	second()
}

func TestPerTenantWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, tenant := NewPerTenant(10), uuid.New()
		release, err := l.Acquire(t.Context(), tenant, 10)
		require.NoError(t, err)

		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			_, err := l.Acquire(ctx, tenant, 1)
			if err == nil {
				t.Error("acquired a full semaphore")
			}
		}()
		synctest.Wait()
		require.Equal(t, 2, l.Users(tenant))
		cancel()
		synctest.Wait()
		require.Equal(t, 1, l.Users(tenant), "a caller that stops waiting is no user")

		acquired := make(chan func(), 1)
		go func() {
			release, err := l.Acquire(t.Context(), tenant, 10)
			if err != nil {
				t.Error(err)
			}
			acquired <- release
		}()
		synctest.Wait()
		require.Empty(t, acquired)
		release()
		(<-acquired)()
		require.Empty(t, l.tenants, "semaphores without users are deleted")
	})
}
