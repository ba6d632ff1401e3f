package liveness_test

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

	"tranche/internal/liveness"
	"tranche/internal/pgtest"
	"tranche/internal/postgres/embedded"
	"tranche/migrations"
)

// ownServer is a bundle on a server of its own, which restarts by itself.
type ownServer struct {
	*bundle
	dir string
}

func setupServer(t *testing.T) *ownServer {
	t.Helper()
	dir, err := os.MkdirTemp("", "tranche-liveness-") //nolint:usetesting // t.TempDir is closed to the user that root's server drops to
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
	s.worker = liveness.New(s.pool, s.recoverWork)
	return s
}

// end sends a signal to a process of the server, which ends all sessions, and waits until the
// server accepts connections again.
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

// restart ends the server.
func (s *ownServer) restart(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(s.dir, "postgres", "postmaster.pid"))
	require.NoError(t, err)
	postmaster, err := strconv.Atoi(strings.TrimSpace(strings.SplitN(string(text), "\n", 2)[0]))
	require.NoError(t, err)
	s.end(t, postmaster, syscall.SIGQUIT)
}

// crash kills one backend, so that the server ends all sessions and recovers.
func (s *ownServer) crash(t *testing.T) {
	t.Helper()
	var backend int
	require.NoError(t, s.pool.QueryRow(t.Context(), `SELECT pg_backend_pid()`).Scan(&backend))
	s.end(t, backend, syscall.SIGKILL)
}

// After an outage of the server, the end of a session proves nothing, because living processes
// need time to open another. Only a steady process trusts it.
func TestEndOfSessionAfterOutage(t *testing.T) {
	t.Parallel()
	s := setupServer(t)
	silent := func() []uuid.UUID { return s.runningJobs(t, s.process(t, 6*time.Second)) }
	s.awaitUptime(t)
	for name, away := range map[string]func(*testing.T){"crash": s.crash, "restart": s.restart} {
		executions := silent()
		away(t)
		require.NoError(t, s.worker.Detect(t.Context(), false))
		require.Equal(t, []string{"running"}, s.jobStates(t, executions), name)
		require.NoError(t, s.worker.Detect(t.Context(), true))
		require.Equal(t, []string{"available"}, s.jobStates(t, executions), name)
	}

	s.awaitUptime(t)
	executions, survivor := silent(), liveness.New(s.pool, s.recoverWork)
	survivor.LoseSession()
	require.NoError(t, survivor.Detect(t.Context(), false))
	require.Equal(t, []string{"running"}, s.jobStates(t, executions), "another server may have taken over")
	require.NoError(t, s.worker.Detect(t.Context(), false))
	require.Equal(t, []string{"available"}, s.jobStates(t, executions), "its heartbeat is later than the start of the server")
}

// After a restart of the server, living processes keep their jobs, and the jobs of dead ones
// are requeued before their heartbeat is 20 s old.
func TestDetectionAfterRestart(t *testing.T) {
	t.Parallel()
	s := setupServer(t)
	var mu sync.Mutex
	var found []uuid.UUID
	recoverWork := func(_ context.Context, _ pgx.Tx, dead liveness.Dead) (int64, error) {
		mu.Lock()
		defer mu.Unlock()
		found = append(found, dead.IDs...)
		return 0, nil
	}
	start := func(role string) *liveness.Process {
		p, err := liveness.Start(t.Context(), s.pool, role, role == "worker", recoverWork, slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, p.Stop(context.WithoutCancel(t.Context()))) })
		return p
	}
	alive := []*liveness.Process{start("worker"), start("worker"), start("api")}
	killed := s.process(t, 0)
	executions := s.runningJobs(t, killed, alive[0].ID, alive[1].ID, alive[2].ID)
	for i, p := range alive {
		defer p.TrackJob(s.jobID(t, executions[i+1]))()
	}
	s.restart(t)
	restarted := time.Now()
	s.exec(t, `UPDATE processes SET heartbeat_at = now() WHERE id = $1`, killed)
	require.Eventually(t, func() bool { return s.jobStates(t, executions)[0] == "available" }, 30*time.Second, 100*time.Millisecond)
	require.Less(t, time.Since(restarted), liveness.DeadAfter)
	require.Greater(t, time.Since(restarted), 8*time.Second, "the living processes had time for a heartbeat")
	time.Sleep(2 * time.Second)
	require.Equal(t, []string{"available", "running", "running", "running"}, s.jobStates(t, executions))
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, []uuid.UUID{killed}, found)
}
