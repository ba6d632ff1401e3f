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

// tieToParent does nothing, because only Linux can signal the death of a parent. The next start
// stops a stale server.
func tieToParent(*syscall.SysProcAttr) {}

// stopStaleServer stops the server of a killed holder. The caller holds the lock of the
// directory, so no process uses the server. PostgreSQL itself checks lock files without a process.
func stopStaleServer(ctx context.Context, dir *dataDir) error {
	cluster := dir.cluster
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

// postmasterOf returns the process id in postmaster.pid if that process is a server of the
// cluster, otherwise 0.
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
