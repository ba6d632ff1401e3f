// Package embedded runs a PostgreSQL server in a data directory, for users without a
// database. It finds or downloads the binaries, creates the cluster, and starts and stops the
// server. The server listens on a socket that only its user can reach.
//
// Several processes can share a data directory. The process that holds the lock of the
// directory runs the server, and the others use it. When the holder ends, another process
// takes over, so commands and services can start and stop in any order. The package never
// deletes data. It must not know the content of the database.
package embedded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	pollInterval    = 50 * time.Millisecond  // between checks of a lock or of a starting server
	watchInterval   = 250 * time.Millisecond // between checks whether the lock is free
	restartInterval = time.Second            // between starts of a server that ends again
	othersWaitMax   = 3 * time.Second        // the time that a stop waits for other processes

	user     = "tranche" // superuser of the cluster
	database = "tranche"
)

// Options configure a server.
type Options struct {
	// Dir contains the cluster, its socket, its log and the locks. If it is empty,
	// DefaultDir is used.
	Dir string
	// BinDir contains initdb and postgres. If it is empty, Open looks for an installed
	// PostgreSQL, then in the cache, then downloads one.
	BinDir string
	// CacheDir contains downloaded binaries. If it is empty, the user's cache directory is
	// used, or /var/cache/tranche for root.
	CacheDir string
	// NoDownload forbids downloads.
	NoDownload bool
	// Volatile gives up durability for speed. It is for tests only.
	Volatile bool
	// Settings are server parameters that override the defaults.
	Settings map[string]string
	// Notices receives a line before a slow step such as a download. It may be nil.
	Notices io.Writer
	// Log receives unexpected ends of the server. It may be nil.
	Log *slog.Logger

	finder finder // finds and downloads binaries
}

func (o Options) withDefaults() (Options, error) {
	if o.Notices == nil {
		o.Notices = io.Discard
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Dir == "" {
		dir, err := DefaultDir()
		if err != nil {
			return o, err
		}
		o.Dir = dir
	}
	if o.finder.isZero() {
		o.finder = defaultFinder()
	}
	return o, nil
}

// Server is a running server. This process or another one runs it.
type Server struct {
	options Options
	dir     *dataDir
	locks   *locks
	url     string

	close     context.CancelFunc
	closeOnce sync.Once
	ended     chan struct{} // closed when supervise has ended
	endErr    error         // of the stop; valid after ended
}

// Open returns the server of a directory when it is ready for connections. If no other process
// runs it, Open starts it. If the holder ends while the Server is open, this process starts the
// server again.
//
// Open fails if there are no suitable binaries, if the PostgreSQL version of the cluster is not
// installed, or if the user of the server cannot reach the directory. Crash recovery of a large
// database can take minutes; ctx can bound it.
func Open(ctx context.Context, options Options) (*Server, error) {
	options, err := options.withDefaults()
	if err != nil {
		return nil, err
	}
	dir, err := prepareDataDir(options.Dir)
	if err != nil {
		return nil, err
	}
	locks, err := openLocks(dir)
	if err != nil {
		return nil, err
	}
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	s := &Server{options: options, dir: dir, locks: locks, url: dir.url(database), close: end, ended: make(chan struct{})}
	process, err := s.join(ctx)
	if err != nil {
		end()
		locks.close()
		return nil, err
	}
	go s.supervise(life, process)
	return s, nil
}

// Find returns the server that another process runs in a directory. Until Close, the server
// does not stop because of idleness (see WaitUnused). Find reports false if no server is ready.
// It never starts a server.
func Find(ctx context.Context, path string) (*Server, bool, error) {
	dir, found, err := findDataDir(path)
	if err != nil || !found {
		return nil, false, err
	}
	locks, err := openLocks(dir)
	if err != nil {
		return nil, false, err
	}
	if !locks.use() || !ready(ctx, dir) {
		locks.close()
		return nil, false, nil
	}
	ended := make(chan struct{})
	close(ended)
	return &Server{dir: dir, locks: locks, url: dir.url(database), close: func() {}, ended: ended}, true, nil
}

// URL returns the connection string of the database. It contains no secret. Only the user of
// the server and root can reach the socket.
func (s *Server) URL() string { return s.url }

// Close ends the use of the server. If this process runs the server, Close waits up to 3 s for
// the other processes and then stops it. Committed work is on disk. A process that still uses
// the server starts it again.
func (s *Server) Close() error {
	s.closeOnce.Do(func() {
		s.close()
		<-s.ended
		s.locks.close()
	})
	return s.endErr
}

// WaitUnused returns when no other process has used the server for the given time, or when ctx
// ends. After that, no other process can begin to use it; the caller must call Close.
func (s *Server) WaitUnused(ctx context.Context, idle time.Duration) error {
	ticker := time.NewTicker(min(idle/4, time.Second))
	defer ticker.Stop()
	unusedFor := time.Duration(0)
	last := time.Now()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case now := <-ticker.C:
			if !s.locks.exclude() {
				unusedFor = 0
			} else if unusedFor += now.Sub(last); unusedFor >= idle {
				return nil
			} else {
				s.locks.releaseUse()
			}
			last = now
		}
	}
}

// join becomes the holder and returns the server process that it started, or it becomes a user
// of a running server and returns nil.
func (s *Server) join(ctx context.Context) (*process, error) {
	for {
		if s.locks.use() {
			if s.locks.hold() {
				s.locks.releaseUse()
				return s.start(ctx)
			}
			if ready(ctx, s.dir) {
				return nil, nil
			}
			s.locks.releaseUse()
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for the PostgreSQL server that another process runs in %s: %w", s.dir.dir, ctx.Err())
		case <-time.After(pollInterval):
		}
	}
}

// supervise starts the server again whenever it or its holder ends, until ctx ends.
func (s *Server) supervise(ctx context.Context, running *process) {
	defer close(s.ended)
	for {
		wait := watchInterval
		if running != nil {
			select {
			case <-ctx.Done():
				s.endErr = s.end(running)
				return
			case <-running.exited:
				s.options.Log.Error("the embedded PostgreSQL server ended unexpectedly and is started again", "log", s.dir.logFile, "error", running.err)
				running, wait = nil, restartInterval
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		running = s.takeOver(ctx)
	}
}

// takeOver starts the server if it has no holder. It returns nil if there is a holder or if the
// start failed; supervise tries again.
func (s *Server) takeOver(ctx context.Context) *process {
	if !s.locks.hold() {
		return nil
	}
	s.locks.releaseUse()
	running, err := s.start(ctx)
	if err != nil && ctx.Err() == nil {
		s.options.Log.Error("the embedded PostgreSQL server did not start and is tried again", "error", err)
	}
	return running
}

// end stops the server when no other process uses it, or after 3 s.
func (s *Server) end(running *process) error {
	for deadline := time.Now().Add(othersWaitMax); !s.locks.exclude() && time.Now().Before(deadline); {
		time.Sleep(pollInterval)
	}
	return running.stop()
}

// ready reports whether the server of a data directory accepts connections.
func ready(ctx context.Context, dir *dataDir) bool {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, dir.url(database))
	if err != nil {
		return false
	}
	return conn.Close(ctx) == nil
}

// errNoServer means that the server process ended before it was ready.
var errNoServer = errors.New("the PostgreSQL server did not start")
