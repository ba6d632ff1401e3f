package embedded

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// install puts a PostgreSQL that only knows its version into a directory.
func install(t *testing.T, dir, version string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(dir, 0o755))
	script := fmt.Sprintf("#!/bin/sh\necho 'postgres (PostgreSQL) %s'\n", version)
	for _, program := range []string{"postgres", "initdb"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, program), []byte(script), 0o755))
	}
}

func TestFind(t *testing.T) {
	t.Parallel()
	base := openDir(t)
	installed := func(version string) string { return filepath.Join(base, "lib", version, "bin") }
	for _, version := range []string{"9", "14", "15", "17"} {
		install(t, installed(version), version+".2")
	}
	cached := filepath.Join(base, "cache", "postgresql-18-linux-amd64", "bin")
	install(t, cached, "18.4")
	install(t, filepath.Join(base, "beta"), "19beta1")
	require.NoError(t, os.MkdirAll(filepath.Join(base, "empty"), 0o700))

	for name, test := range map[string]struct {
		major, binDir string
		want          string
		wantErr       string
	}{
		"newest version":                          {want: installed("17")},
		"version of the cluster":                  {major: "15", want: installed("15")},
		"old version for an old cluster":          {major: "14", want: installed("14")},
		"cache if no package is installed":        {major: "18", want: cached},
		"missing version of a cluster":            {major: "16", wantErr: "need PostgreSQL 16"},
		"configured directory":                    {binDir: filepath.Join(base, "beta"), want: filepath.Join(base, "beta")},
		"configured directory without programs":   {binDir: filepath.Join(base, "empty"), wantErr: "TRANCHE_PG_BIN: " + base},
		"configured directory of another version": {binDir: installed("17"), major: "15", wantErr: "found: 17 ("},
		"configured directory too old":            {binDir: installed("14"), wantErr: "PostgreSQL 15 or newer is required"},
		"configured directory for an old cluster": {binDir: installed("9"), major: "9", want: installed("9")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			options := Options{BinDir: test.binDir, CacheDir: filepath.Join(base, "cache"), NoDownload: true, finder: nothingInstalled()}
			options.finder.globs = []string{filepath.Join(base, "lib", "*", "bin")}
			found, err := options.find(t.Context(), test.major)
			if test.wantErr != "" {
				require.ErrorContains(t, err, test.wantErr)
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.want, found.dir)
		})
	}
}

func TestDefaultDirs(t *testing.T) {
	t.Setenv("XDG_DATA_HOME", "/home/somebody/data")
	t.Setenv("XDG_CACHE_HOME", "/home/somebody/cache")
	dir, err := DefaultDir()
	require.NoError(t, err)
	cache, err := Options{}.cacheDir()
	require.NoError(t, err)
	if os.Geteuid() == 0 { // the user of the server cannot enter root's home
		require.Equal(t, []string{"/var/lib/tranche", "/var/cache/tranche"}, []string{dir, cache})
		return
	}
	require.Equal(t, []string{"/home/somebody/data/tranche", "/home/somebody/cache/tranche"}, []string{dir, cache})
}
