//go:build unix && !linux

package embedded

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// tieToParent does nothing: only Linux tells a child of its parent's death. The
// next start stops a server that was left behind.
func tieToParent(*syscall.SysProcAttr) {}

// clearRemains stops the server that a killed predecessor left running. The
// caller holds the directory's lock, so nobody uses it. Lock files
// without a process are PostgreSQL's own to judge.
func clearRemains(ctx context.Context, place *place) error {
	cluster := place.cluster
	for began := time.Now(); ; {
		pid := postmasterOf(ctx, cluster)
		if pid == 0 {
			return nil
		}
		signal, waited := syscall.SIGINT, time.Since(began)
		if waited > stopWaitMax {
			signal = syscall.SIGQUIT
		}
		if waited > stopWaitMax+quitWaitMax {
			return fmt.Errorf("the PostgreSQL process %d of an earlier start still runs in %s", pid, cluster)
		}
		_ = syscall.Kill(pid, signal)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pollInterval):
		}
	}
}

// postmasterOf is the process that postmaster.pid names, if it is a postgres
// that was started for the cluster; else 0.
func postmasterOf(ctx context.Context, cluster string) int {
	text, err := os.ReadFile(filepath.Join(cluster, "postmaster.pid"))
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(first)
	if err != nil || pid <= 1 {
		return 0
	}
	command, err := exec.CommandContext(ctx, "ps", "-o", "command=", "-p", first).Output() //nolint:gosec // a number
	if err != nil || !strings.Contains(string(command), cluster) {
		return 0
	}
	return pid
}
