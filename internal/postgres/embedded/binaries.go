package embedded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// majorMin is the lowest PostgreSQL version for new clusters, and the lowest that the tests use.
const majorMin = 15

// binaries are the programs of one PostgreSQL version.
type binaries struct {
	dir   string // contains initdb and postgres
	major int
}

// locales returns arguments of initdb in order of preference. They select UTF-8 character classes
// and a sort order that no upgrade of the system's C library changes.
func (b binaries) locales() [][]string {
	if b.major >= 17 {
		return [][]string{{"--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C"}}
	}
	return [][]string{{"--locale=C.UTF-8"}, {"--locale=C", "--lc-ctype=en_US.UTF-8"}, {"--locale=C"}}
}

// finder finds installed binaries and downloads others.
type finder struct {
	pgConfig string   // program that prints the directory
	globs    []string // directories of packages
	fetcher  fetcher
}

func (f finder) isZero() bool { return f.pgConfig == "" && f.globs == nil }

func defaultFinder() finder {
	return finder{
		pgConfig: "pg_config",
		globs: []string{
			"/usr/lib/postgresql/*/bin",         // Debian, Ubuntu
			"/usr/pgsql-*/bin",                  // PGDG on Fedora and Red Hat
			"/usr/libexec/postgresql*",          // Alpine
			"/opt/homebrew/opt/postgresql*/bin", // Homebrew on Apple silicon
			"/usr/local/opt/postgresql*/bin",    // Homebrew on Intel
			"/home/linuxbrew/.linuxbrew/opt/postgresql*/bin",
			"/usr/local/pgsql/bin", // from source
			"/usr/bin",             // Fedora, Arch
		},
		fetcher: defaultFetcher(),
	}
}

// find returns binaries of the given major version or, if it is empty because there is no
// cluster, of the newest version.
func (o Options) find(ctx context.Context, major string) (binaries, error) {
	fits := func(b binaries) bool { return b.major >= majorMin }
	if major != "" {
		fits = func(b binaries) bool { return strconv.Itoa(b.major) == major }
	}
	if o.BinDir != "" {
		found, err := inspect(ctx, o.BinDir)
		if err != nil {
			return binaries{}, fmt.Errorf("TRANCHE_PG_BIN: %w", err)
		}
		if !fits(found) {
			return binaries{}, versionError(o.Dir, major, []binaries{found})
		}
		return found, nil
	}
	cache, cacheErr := o.cacheDir()
	all := o.finder.installed(ctx, cache)
	for _, candidate := range all {
		if fits(candidate) {
			return candidate, nil
		}
	}
	if major != "" && major != strconv.Itoa(fetchedMajor) {
		return binaries{}, versionError(o.Dir, major, all)
	}
	if o.NoDownload {
		return binaries{}, fmt.Errorf("PostgreSQL is not installed, and downloads are disabled (TRANCHE_PG_DOWNLOAD=off): %s", installHint)
	}
	if cacheErr != nil {
		return binaries{}, fmt.Errorf("PostgreSQL is not installed, and there is no cache directory for a download (%w): %s", cacheErr, installHint)
	}
	return o.finder.fetcher.fetch(ctx, cache, o.Notices)
}

// installed returns the available binaries, newest first. Installed packages come before the
// cache.
func (f finder) installed(ctx context.Context, cache string) []binaries {
	var dirs []string
	if output, err := exec.CommandContext(ctx, f.pgConfig, "--bindir").Output(); err == nil { //nolint:gosec // a fixed name
		dirs = append(dirs, strings.TrimSpace(string(output)))
	}
	for _, pattern := range f.globs {
		if matches, err := filepath.Glob(pattern); err == nil {
			dirs = append(dirs, matches...)
		}
	}
	found := inspectAll(ctx, dirs)
	if cached, err := filepath.Glob(filepath.Join(cache, "postgresql-*", "bin")); err == nil && cache != "" {
		found = append(found, inspectAll(ctx, cached)...)
	}
	return found
}

func inspectAll(ctx context.Context, dirs []string) []binaries {
	var found []binaries
	slices.Sort(dirs)
	for _, dir := range slices.Compact(dirs) {
		if b, err := inspect(ctx, dir); err == nil {
			found = append(found, b)
		}
	}
	slices.SortStableFunc(found, func(a, b binaries) int { return cmp.Compare(b.major, a.major) })
	return found
}

var versionPattern = regexp.MustCompile(`\(PostgreSQL\) (\d+)`) // constant, compiled once

// inspect checks that a directory contains a server and returns its version.
func inspect(ctx context.Context, dir string) (binaries, error) {
	for _, program := range []string{"initdb", "postgres"} {
		if info, err := os.Stat(filepath.Join(dir, program)); err != nil || info.IsDir() {
			return binaries{}, fmt.Errorf("%s has no %s", dir, program)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	output, err := versionOf(ctx, dir)
	// After unpacking, a process that was forked at the same time may have the file open for
	// a moment.
	for ; errors.Is(err, syscall.ETXTBSY); output, err = versionOf(ctx, dir) {
		time.Sleep(pollInterval)
	}
	if err != nil {
		return binaries{}, fmt.Errorf("%s/postgres --version: %w: %s", dir, err, strings.TrimSpace(string(output)))
	}
	match := versionPattern.FindSubmatch(output)
	if match == nil {
		return binaries{}, fmt.Errorf("%s/postgres --version printed %q", dir, output)
	}
	major, err := strconv.Atoi(string(match[1]))
	if err != nil {
		return binaries{}, fmt.Errorf("%s/postgres --version printed %q", dir, output)
	}
	return binaries{dir: dir, major: major}, nil
}

func versionOf(ctx context.Context, dir string) ([]byte, error) {
	return exec.CommandContext(ctx, filepath.Join(dir, "postgres"), "--version").CombinedOutput() //nolint:gosec // the operator's binaries
}

// versionError returns an error that lists the versions found.
func versionError(dir, major string, found []binaries) error {
	have := "it is not installed"
	if len(found) > 0 {
		names := make([]string, len(found))
		for i, b := range found {
			names[i] = fmt.Sprintf("%d (%s)", b.major, b.dir)
		}
		have = "found: " + strings.Join(names, ", ")
	}
	if major == "" {
		return fmt.Errorf("PostgreSQL %d or newer is required; %s: %s", majorMin, have, installHint)
	}
	return fmt.Errorf("the data in %s need PostgreSQL %s; %s: install PostgreSQL %s, upgrade the data with pg_upgrade, or set another TRANCHE_DATA_DIR", dir, major, have, major)
}

const installHint = "install it (apt-get install postgresql, dnf install postgresql-server, apk add postgresql, brew install postgresql), set TRANCHE_PG_BIN to its directory, or set DATABASE_URL to a server"

// cacheDir returns the directory of downloaded binaries. The user of the server can read it.
func (o Options) cacheDir() (string, error) {
	if o.CacheDir != "" {
		return filepath.Abs(o.CacheDir)
	}
	if os.Geteuid() == 0 && runtime.GOOS != "darwin" {
		return "/var/cache/tranche", nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "tranche"), nil
}
