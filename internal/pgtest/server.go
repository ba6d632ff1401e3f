package pgtest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"tranche/internal/postgres/embedded"
)

const (
	startTimeMax = 2 * time.Minute // initdb on a loaded machine; a download
	idleTimeMax  = 3 * time.Minute // life of the server after the last test binary; see idleVariable
	pollInterval = 50 * time.Millisecond

	binVariable = "TRANCHE_PG_BIN" // directory of initdb and postgres
	// superviseVariable makes a test binary the supervisor of the server. Its value is the
	// directory.
	superviseVariable = "TRANCHE_PGTEST_SUPERVISE"
	// idleVariable changes idleTimeMax, for example to "30s".
	idleVariable = "TRANCHE_PGTEST_IDLE"
)

// init runs the supervisor in a test binary that was started as one. A library has no other
// hook before the tests.
func init() {
	dir := os.Getenv(superviseVariable)
	if dir == "" {
		return
	}
	if err := supervise(context.Background(), dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// shared is the server of all test binaries.
type shared struct {
	url string
	// use keeps the server alive until the process ends. It is nil for TEST_DATABASE_URL.
	use *embedded.Server
}

// sharedServer finds or starts the server, once per process.
var sharedServer = sync.OnceValues(func() (shared, error) {
	if url := os.Getenv("TEST_DATABASE_URL"); url != "" {
		return shared{url: url}, nil
	}
	dir, err := sharedDir()
	if err != nil {
		return shared{}, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeMax)
	defer cancel()
	server, err := share(ctx, dir)
	if err != nil {
		return shared{}, fmt.Errorf("the shared test server: %w (set TEST_DATABASE_URL to use another)", err)
	}
	return shared{url: server.URL(), use: server}, nil
})

// serverURL returns the administrative connection string of the shared server.
func serverURL() (string, error) {
	server, err := sharedServer()
	return server.url, err
}

// sharedDir returns the directory of the test server. It depends on the user, the checkout
// and the PostgreSQL binaries.
func sharedDir() (string, error) {
	root, err := checkout()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(root + "\n" + os.Getenv(binVariable)))
	uid := os.Getuid()
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("tranche-test-%d-%s", uid, hex.EncodeToString(sum[:4])))
	mode := fs.FileMode(0o700)
	if uid == 0 {
		mode = 0o711 // the server runs as another user, which must pass through
	}
	if err := os.Mkdir(dir, mode); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return "", err
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); !info.IsDir() || !ok || int(owner.Uid) != uid {
		return "", fmt.Errorf("%s is not a directory of user %d: remove it", dir, uid)
	}
	return dir, os.Chmod(dir, mode) // Mkdir applies the umask
}

// checkout returns the directory with go.mod above the package under test.
func checkout() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("no go.mod above the working directory")
		}
		dir = filepath.Dir(dir)
	}
}

// share finds the running server, or starts a supervisor and waits for it. If several test
// binaries do this at once, one supervisor gets the lock and the others exit.
func share(ctx context.Context, dir string) (*embedded.Server, error) {
	started := 0 // process id of our supervisor while it runs
	for {
		if current, err := os.ReadFile(filepath.Join(dir, "current")); err == nil {
			server, found, err := embedded.Find(ctx, string(current))
			if err != nil {
				return nil, err
			}
			if found {
				return server, nil
			}
		}
		var err error
		if started, err = ensureSupervisor(dir, started); err != nil {
			return nil, fmt.Errorf("%w\n%s", err, supervisorLog(dir))
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w\n%s", ctx.Err(), supervisorLog(dir))
		case <-time.After(pollInterval):
		}
	}
}

// ensureSupervisor starts a supervisor unless ours still runs. If ours has exited without
// an error, it found another one, which may have been stopping.
func ensureSupervisor(dir string, pid int) (int, error) {
	if pid != 0 {
		var status syscall.WaitStatus
		ended, err := syscall.Wait4(pid, &status, syscall.WNOHANG, nil)
		if err == nil && ended == 0 {
			return pid, nil
		}
		if err == nil && status.ExitStatus() != 0 {
			return 0, errors.New("it did not start")
		}
		time.Sleep(pollInterval)
	}
	program, err := os.Executable()
	if err != nil {
		return 0, err
	}
	log, err := os.OpenFile(filepath.Join(dir, "supervisor.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(program) // without a context: it outlives the test
	cmd.Env = append(os.Environ(), superviseVariable+"="+dir)
	cmd.Dir = dir
	// Not the test's output: go test waits until that is closed.
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	return cmd.Process.Pid, nil
}

func supervisorLog(dir string) string {
	log, err := os.ReadFile(filepath.Join(dir, "supervisor.log"))
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(log[max(0, len(log)-4096):]))
}

// supervise runs the server in a new directory until no test binary has used it for a
// while, and then removes the directory. It returns nil at once if there is another
// supervisor. It never reuses a directory: the server runs without fsync, so a crash of
// the machine could leave a broken cluster.
func supervise(ctx context.Context, dir string) error {
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil
	}
	if err := os.Truncate(filepath.Join(dir, "supervisor.log"), 0); err != nil {
		return err
	}
	if left, err := filepath.Glob(filepath.Join(dir, "server-*")); err == nil {
		for _, old := range left {
			_ = os.RemoveAll(old) // left by a killed supervisor
		}
	}
	place := filepath.Join(dir, "server-"+strconv.Itoa(os.Getpid())+"-"+strconv.FormatInt(time.Now().UnixMilli(), 36))
	defer func() { _ = os.RemoveAll(place) }()
	server, err := embedded.Open(ctx, embedded.Options{
		Dir:        place,
		BinDir:     os.Getenv(binVariable),
		NoDownload: os.Getenv("TRANCHE_PG_DOWNLOAD") == "off",
		Volatile:   true,
		Notices:    os.Stderr,
	})
	if err != nil {
		return err
	}
	current := filepath.Join(dir, "current")
	if err := os.WriteFile(current+".new", []byte(place), 0o600); err != nil {
		return errors.Join(err, server.Close())
	}
	if err := os.Rename(current+".new", current); err != nil {
		return errors.Join(err, server.Close())
	}
	err = server.WaitUnused(ctx, idleTime())
	return errors.Join(err, os.Remove(current), server.Close())
}

func idleTime() time.Duration {
	if idle, err := time.ParseDuration(os.Getenv(idleVariable)); err == nil && idle > 0 {
		return idle
	}
	return idleTimeMax
}
