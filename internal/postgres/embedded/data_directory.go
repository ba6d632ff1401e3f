package embedded

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// socketPathMax is the longest path of a socket without the final zero byte. The limit of macOS
// is 104 bytes, that of Linux 108.
const socketPathMax = 103

// DefaultDir returns the default data directory: /var/lib/tranche for root, because the user of
// the server cannot enter root's home, otherwise tranche in $XDG_DATA_HOME or ~/.local/share.
func DefaultDir() (string, error) {
	if os.Geteuid() == 0 {
		return "/var/lib/tranche", nil
	}
	if base := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(base) {
		return filepath.Join(base, "tranche"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("there is no home directory for the data (%w): set TRANCHE_DATA_DIR", err)
	}
	return filepath.Join(home, ".local", "share", "tranche"), nil
}

// dataDir has the paths of one data directory.
type dataDir struct {
	dir       string // the data directory
	cluster   string // PostgreSQL's data directory
	socketDir string
	logFile   string
}

func newDataDir(dir string) (*dataDir, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	// A directory with two names must have one server.
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	p := &dataDir{
		dir:       dir,
		cluster:   filepath.Join(dir, "postgres"),
		socketDir: filepath.Join(dir, "socket"),
		logFile:   filepath.Join(dir, "postgres.log"),
	}
	if !socketFits(p.socketDir) {
		sum := sha256.Sum256([]byte(dir))
		p.socketDir = filepath.Join(os.TempDir(), "tranche-"+hex.EncodeToString(sum[:6]))
	}
	if !socketFits(p.socketDir) {
		return nil, fmt.Errorf("the path of the socket in %s is longer than %d bytes: set a shorter TRANCHE_DATA_DIR or TMPDIR", p.socketDir, socketPathMax)
	}
	return p, nil
}

func socketFits(dir string) bool {
	return len(filepath.Join(dir, ".s.PGSQL.5432")) <= socketPathMax
}

// findDataDir returns an existing data directory.
func findDataDir(dir string) (*dataDir, bool, error) {
	p, err := newDataDir(dir)
	if err != nil {
		return nil, false, err
	}
	_, err = os.Stat(p.cluster)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	return p, err == nil, err
}

// prepareDataDir creates the directory. The user of the server can enter a directory of root.
// The cluster and the socket are always closed to other users.
func prepareDataDir(dir string) (*dataDir, error) {
	mode := fs.FileMode(0o700)
	if os.Geteuid() == 0 {
		mode = 0o711
	}
	_, err := os.Stat(dir)
	missing := errors.Is(err, fs.ErrNotExist)
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // the last element is closed right below
		return nil, fmt.Errorf("data directory: %w", err)
	}
	if missing {
		if err := os.Chmod(dir, mode); err != nil {
			return nil, fmt.Errorf("data directory: %w", err)
		}
	}
	return newDataDir(dir)
}

// prepareSocketDir creates the directory of the socket with access for its owner only. It
// rejects a directory of another user.
func (p *dataDir) prepareSocketDir(owner account) error {
	err := os.Mkdir(p.socketDir, 0o700)
	if err == nil {
		return owner.own(p.socketDir)
	}
	if !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("socket directory: %w", err)
	}
	info, err := os.Lstat(p.socketDir)
	if err != nil {
		return fmt.Errorf("socket directory: %w", err)
	}
	if !info.IsDir() || statOf(info).Uid != owner.uid || info.Mode().Perm() != 0o700 {
		return fmt.Errorf("the socket directory %s must belong to user %d and have mode 0700: remove it", p.socketDir, owner.uid)
	}
	return nil
}

// url returns the connection string of a database of the cluster. It contains the port, so that
// PGPORT has no effect.
func (p *dataDir) url(database string) string {
	query := url.Values{"host": {p.socketDir}, "port": {"5432"}}
	return "postgres://" + user + "@/" + database + "?" + query.Encode()
}

// locks are two lock files. The kernel releases their locks when a process ends.
type locks struct {
	holder *os.File // exclusive for the process that runs the server
	users  *os.File // shared for a process that uses the server; exclusive while it stops
}

func openLocks(p *dataDir) (*locks, error) {
	holder, err := os.OpenFile(filepath.Join(p.dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock of the data directory: %w", err)
	}
	users, err := os.OpenFile(filepath.Join(p.dir, "users.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		_ = holder.Close()
		return nil, fmt.Errorf("lock of the data directory: %w", err)
	}
	return &locks{holder: holder, users: users}, nil
}

func (l *locks) hold() bool    { return flock(l.holder, syscall.LOCK_EX) }
func (l *locks) use() bool     { return flock(l.users, syscall.LOCK_SH) }
func (l *locks) exclude() bool { return flock(l.users, syscall.LOCK_EX) }
func (l *locks) releaseUse()   { flock(l.users, syscall.LOCK_UN) }

func (l *locks) close() {
	_ = l.users.Close()
	_ = l.holder.Close()
}

func flock(file *os.File, how int) bool {
	return syscall.Flock(int(file.Fd()), how|syscall.LOCK_NB) == nil
}

// majorVersion returns the PostgreSQL version of the cluster, or "" if there is no cluster.
func (p *dataDir) majorVersion() (string, error) {
	text, err := os.ReadFile(filepath.Join(p.cluster, "PG_VERSION"))
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(p.cluster); err == nil {
			return "", fmt.Errorf("%s exists but is not a PostgreSQL data directory: move it away or set another TRANCHE_DATA_DIR", p.cluster)
		}
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("version of the data directory: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}
