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

// start starts the server. The caller holds the lock. start looks for the binaries each time,
// because an upgrade of the system may have moved them.
func (s *Server) start(ctx context.Context) (*process, error) {
	account, err := serverAccount(s.dir)
	if err != nil {
		return nil, err
	}
	if err := account.checkReach(s.dir.dir, "set another TRANCHE_DATA_DIR"); err != nil {
		return nil, err
	}
	major, err := s.dir.majorVersion()
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
	if err := s.dir.prepareSocketDir(account); err != nil {
		return nil, err
	}
	if err := stopStaleServer(ctx, s.dir); err != nil {
		return nil, err
	}
	return s.launch(ctx, binaries, account)
}

// initialise creates the cluster in a temporary directory and then renames it, so that an
// interrupted initdb leaves no incomplete cluster.
func (s *Server) initialise(ctx context.Context, binaries binaries, account account) error {
	if left, err := filepath.Glob(filepath.Join(s.dir.dir, "initdb-*")); err == nil {
		for _, dir := range left {
			_ = os.RemoveAll(dir) // of an interrupted initdb
		}
	}
	var firstErr error
	for _, locale := range binaries.locales() {
		fresh, err := os.MkdirTemp(s.dir.dir, "initdb-")
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
			return s.finalize(fresh)
		}
		if firstErr == nil {
			firstErr = fmt.Errorf("initdb (%s): %w\n%s", binaries.dir, err, strings.TrimSpace(string(output)))
		}
	}
	return firstErr
}

// finalize renames a complete cluster and syncs the directory.
func (s *Server) finalize(fresh string) error {
	if err := os.Rename(fresh, s.dir.cluster); err != nil {
		return fmt.Errorf("new cluster: %w", err)
	}
	dir, err := os.Open(s.dir.dir)
	if err != nil {
		return fmt.Errorf("new cluster: %w", err)
	}
	defer func() { _ = dir.Close() }()
	if err := dir.Sync(); err != nil {
		return fmt.Errorf("new cluster: %w", err)
	}
	return nil
}

// launch starts the server process and waits until it accepts connections.
func (s *Server) launch(ctx context.Context, binaries binaries, account account) (*process, error) {
	log, err := openLog(s.dir.logFile)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	began, err := log.Seek(0, 2)
	if err != nil {
		return nil, fmt.Errorf("server log: %w", err)
	}
	args := []string{"-D", s.dir.cluster, "-k", s.dir.socketDir}
	args = append(args, s.options.parameters()...)
	cmd := exec.Command(filepath.Join(binaries.dir, "postgres"), args...) //nolint:gosec,noctx // it outlives the call; stop ends it
	account.apply(cmd)
	cmd.Stdout, cmd.Stderr = log, log
	running, err := startProcess(cmd)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", cmd.Path, err)
	}
	if err := awaitReady(ctx, s.dir, running); err != nil {
		_ = running.stop()
		return nil, fmt.Errorf("%w\n%s", err, logTail(s.dir.logFile, began))
	}
	return running, nil
}

// awaitReady waits for the server, including crash recovery, and creates the database if it does
// not exist.
func awaitReady(ctx context.Context, dir *dataDir, running *process) error {
	for {
		err := createDatabase(ctx, dir)
		if err == nil {
			return nil
		}
		if pgErr := (*pgconn.PgError)(nil); errors.As(err, &pgErr) && pgErr.Code != "57P03" { // cannot_connect_now
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

func createDatabase(ctx context.Context, dir *dataDir) error {
	conn, err := pgx.Connect(ctx, dir.url("postgres"))
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
	logSizeMax = 16 << 20 // bytes; the next start renames a longer log
	logTailMax = 4 << 10  // bytes of the log in an error message
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

// logTail returns the end of the server's log after the offset began.
func logTail(path string, began int64) string {
	log, err := os.ReadFile(path)
	if err != nil || int64(len(log)) <= began {
		return "its log " + path + " is empty"
	}
	log = log[max(began, int64(len(log)-logTailMax)):]
	return strings.TrimSpace(string(log))
}
