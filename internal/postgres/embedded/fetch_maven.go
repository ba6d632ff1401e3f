package embedded

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"time"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"
)

const (
	mavenRepository = "https://repo1.maven.org/maven2"
	mavenVersion    = embeddedpostgres.V18
	mavenProbeMax   = 5 * time.Second
)

// fromRepository lets embedded-postgres download, verify and unpack its archive. That library can
// only start a server, and its server would delete a data directory of another version. So
// fromRepository requests an encoding that does not exist: initdb fails after the unpacking.
func (f fetcher) fromRepository(ctx context.Context, work string, notices io.Writer) error {
	archive := f.mavenArchive()
	size, err := f.probe(ctx, archive)
	if err != nil {
		return err
	}
	if _, err := f.probe(ctx, archive+".sha256"); err != nil {
		return err // without it, the library would not verify the archive
	}
	tree := filepath.Join(work, "tree")
	fmt.Fprintf(notices, "downloading PostgreSQL %s (%d MB) from %s to %s\n", mavenVersion, (size+1e6-1)/1e6, f.repository, filepath.Dir(work))
	server := embeddedpostgres.NewDatabase(embeddedpostgres.DefaultConfig().
		Version(mavenVersion).
		BinaryRepositoryURL(f.repository).
		CachePath(filepath.Join(work, "archive")).
		RuntimePath(filepath.Join(work, "runtime")).
		DataPath(filepath.Join(work, "data")).
		BinariesPath(tree).
		Encoding("none: unpack only").
		Port(0).
		Logger(io.Discard))
	failed := make(chan error, 1)
	go func() { failed <- server.Start() }()
	select {
	case <-ctx.Done():
		return fmt.Errorf("download of %s: %w", archive, ctx.Err())
	case err := <-failed:
		if _, missing := os.Stat(filepath.Join(tree, "bin", "initdb")); missing != nil {
			return fmt.Errorf("download of %s: %w", archive, err)
		}
		return nil
	}
}

// mavenArchive returns the address that embedded-postgres downloads.
func (f fetcher) mavenArchive() string {
	arch := runtime.GOARCH
	if arch == "arm64" {
		arch = "arm64v8"
	}
	if _, err := os.Stat("/etc/alpine-release"); err == nil && runtime.GOOS == "linux" {
		arch += "-alpine"
	}
	name := fmt.Sprintf("embedded-postgres-binaries-%s-%s", runtime.GOOS, arch)
	return fmt.Sprintf("%s/io/zonky/test/postgres/%s/%s/%s-%s.jar", f.repository, name, mavenVersion, name, mavenVersion)
}

// probe checks that a file exists and returns its size. It has a short time limit, because the
// library has none.
func (f fetcher) probe(ctx context.Context, address string) (size int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, f.probeTimeMax)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodHead, address, nil)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("HEAD %s: %s", address, response.Status)
	}
	return max(response.ContentLength, 0), nil
}
