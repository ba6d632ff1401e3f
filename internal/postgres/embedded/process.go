package embedded

import (
	"fmt"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

const (
	stopWaitMax = 20 * time.Second // for a fast shutdown with a checkpoint
	quitWaitMax = 10 * time.Second // for an immediate shutdown
)

// process is the main process of the server, the postmaster.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed after the end
	err    error         // how it ended; valid after exited
}

// startProcess starts the command in its own process group, so that Ctrl-C in a terminal reaches
// only this process. On Linux, the kernel sends SIGINT to the server when this process dies. The
// kernel ties that signal to the thread that forked, so the thread is locked and lives as long as
// the server.
func startProcess(cmd *exec.Cmd) (*process, error) {
	cmd.SysProcAttr.Setpgid = true
	tieToParent(cmd.SysProcAttr)
	p := &process{cmd: cmd, exited: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
			close(p.exited)
		}
	}()
	return p, <-started
}

// stop stops the server with a fast shutdown, which closes connections and writes a checkpoint.
// After 20 s it stops the server immediately; the next start then recovers.
func (p *process) stop() error {
	for _, step := range []struct {
		signal syscall.Signal
		wait   time.Duration
	}{{syscall.SIGINT, stopWaitMax}, {syscall.SIGQUIT, quitWaitMax}, {syscall.SIGKILL, quitWaitMax}} {
		_ = p.cmd.Process.Signal(step.signal)
		select {
		case <-p.exited:
			return nil
		case <-time.After(step.wait):
		}
	}
	return fmt.Errorf("the PostgreSQL server (process %d) did not end", p.cmd.Process.Pid)
}
