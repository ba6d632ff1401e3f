package pgtest

import (
	"context"
	"os"
	"os/exec"
	osuser "os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"tranche/internal/postgres/embedded"
)

// openDir is a directory that every user may pass through.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "tranche-pgtest-") //nolint:usetesting // t.TempDir is closed to other users
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o711))
	return dir
}

func current(t *testing.T, dir string) (place string, supervisor int) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "current"))
	require.NoError(t, err)
	parts := strings.Split(filepath.Base(string(text)), "-")
	supervisor, err = strconv.Atoi(parts[1])
	require.NoError(t, err)
	return string(text), supervisor
}

func TestServerIsSharedAndEndsWhenIdle(t *testing.T) {
	t.Setenv(idleVariable, "500ms")
	dir := openDir(t)
	servers := make([]*embedded.Server, 4)
	var all errgroup.Group
	for i := range servers {
		all.Go(func() (err error) {
			servers[i], err = share(t.Context(), dir)
			return err
		})
	}
	require.NoError(t, all.Wait())
	place, _ := current(t, dir)
	for _, server := range servers {
		require.Equal(t, servers[0].URL(), server.URL())
	}
	time.Sleep(time.Second)
	require.NoError(t, administer(t.Context(), servers[0].URL(), "SELECT 1"), "it lives while it is used")
	for _, server := range servers {
		require.NoError(t, server.Close())
	}
	require.Eventually(t, func() bool { return os.IsNotExist(stat(place)) }, 20*time.Second, 50*time.Millisecond, "it ends and leaves nothing")

	again, err := share(t.Context(), dir)
	require.NoError(t, err)
	require.NotEqual(t, servers[0].URL(), again.URL())
	require.NoError(t, again.Close())
}

func stat(path string) error {
	_, err := os.Stat(path)
	return err
}

func TestServerIsReplacedWhenItsSupervisorIsKilled(t *testing.T) {
	t.Setenv(idleVariable, "500ms")
	dir := openDir(t)
	first, err := share(t.Context(), dir)
	require.NoError(t, err)
	require.NoError(t, first.Close())
	place, supervisor := current(t, dir)
	require.NoError(t, syscall.Kill(supervisor, syscall.SIGKILL))
	require.Eventually(t, func() bool { return administer(t.Context(), first.URL(), "SELECT 1") != nil },
		20*time.Second, 10*time.Millisecond, "its server ends with it, in a moment")

	second, err := share(t.Context(), dir)
	require.NoError(t, err)
	require.NotEqual(t, first.URL(), second.URL())
	require.NoError(t, administer(t.Context(), second.URL(), "SELECT 1"))
	require.NoError(t, second.Close())
	require.NoError(t, os.RemoveAll(place))
}

func TestServerStartErrorHasTheReason(t *testing.T) {
	t.Setenv("TRANCHE_PG_BIN", "/nonexistent")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	_, err := share(ctx, openDir(t))
	require.ErrorContains(t, err, "TRANCHE_PG_BIN: /nonexistent has no initdb")
}

// runTests runs a test of this binary in a process of its own.
func runTests(t *testing.T, change func(*exec.Cmd), variables ...string) {
	t.Helper()
	program, err := os.Executable()
	require.NoError(t, err)
	content, err := os.ReadFile(program)
	require.NoError(t, err)
	copied := filepath.Join(openDir(t), "pgtest.test") // go test's directory is closed to others
	require.NoError(t, os.WriteFile(copied, content, 0o755))
	cmd := exec.CommandContext(t.Context(), copied, "-test.run=^(TestPoolIsMigratedAndItsOwn|TestTxIsRolledBack)$")
	cmd.Env = append(os.Environ(), append(variables, idleVariable+"=500ms")...)
	if change != nil {
		change(cmd)
	}
	output, err := cmd.CombinedOutput()
	require.NoError(t, err, string(output))
	require.Contains(t, string(output), "PASS")
}

func TestServerOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user; CI runs this as root too")
	}
	nobody, err := osuser.Lookup("nobody")
	require.NoError(t, err)
	uid, err := strconv.ParseUint(nobody.Uid, 10, 32)
	require.NoError(t, err)
	runTests(t, func(cmd *exec.Cmd) {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	}, "HOME=/nonexistent")
}

func TestDatabaseURLNamesAnotherServer(t *testing.T) {
	url, err := serverURL()
	require.NoError(t, err)
	runTests(t, nil, "TEST_DATABASE_URL="+url, "TMPDIR=/nonexistent") // without a place for a server of its own
	host := strings.TrimSuffix(strings.SplitN(url, "host=", 2)[1], "&port=5432")
	runTests(t, nil, "TEST_DATABASE_URL=user=tranche dbname=tranche port=5432 host="+strings.ReplaceAll(host, "%2F", "/"), "TMPDIR=/nonexistent")
}
