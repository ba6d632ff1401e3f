package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"tranche/internal/secret"
)

const (
	startsMeasured = 3
	startTimeMax   = 30 * time.Second
	stopTimeMax    = 30 * time.Second
)

// service is the measured process.
type service struct {
	addr string
	cmd  *exec.Cmd
}

// measureStart measures several starts of the service and keeps the last one running.
func (b *bench) measureStart(ctx context.Context, dir string) (err error) {
	key := secret.GenerateKey()
	for start := range startsMeasured {
		fmt.Fprintf(b.Progress, "start %d of %d\n", start+1, startsMeasured)
		begin := time.Now()
		if b.service, err = b.startService(ctx, dir, key); err != nil {
			return err
		}
		b.add(readyTime, time.Since(begin).Seconds())
		if start < startsMeasured-1 {
			if err := b.service.stop(); err != nil {
				return err
			}
		}
	}
	return nil
}

// startService starts the service and waits until /readyz returns 200. The log goes to a
// file.
func (b *bench) startService(ctx context.Context, dir, key string) (_ *service, err error) {
	log, err := os.OpenFile(filepath.Join(dir, "service.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	cmd := exec.CommandContext(ctx, b.program, "serve", "--addr=127.0.0.1:0", "--egress-allow="+b.bureau.addr, "--mail-dir="+filepath.Join(dir, "mail")) // #nosec G204 -- the operator's program
	cmd.Env = append(os.Environ(), "DATABASE_URL="+b.db.url, "TRANCHE_MASTER_KEY="+key)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopTimeMax
	cmd.Stderr = log
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s := &service{cmd: cmd}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the service ended, see %s: %w", log.Name(), err), cmd.Wait())
	}
	go func() { _, _ = io.Copy(io.Discard, stdout) }() // ends with the process
	s.addr = strings.TrimPrefix(strings.TrimSpace(line), "listening on http://")
	for deadline := time.Now().Add(startTimeMax); ; time.Sleep(time.Millisecond) {
		if w, err := dial(s.addr, ""); err == nil {
			_, err = w.send(w.request(http.MethodGet, "/readyz", nil), http.StatusOK)
			_ = w.Close()
			if err == nil {
				return s, nil
			}
		}
		if time.Now().After(deadline) {
			return nil, errors.Join(errors.New("the service is not ready"), s.stop())
		}
	}
}

func (s *service) stop() error {
	if s == nil || s.cmd.Process == nil {
		return nil
	}
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return s.cmd.Wait()
}

// measureIdle measures the processor time and the memory of the idle service.
func (b *bench) measureIdle(ctx context.Context) error {
	time.Sleep(b.Span) // the work of its start is over then
	before, err := b.service.cpu()
	if err != nil {
		return err
	}
	begin := time.Now()
	time.Sleep(5 * b.Span)
	after, err := b.service.cpu()
	if err != nil {
		return err
	}
	b.add(idleCPU, 100*(after-before).Seconds()/time.Since(begin).Seconds())
	memory, err := b.service.memory("VmRSS")
	b.add(idleMemory, memory)
	return err
}
