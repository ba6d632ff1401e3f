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

// clearRemains ends what a killed predecessor left behind: a server that is
// still stopping (it got SIGINT when its parent died), its last backends, and
// lock files whose process number may since belong to an unrelated process, or
// to a dead one that nobody has waited for, in which cases PostgreSQL would
// refuse to start. The caller holds the directory's lock, so nothing that runs
// there is in use; what runs there is known by its working directory, which
// every PostgreSQL process shares.
func clearRemains(ctx context.Context, place *place) error {
	cluster := place.cluster
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
			return fmt.Errorf("PostgreSQL processes %v of an earlier start still run in %s", left, cluster)
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
	for _, stale := range []string{filepath.Join(cluster, "postmaster.pid"), filepath.Join(place.socketDir, ".s.PGSQL.5432.lock")} {
		if err := os.Remove(stale); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("stale lock file: %w", err)
		}
	}
	return nil
}

// postmasterOf is the process that postmaster.pid names, if it runs in the
// cluster; else 0.
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

// processesIn are the processes whose working directory is the cluster and that
// are PostgreSQL's, not a shell that somebody left there.
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
