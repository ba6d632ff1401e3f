package process_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"tranche/internal/pgtest"
	"tranche/internal/postgres/embedded"
	"tranche/internal/process"
	"tranche/migrations"
)

// ownServer is a database on a server of the test's own, which comes back by itself.
type ownServer struct {
	*bundle
	dir string
}

func setupServer(t *testing.T) *ownServer {
	t.Helper()
	dir, err := os.MkdirTemp("", "tranche-process-") //nolint:usetesting // t.TempDir is closed to the user that root's server drops to
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o711))
	server, err := embedded.Open(t.Context(), embedded.Options{
		Dir: dir, BinDir: os.Getenv("TRANCHE_PG_BIN"), NoDownload: os.Getenv("TRANCHE_PG_DOWNLOAD") == "off", Notices: os.Stderr,
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	s := &ownServer{bundle: &bundle{pool: pgtest.OpenPool(t, server.URL())}, dir: dir}
	require.NoError(t, migrations.Up(t.Context(), s.pool))
	s.worker = process.New(s.pool, s.free)
	return s
}

// end ends a process of the server, and with it all sessions, and waits for the
// server to be back.
func (s *ownServer) end(t *testing.T, pid int, signal syscall.Signal) {
	t.Helper()
	since := func() (since time.Time, err error) {
		err = s.pool.QueryRow(t.Context(), `SELECT GREATEST(pg_postmaster_start_time(), stats_reset) FROM pg_stat_bgwriter`).Scan(&since)
		return since, err
	}
	before, err := since()
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(pid, signal))
	require.Eventually(t, func() bool {
		now, err := since()
		return err == nil && now.After(before)
	}, 30*time.Second, 50*time.Millisecond)
}

// restart ends the whole server.
func (s *ownServer) restart(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(s.dir, "postgres", "postmaster.pid"))
	require.NoError(t, err)
	postmaster, err := strconv.Atoi(strings.TrimSpace(strings.SplitN(string(text), "\n", 2)[0]))
	require.NoError(t, err)
	s.end(t, postmaster, syscall.SIGQUIT)
}

// crash ends one backend in a way that has the server end all and recover.
func (s *ownServer) crash(t *testing.T) {
	t.Helper()
	var backend int
	require.NoError(t, s.pool.QueryRow(t.Context(), `SELECT pg_backend_pid()`).Scan(&backend))
	s.end(t, backend, syscall.SIGKILL)
}

// That a session has ended says nothing once the server was away: the processes that
// live are still to begin another. It does to who has beaten for a while since.
func TestNoSessionOutlivesTheServer(t *testing.T) {
	t.Parallel()
	s := setupServer(t)
	silent := func() []uuid.UUID {
		executions := s.held(t, s.known(t, 6*time.Second))
		return executions
	}
	time.Sleep(7 * time.Second) // until a process may have been silent for so long and yet heard of since the start
	for name, away := range map[string]func(*testing.T){"it crashed": s.crash, "it was restarted": s.restart} {
		executions := silent()
		away(t)
		require.NoError(t, s.worker.TakeBack(t.Context(), false))
		require.Equal(t, []string{"running"}, s.states(t, executions), name)
		require.NoError(t, s.worker.TakeBack(t.Context(), true))
		require.Equal(t, []string{"available"}, s.states(t, executions), name)
	}

	time.Sleep(7 * time.Second)
	executions, survivor := silent(), process.New(s.pool, s.free)
	survivor.LoseSession()
	require.NoError(t, survivor.TakeBack(t.Context(), false))
	require.Equal(t, []string{"running"}, s.states(t, executions), "another server may have taken over, which has long been up")
	require.NoError(t, s.worker.TakeBack(t.Context(), false))
	require.Equal(t, []string{"available"}, s.states(t, executions), "it was heard of since the start")
}

// Where the server goes and comes back, who lives keeps what is its own, and what the
// dead held is taken back soon, not only when they have long not been heard of.
func TestDeathIsFoundAfterARestartOfTheServer(t *testing.T) {
	t.Parallel()
	s := setupServer(t)
	var mu sync.Mutex
	var found []uuid.UUID
	free := func(_ context.Context, _ pgx.Tx, dead process.Dead) (int64, error) {
		mu.Lock()
		defer mu.Unlock()
		found = append(found, dead.IDs...)
		return 0, nil
	}
	start := func(role string) *process.Process {
		p, err := process.Start(t.Context(), s.pool, role, role == "worker", free, slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, p.Stop(context.WithoutCancel(t.Context()))) })
		return p
	}
	living := []*process.Process{start("worker"), start("worker"), start("api")}
	killed := s.known(t, 0)
	executions := s.held(t, killed, living[0].ID, living[1].ID, living[2].ID)
	for i, p := range living {
		defer p.WorksOn(s.job(t, executions[i+1]))()
	}
	s.restart(t)
	restarted := time.Now()
	require.Eventually(t, func() bool { return s.states(t, executions)[0] == "available" }, 30*time.Second, 100*time.Millisecond)
	require.Less(t, time.Since(restarted), 16*time.Second)
	require.Greater(t, time.Since(restarted), 8*time.Second, "the living had time to beat again")
	time.Sleep(2 * time.Second)
	require.Equal(t, []string{"available", "running", "running", "running"}, s.states(t, executions))
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, []uuid.UUID{killed}, found)
}
