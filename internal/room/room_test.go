package room

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// Rooms are left, given up and forgotten, each by itself.
func TestRooms(t *testing.T) {
	t.Parallel()
	rooms, one, other := New(10), uuid.New(), uuid.New()
	leave, err := rooms.Enter(t.Context(), one, 99)
	require.NoError(t, err, "what is larger takes all")

	leaveOther, err := rooms.Enter(t.Context(), other, 10)
	require.NoError(t, err)
	leaveOther()

	waiting, giveUp := context.WithCancel(t.Context())
	gaveUp := make(chan error)
	go func() {
		_, err := rooms.Enter(waiting, one, 1)
		gaveUp <- err
	}()
	require.Eventually(t, func() bool { return rooms.Users(one) == 2 }, 10*time.Second, time.Millisecond)
	giveUp()
	require.ErrorIs(t, <-gaveUp, context.Canceled)
	require.Equal(t, 1, rooms.Users(one))

	entered := make(chan func())
	go func() {
		leave, _ := rooms.Enter(context.Background(), one, 10)
		entered <- leave
	}()
	require.Eventually(t, func() bool { return rooms.Users(one) == 2 }, 10*time.Second, time.Millisecond)
	leave()
	leave = <-entered
	waiting, giveUp = context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer giveUp()
	_, err = rooms.Enter(waiting, one, 1)
	require.ErrorIs(t, err, context.DeadlineExceeded, "who has waited has the room")

	leave()
	leave, err = rooms.Enter(t.Context(), one, 10)
	require.NoError(t, err)
	leave()
	require.Empty(t, rooms.tenants, "what nobody uses is forgotten")
}
