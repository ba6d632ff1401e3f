package embedded

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRestart(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(openDir(t), "data")
	server, err := Open(t.Context(), Options{Dir: dir}) // durable, as for real use
	require.NoError(t, err)
	execute(t, server.URL(), "CREATE TABLE saved AS SELECT 42 AS value")
	for parameter, want := range map[string]string{"fsync": "on", "synchronous_commit": "on", "listen_addresses": "", "TimeZone": "UTC", "server_encoding": "UTF8"} {
		require.Equal(t, want, query[string](t, server.URL(), "SHOW "+parameter), parameter)
	}
	require.True(t, query[bool](t, server.URL(), "SELECT lower('ÄÖ') = 'äö'"), "character classes of UTF-8")
	pid := postmaster(t, dir)
	require.NoError(t, server.Close())
	require.NoError(t, server.Close(), "closing twice is allowed")
	require.True(t, ended(pid))
	require.NoFileExists(t, filepath.Join(dir, "postgres", "postmaster.pid"))

	again := open(t, Options{Dir: dir})
	require.Equal(t, 42, query[int](t, again.URL(), "SELECT value FROM saved"))
	log, err := os.ReadFile(filepath.Join(dir, "postgres.log"))
	require.NoError(t, err)
	require.NotContains(t, string(log), "not properly shut down")
}

func TestOpenAsRoot(t *testing.T) {
	t.Parallel()
	needRoot(t)
	dir := filepath.Join(openDir(t), "data")
	server := open(t, Options{Dir: dir})
	execute(t, server.URL(), "SELECT 1")
	for _, closed := range []string{"postgres", "socket"} {
		info, err := os.Stat(filepath.Join(dir, closed))
		require.NoError(t, err)
		require.NotZero(t, statOf(info).Uid, closed)
		require.Equal(t, os.FileMode(0o700), info.Mode().Perm(), closed)
	}

	// Another user's child does not get in.
	outsider := exec.CommandContext(t.Context(), "test", "-r", filepath.Join(dir, "socket", ".s.PGSQL.5432"))
	outsider.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 12345, Gid: 12345}}
	require.Error(t, outsider.Run())
}

func TestOpenAsRootInClosedDirectory(t *testing.T) {
	t.Parallel()
	needRoot(t)
	private := t.TempDir()
	require.NoError(t, os.Chmod(private, 0o700))
	_, err := Open(t.Context(), Options{Dir: filepath.Join(private, "data")})
	require.ErrorContains(t, err, "it may not enter "+private)
	require.ErrorContains(t, err, "TRANCHE_DATA_DIR")
}

func TestOpenAsAnotherUser(t *testing.T) {
	t.Parallel()
	needRoot(t)
	nobody := uidOf(t, "nobody")
	home := openDir(t)
	require.NoError(t, os.Chown(home, int(nobody), int(nobody)))
	child := startChild(t, filepath.Join(home, "data"), nobody)
	execute(t, child.url, "CREATE TABLE t ()")
	child.stop(t)
	info, err := os.Stat(filepath.Join(home, "data", "postgres"))
	require.NoError(t, err)
	require.Equal(t, nobody, statOf(info).Uid)

	// Root goes on with it as the user whose data they are.
	server := open(t, Options{Dir: filepath.Join(home, "data")})
	execute(t, server.URL(), "SELECT FROM t")
}

func TestServerStopsWhenHolderIsKilled(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(openDir(t), "data")
	child := startChild(t, dir, 0)
	execute(t, child.url, "CREATE TABLE saved AS SELECT 42 AS value")
	pid := postmaster(t, dir)
	child.kill(t)

	// At once, while the orphan may still be stopping.
	server := open(t, Options{Dir: dir})
	require.Equal(t, 42, query[int](t, server.URL(), "SELECT value FROM saved"))
	require.True(t, ended(pid))
}

func TestOpenAfterCrash(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(openDir(t), "data")
	child := startChild(t, dir, 0)
	execute(t, child.url, "CREATE TABLE saved AS SELECT 42 AS value")
	execute(t, child.url, "CHECKPOINT") // the children's server commits asynchronously
	pid := postmaster(t, dir)
	require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP)) // so that it cannot react to its parent's death
	child.kill(t)
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	require.Equal(t, pid, postmaster(t, dir), "postmaster.pid is stale")

	server := open(t, Options{Dir: dir})
	require.Equal(t, 42, query[int](t, server.URL(), "SELECT value FROM saved"))
}

func TestOpenWithStalePostmasterPid(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(openDir(t), "data")
	server, err := Open(t.Context(), Options{Dir: dir, Volatile: true})
	require.NoError(t, err)
	pidFile := filepath.Join(dir, "postgres", "postmaster.pid")
	stale, err := os.ReadFile(pidFile)
	require.NoError(t, err)
	require.NoError(t, server.Close())

	// PostgreSQL itself would not start: a process of its user has this id.
	paths, err := newDataDir(dir)
	require.NoError(t, err)
	account, err := serverAccount(paths)
	require.NoError(t, err)
	unrelated := exec.CommandContext(t.Context(), "sleep", "600")
	account.apply(unrelated)
	require.NoError(t, unrelated.Start())
	t.Cleanup(func() { _ = unrelated.Process.Kill(); _ = unrelated.Wait() })
	_, rest, _ := strings.Cut(string(stale), "\n")
	require.NoError(t, os.WriteFile(pidFile, []byte(strconv.Itoa(unrelated.Process.Pid)+"\n"+rest), 0o600))
	require.NoError(t, account.own(pidFile))

	again := open(t, Options{Dir: dir})
	execute(t, again.URL(), "SELECT 1")
	require.False(t, ended(unrelated.Process.Pid), "the unrelated process still runs")
}

func TestOpenOtherMajorVersion(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(openDir(t), "data")
	server, err := Open(t.Context(), Options{Dir: dir, Volatile: true})
	require.NoError(t, err)
	require.NoError(t, server.Close())
	version := filepath.Join(dir, "postgres", "PG_VERSION")
	require.NoError(t, os.WriteFile(version, []byte("9\n"), 0o600))

	_, err = Open(t.Context(), Options{Dir: dir})
	require.ErrorContains(t, err, "need PostgreSQL 9")
	require.ErrorContains(t, err, "found: ")
	require.FileExists(t, version, "no data are deleted")
	require.DirExists(t, filepath.Join(dir, "postgres", "base"))
}

func TestOpenDirectoryWithoutCluster(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(openDir(t), "data")
	foreign := filepath.Join(dir, "postgres", "letters")
	require.NoError(t, os.MkdirAll(foreign, 0o755))
	if os.Geteuid() == 0 {
		require.NoError(t, os.Chown(filepath.Dir(foreign), 12345, 12345))
	}
	_, err := Open(t.Context(), Options{Dir: dir})
	require.ErrorContains(t, err, "is not a PostgreSQL data directory")
	require.DirExists(t, foreign)
}

func TestOpenAfterInterruptedInitdb(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(openDir(t), "data")
	left := filepath.Join(dir, "initdb-123")
	require.NoError(t, os.MkdirAll(left, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "key"), []byte("mine"), 0o600))
	open(t, Options{Dir: dir})
	require.NoDirExists(t, left)
	require.FileExists(t, filepath.Join(dir, "key"))
}

func TestOpenWithLongPath(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(openDir(t), strings.Repeat("long", 30))
	server := open(t, Options{Dir: dir})
	execute(t, server.URL(), "SELECT 1")
	require.NotContains(t, server.URL(), "longlong")
	t.Cleanup(func() { _ = os.RemoveAll(server.dir.socketDir) })
}

func TestOpenWithForeignSocketDirectory(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(openDir(t), "data")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "socket"), 0o755))
	_, err := Open(t.Context(), Options{Dir: dir, Volatile: true})
	require.ErrorContains(t, err, "must belong to user")
}

func TestOpenReportsServerLog(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(openDir(t), "data")
	_, err := Open(t.Context(), Options{Dir: dir, Volatile: true, Settings: map[string]string{"max_connections": "many"}})
	require.ErrorIs(t, err, errNoServer)
	require.ErrorContains(t, err, `invalid value for parameter "max_connections": "many"`)
}

func TestProcessesShareTheServer(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(openDir(t), "data")
	children := make(chan *child, 3)
	for range cap(children) { // all at once, on a directory that does not exist yet
		go func() { children <- startChild(t, dir, 0) }()
	}
	server := open(t, Options{Dir: dir})
	execute(t, server.URL(), "CREATE TABLE saved AS SELECT 42 AS value")
	for range cap(children) {
		other := <-children
		require.Equal(t, server.URL(), other.url)
		require.Equal(t, 42, query[int](t, other.url, "SELECT value FROM saved"))
		other.kill(t) // if it runs the server, another process takes over
		eventually(t, func() bool { return try(t.Context(), server.URL(), "SELECT FROM saved") == nil }, "the server is back")
	}
}

func TestServerRestartAfterEnd(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(openDir(t), "data")
	server := open(t, Options{Dir: dir})
	pid := postmaster(t, dir)
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	eventually(t, func() bool { return ended(pid) && try(t.Context(), server.URL(), "SELECT 1") == nil }, "the server is back")
	require.NotEqual(t, pid, postmaster(t, dir))
}

func TestCloseWaitsForOtherProcesses(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(openDir(t), "data")
	holder, err := Open(t.Context(), Options{Dir: dir, Volatile: true})
	require.NoError(t, err)
	other := open(t, Options{Dir: dir}) // another open file: to the locks, another process
	closed := make(chan error, 1)
	go func() { closed <- holder.Close() }()
	require.NoError(t, try(t.Context(), other.URL(), "SELECT pg_sleep(1)"))
	require.Empty(t, closed, "the holder waits")
	require.NoError(t, other.Close())
	require.NoError(t, <-closed)
}

func TestOpenCancelled(t *testing.T) {
	t.Parallel()
	dir, err := prepareDataDir(filepath.Join(openDir(t), "data"))
	require.NoError(t, err)
	holder, err := openLocks(dir)
	require.NoError(t, err)
	defer holder.close()
	require.True(t, holder.hold()) // and never starts a server

	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err = Open(ctx, Options{Dir: dir.dir})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "another process")
}

func TestFindAndWaitUnused(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(openDir(t), "data")
	_, found, err := Find(t.Context(), dir)
	require.NoError(t, err)
	require.False(t, found, "the directory does not exist")

	server := open(t, Options{Dir: dir})
	user, found, err := Find(t.Context(), dir)
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, server.URL(), user.URL())

	unused := make(chan error, 1)
	go func() { unused <- server.WaitUnused(t.Context(), 200*time.Millisecond) }()
	time.Sleep(500 * time.Millisecond)
	require.Empty(t, unused, "the server is in use")
	require.NoError(t, user.Close())
	require.NoError(t, <-unused)

	_, found, err = Find(t.Context(), dir)
	require.NoError(t, err)
	require.False(t, found, "no process can use a server that is about to stop")
}
