package embedded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// start brings up the server of the place; the caller holds the lock. Binaries
// are found anew each time: an upgrade of the system may have moved them.
func (s *Server) start(ctx context.Context) (*process, error) {
	account, err := serverAccount(s.place)
	if err != nil {
		return nil, err
	}
	if err := account.checkReach(s.place.dir, "choose another TRANCHE_DATA_DIR"); err != nil {
		return nil, err
	}
	major, err := s.place.majorVersion()
	if err != nil {
		return nil, err
	}
	binaries, err := s.options.find(ctx, major)
	if err != nil {
		return nil, err
	}
	if err := account.checkReach(binaries.dir, "install PostgreSQL where all users can run it"); err != nil {
		return nil, err
	}
	if major == "" {
		if err := s.initialise(ctx, binaries, account); err != nil {
			return nil, err
		}
	}
	if err := s.place.prepareSocketDir(account); err != nil {
		return nil, err
	}
	if err := clearRemains(ctx, s.place); err != nil {
		return nil, err
	}
	return s.launch(ctx, binaries, account)
}

// initialise makes the cluster beside its final place and moves it there whole,
// so that an interrupted initdb leaves nothing that looks like data.
func (s *Server) initialise(ctx context.Context, binaries binaries, account account) error {
	if left, err := filepath.Glob(filepath.Join(s.place.dir, "initdb-*")); err == nil {
		for _, dir := range left {
			_ = os.RemoveAll(dir) // of an initdb that never finished
		}
	}
	var firstErr error
	for _, locale := range binaries.locales() {
		fresh, err := os.MkdirTemp(s.place.dir, "initdb-")
		if err != nil {
			return fmt.Errorf("new cluster: %w", err)
		}
		defer func() { _ = os.RemoveAll(fresh) }()
		if err := account.own(fresh); err != nil {
			return fmt.Errorf("new cluster: %w", err)
		}
		args := append([]string{"--pgdata=" + fresh, "--username=" + user, "--auth=trust", "--encoding=UTF8", "--no-instructions"}, locale...)
		if s.options.Volatile {
			args = append(args, "--no-sync")
		}
		cmd := exec.CommandContext(ctx, filepath.Join(binaries.dir, "initdb"), args...) //nolint:gosec // the operator's binaries
		account.apply(cmd)
		output, err := cmd.CombinedOutput()
		if err == nil {
			return s.settle(fresh)
		}
		if firstErr == nil {
			firstErr = fmt.Errorf("initdb (%s): %w\n%s", binaries.dir, err, strings.TrimSpace(string(output)))
		}
	}
	return firstErr
}

// settle gives a finished cluster its name, durably.
func (s *Server) settle(fresh string) error {
	if err := os.Rename(fresh, s.place.cluster); err != nil {
		return fmt.Errorf("new cluster: %w", err)
	}
	dir, err := os.Open(s.place.dir)
	if err != nil {
		return fmt.Errorf("new cluster: %w", err)
	}
	defer func() { _ = dir.Close() }()
	if err := dir.Sync(); err != nil {
		return fmt.Errorf("new cluster: %w", err)
	}
	return nil
}

// launch starts the server and waits until it takes connections.
func (s *Server) launch(ctx context.Context, binaries binaries, account account) (*process, error) {
	log, err := openLog(s.place.logFile)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	began, err := log.Seek(0, 2)
	if err != nil {
		return nil, fmt.Errorf("server log: %w", err)
	}
	args := []string{"-D", s.place.cluster, "-k", s.place.socketDir}
	args = append(args, s.options.parameters()...)
	cmd := exec.Command(filepath.Join(binaries.dir, "postgres"), args...) //nolint:gosec,noctx // outlives the call: stopped by stop
	account.apply(cmd)
	cmd.Stdout, cmd.Stderr = log, log
	running, err := startProcess(cmd)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", cmd.Path, err)
	}
	if err := awaitReady(ctx, s.place, running); err != nil {
		_ = running.stop()
		return nil, fmt.Errorf("%w\n%s", err, logTail(s.place.logFile, began))
	}
	return running, nil
}

// awaitReady waits for the server, through crash recovery if need be, and makes
// the database if it is missing.
func awaitReady(ctx context.Context, place *place, running *process) error {
	for {
		err := createDatabase(ctx, place)
		if err == nil {
			return nil
		}
		if refused := (*pgconn.PgError)(nil); errors.As(err, &refused) && refused.Code != "57P03" { // cannot_connect_now
			return fmt.Errorf("the PostgreSQL server started, but: %w", err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the PostgreSQL server: %w", ctx.Err())
		case <-running.exited:
			return fmt.Errorf("%w: %w", errNoServer, running.err)
		case <-time.After(pollInterval / 2):
		}
	}
}

func createDatabase(ctx context.Context, place *place) error {
	conn, err := pgx.Connect(ctx, place.url("postgres"))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	var exists bool
	if err := conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", database).Scan(&exists); err != nil {
		return err
	}
	if exists {
		return nil
	}
	_, err = conn.Exec(ctx, "CREATE DATABASE "+database)
	return err
}

const (
	logSizeMax = 16 << 20 // bytes; a longer log is set aside at the next start
	logTailMax = 4 << 10  // bytes of the log that an error carries
)

func openLog(path string) (*os.File, error) {
	if info, err := os.Stat(path); err == nil && info.Size() > logSizeMax {
		if err := os.Rename(path, path+".1"); err != nil {
			return nil, fmt.Errorf("server log: %w", err)
		}
	}
	log, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("server log: %w", err)
	}
	return log, nil
}

// logTail is the end of what the server wrote since began.
func logTail(path string, began int64) string {
	log, err := os.ReadFile(path)
	if err != nil || int64(len(log)) <= began {
		return "its log " + path + " is empty"
	}
	log = log[max(began, int64(len(log)-logTailMax)):]
	return strings.TrimSpace(string(log))
}
