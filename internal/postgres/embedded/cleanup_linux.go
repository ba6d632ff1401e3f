package embedded

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func tieToParent(attributes *syscall.SysProcAttr) { attributes.Pdeathsig = syscall.SIGINT }

// stopStaleServer stops the server of a killed holder and its backends, and removes its lock
// files. The process id in a lock file may belong to another process by now, or to a zombie;
// then PostgreSQL would not start. The caller holds the lock of the directory, so no process uses
// the server. The working directory of all PostgreSQL processes is the cluster.
func stopStaleServer(ctx context.Context, dir *dataDir) error {
	cluster := dir.cluster
	for began := time.Now(); ; {
		left := processesIn(cluster)
		if len(left) == 0 {
			break
		}
		signal, waited := syscall.SIGINT, time.Since(began)
		if waited > stopWaitMax {
			signal = syscall.SIGQUIT
		}
		if waited > stopWaitMax+quitWaitMax {
			return fmt.Errorf("the PostgreSQL processes %v of an earlier start still run in %s", left, cluster)
		}
		if postmaster := postmasterOf(cluster); postmaster != 0 {
			_ = syscall.Kill(postmaster, signal)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pollInterval):
		}
	}
	for _, stale := range []string{filepath.Join(cluster, "postmaster.pid"), filepath.Join(dir.socketDir, ".s.PGSQL.5432.lock")} {
		if err := os.Remove(stale); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("stale lock file: %w", err)
		}
	}
	return nil
}

// postmasterOf returns the process id in postmaster.pid if that process runs in the cluster,
// otherwise 0.
func postmasterOf(cluster string) int {
	text, err := os.ReadFile(filepath.Join(cluster, "postmaster.pid"))
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(first)
	if err != nil || pid <= 1 {
		return 0
	}
	if dir, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid)); err != nil || dir != cluster {
		return 0
	}
	return pid
}

// processesIn returns the PostgreSQL processes whose working directory is the cluster.
func processesIn(cluster string) []int {
	links, err := filepath.Glob("/proc/[0-9]*/cwd")
	if err != nil {
		return nil
	}
	var found []int
	for _, link := range links {
		if dir, err := os.Readlink(link); err != nil || dir != cluster {
			continue
		}
		name, err := os.ReadFile(filepath.Join(filepath.Dir(link), "comm"))
		if err != nil || strings.TrimSpace(string(name)) != "postgres" {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(link))); err == nil {
			found = append(found, pid)
		}
	}
	return found
}
