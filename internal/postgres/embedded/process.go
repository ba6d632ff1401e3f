package embedded

import (
	"fmt"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

const (
	stopWaitMax = 20 * time.Second // for a fast shutdown, with its checkpoint
	quitWaitMax = 10 * time.Second // for an immediate one
)

// process is the server's first process, the postmaster.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed after the end
	err    error         // how it ended; read after exited
}

// startProcess starts the command in a process group of its own, so that a
// terminal's Ctrl-C reaches only this process, and (on Linux) tied to this
// process's life: the kernel sends it SIGINT when this process dies, however it
// dies. That signal follows the thread that forked, hence the locked thread,
// which lives as long as the server.
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

// stop ends the server: connections are cut and a checkpoint is written; if
// that takes longer than 20 s it is stopped at once and recovers at its next
// start.
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
	return fmt.Errorf("the PostgreSQL server (process %d) does not end", p.cmd.Process.Pid)
}
