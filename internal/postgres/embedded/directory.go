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

// socketPathMax is what fits into sockaddr_un with its final zero on the
// strictest system (macOS 104, Linux 108).
const socketPathMax = 103

// DefaultDir is where data live when nothing else is said: /var/lib/tranche for
// root (whose home is closed to the user the server drops to), else
// tranche in $XDG_DATA_HOME or ~/.local/share.
func DefaultDir() (string, error) {
	if os.Geteuid() == 0 {
		return "/var/lib/tranche", nil
	}
	if base := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(base) {
		return filepath.Join(base, "tranche"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("no home directory to keep data in (%w): set TRANCHE_DATA_DIR", err)
	}
	return filepath.Join(home, ".local", "share", "tranche"), nil
}

// place knows the paths of one data directory.
type place struct {
	dir       string // the whole
	cluster   string // PostgreSQL's data directory
	socketDir string
	logFile   string
}

func newPlace(dir string) (*place, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	// One directory under two names must lead to one server.
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	p := &place{
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
		return nil, fmt.Errorf("the path of the socket in %s is longer than %d bytes: choose a shorter TRANCHE_DATA_DIR or TMPDIR", p.socketDir, socketPathMax)
	}
	return p, nil
}

func socketFits(dir string) bool {
	return len(filepath.Join(dir, ".s.PGSQL.5432")) <= socketPathMax
}

// findPlace returns the place of an existing directory.
func findPlace(dir string) (*place, bool, error) {
	p, err := newPlace(dir)
	if err != nil {
		return nil, false, err
	}
	_, err = os.Stat(p.cluster)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	return p, err == nil, err
}

// preparePlace makes the directory. Root's is open to the user that the server
// drops to; the cluster and the socket are always closed to others.
func preparePlace(dir string) (*place, error) {
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
	return newPlace(dir)
}

// prepareSocketDir makes the socket's directory with access for its owner only,
// and refuses one that somebody else has put there.
func (p *place) prepareSocketDir(owner account) error {
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
		return fmt.Errorf("the socket directory %s is not a directory of user %d alone (mode 0700): remove it", p.socketDir, owner.uid)
	}
	return nil
}

// url is the connection string of a database of the cluster. It names the port
// so that PGPORT has no say.
func (p *place) url(database string) string {
	query := url.Values{"host": {p.socketDir}, "port": {"5432"}}
	return "postgres://" + user + "@/" + database + "?" + query.Encode()
}

// locks are the two files by which processes agree: one says who runs the
// server, the other who uses it. The kernel frees them when a process ends.
type locks struct {
	holder *os.File // exclusive: the process that runs the server
	users  *os.File // shared: a process that uses it; exclusive: it is being stopped
}

func openLocks(p *place) (*locks, error) {
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
func (l *locks) readmit()      { flock(l.users, syscall.LOCK_UN) }

func (l *locks) close() {
	_ = l.users.Close()
	_ = l.holder.Close()
}

func flock(file *os.File, how int) bool {
	return syscall.Flock(int(file.Fd()), how|syscall.LOCK_NB) == nil
}

// majorVersion reads which PostgreSQL made the cluster; "" when there is none.
func (p *place) majorVersion() (string, error) {
	text, err := os.ReadFile(filepath.Join(p.cluster, "PG_VERSION"))
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(p.cluster); err == nil {
			return "", fmt.Errorf("%s exists but is no PostgreSQL data directory: move it away or choose another TRANCHE_DATA_DIR", p.cluster)
		}
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("version of the data directory: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}
