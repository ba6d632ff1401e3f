package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// ticksPerSecond is the unit of times in /proc/PID/stat.
const ticksPerSecond = 100

// processorTime returns the processor time of a process and its ended children, and the
// parent of the process. It needs Linux.
func processorTime(pid int) (took time.Duration, parent int, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, err
	}
	_, rest, _ := strings.Cut(string(text), ") ") // the name may contain spaces
	const parentField, user, system, childrenUser, childrenSystem = 1, 11, 12, 13, 14
	fields := strings.Fields(rest)
	var numbers [5]int
	for i, field := range []int{parentField, user, system, childrenUser, childrenSystem} {
		if field >= len(fields) {
			return 0, 0, fmt.Errorf("/proc/%d/stat: %q", pid, text)
		}
		if numbers[i], err = strconv.Atoi(fields[field]); err != nil {
			return 0, 0, err
		}
	}
	ticks := numbers[1] + numbers[2] + numbers[3] + numbers[4]
	return time.Duration(ticks) * time.Second / ticksPerSecond, numbers[0], nil
}

// cpu returns the processor time of the service.
func (s *service) cpu() (time.Duration, error) {
	took, _, err := processorTime(s.cmd.Process.Pid)
	return took, err
}

// cpu returns the processor time of all processes of the server, including those that have
// ended. They have the same parent as the backend of this connection.
func (d *database) cpu(ctx context.Context) (time.Duration, error) {
	var backend int
	if err := d.own.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&backend); err != nil {
		return 0, err
	}
	_, postmaster, err := processorTime(backend)
	if err != nil {
		return 0, err
	}
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return 0, err
	}
	var all time.Duration
	for _, process := range processes {
		pid, err := strconv.Atoi(filepath.Base(process))
		if err != nil {
			continue
		}
		took, parent, err := processorTime(pid)
		if err == nil && (pid == postmaster || parent == postmaster) { // a process may end meanwhile
			all += took
		}
	}
	return all, nil
}

// memory returns the resident memory in MB: VmRSS is the current value, VmHWM the maximum.
func (s *service) memory(field string) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	_, rest, found := strings.Cut(string(text), field+":")
	words := strings.Fields(rest)
	if !found || len(words) == 0 {
		return 0, fmt.Errorf("/proc/PID/status has no %s", field)
	}
	kib, err := strconv.ParseFloat(words[0], 64)
	return kib * 1024 / 1e6, err
}

// spent holds the resources used so far.
type spent struct {
	service, server time.Duration // processor time
	wal             float64       // bytes
}

func (b *bench) spent(ctx context.Context) (s spent, err error) {
	if s.wal, err = b.db.wal(ctx); err != nil {
		return s, err
	}
	if s.service, err = b.service.cpu(); err != nil {
		return s, err
	}
	s.server, err = b.db.cpu(ctx)
	return s, err
}

// addSpent records the resources used since before, divided by n: the processor times of
// service and server in microseconds, and the WAL in bytes.
func (b *bench) addSpent(ctx context.Context, before spent, n int, service, server, wal measure) error {
	after, err := b.spent(ctx)
	if err != nil {
		return err
	}
	b.add(service, microseconds(after.service-before.service)/float64(n))
	b.add(server, microseconds(after.server-before.server)/float64(n))
	b.add(wal, (after.wal-before.wal)/float64(n))
	return nil
}

func microseconds(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
