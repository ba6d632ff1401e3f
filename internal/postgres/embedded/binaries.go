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

// majorMin is the oldest PostgreSQL for new clusters: the oldest that the tests
// run on.
const majorMin = 15

// binaries are the programs of one PostgreSQL.
type binaries struct {
	dir   string // holds initdb and postgres
	major int
}

// locales are initdb's arguments in order of preference: UTF-8 character
// classes with an order that no upgrade of the system's library changes.
func (b binaries) locales() [][]string {
	if b.major >= 17 {
		return [][]string{{"--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C"}}
	}
	return [][]string{{"--locale=C.UTF-8"}, {"--locale=C", "--lc-ctype=en_US.UTF-8"}, {"--locale=C"}}
}

// finder says where PostgreSQL may be installed and how it is fetched.
type finder struct {
	pgConfig string   // program that knows the directory
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

// find returns the binaries to run a cluster with: of exactly the given major
// version if the cluster exists, else the newest.
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
			return binaries{}, misfit(o.Dir, major, []binaries{found})
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
		return binaries{}, misfit(o.Dir, major, all)
	}
	if o.NoDownload {
		return binaries{}, fmt.Errorf("no PostgreSQL is installed and fetching one is forbidden (TRANCHE_PG_DOWNLOAD=off): %s", installAdvice)
	}
	if cacheErr != nil {
		return binaries{}, fmt.Errorf("no PostgreSQL is installed and there is no directory to keep a fetched one in (%w): %s", cacheErr, installAdvice)
	}
	return o.finder.fetcher.fetch(ctx, cache, o.Notices)
}

// installed lists what is there, newest first; what was installed for the
// machine goes before the cache.
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

// inspect checks that a directory holds a server and asks its version.
func inspect(ctx context.Context, dir string) (binaries, error) {
	for _, program := range []string{"initdb", "postgres"} {
		if info, err := os.Stat(filepath.Join(dir, program)); err != nil || info.IsDir() {
			return binaries{}, fmt.Errorf("%s has no %s", dir, program)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	output, err := versionOf(ctx, dir)
	// Just unpacked: a process forked meanwhile may hold the file open for a moment.
	for ; errors.Is(err, syscall.ETXTBSY); output, err = versionOf(ctx, dir) {
		time.Sleep(pollInterval)
	}
	if err != nil {
		return binaries{}, fmt.Errorf("%s/postgres --version: %w: %s", dir, err, strings.TrimSpace(string(output)))
	}
	match := versionPattern.FindSubmatch(output)
	if match == nil {
		return binaries{}, fmt.Errorf("%s/postgres --version says %q", dir, output)
	}
	major, err := strconv.Atoi(string(match[1]))
	if err != nil {
		return binaries{}, fmt.Errorf("%s/postgres --version says %q", dir, output)
	}
	return binaries{dir: dir, major: major}, nil
}

func versionOf(ctx context.Context, dir string) ([]byte, error) {
	return exec.CommandContext(ctx, filepath.Join(dir, "postgres"), "--version").CombinedOutput() //nolint:gosec // the operator's binaries
}

// misfit explains that no found version can run the cluster.
func misfit(dir, major string, found []binaries) error {
	have := "none is installed"
	if len(found) > 0 {
		names := make([]string, len(found))
		for i, b := range found {
			names[i] = fmt.Sprintf("%d (%s)", b.major, b.dir)
		}
		have = "found: " + strings.Join(names, ", ")
	}
	if major == "" {
		return fmt.Errorf("PostgreSQL %d or newer is needed; %s: %s", majorMin, have, installAdvice)
	}
	return fmt.Errorf("the data in %s were made by PostgreSQL %s, which alone can run them; %s: install PostgreSQL %s, move the data over with pg_upgrade, or choose another TRANCHE_DATA_DIR", dir, major, have, major)
}

const installAdvice = "install it (apt-get install postgresql, dnf install postgresql-server, apk add postgresql, brew install postgresql), name its directory in TRANCHE_PG_BIN, or set DATABASE_URL to a server"

// cacheDir is where fetched binaries are kept: for root where the user that the
// server drops to can read.
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
