// Package embedded runs a PostgreSQL server of its own in a directory, for
// whoever has no database: it finds or fetches the binaries, makes the cluster,
// starts the server on a socket that only its user reaches, and stops it.
//
// Processes meet in the directory. The one that holds its lock runs the server;
// the others use the running one and take over when its holder goes, so that
// commands and services can come and go in any order. It never deletes data.
// It must not know what is stored in the database.
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
	pollInterval    = 50 * time.Millisecond  // between looks at a lock or a starting server
	watchInterval   = 250 * time.Millisecond // between a user's looks at the holder's lock
	restartInterval = time.Second            // between starts of a server that does not stay up
	othersWaitMax   = 3 * time.Second        // how long a stop waits for other processes to finish

	user     = "tranche" // superuser of the cluster
	database = "tranche"
)

// Options say where the server lives and how it is run.
type Options struct {
	// Dir holds the cluster, its socket, its log and the locks. Empty stands
	// for DefaultDir.
	Dir string
	// BinDir is where initdb and postgres are. Empty looks for an installed
	// PostgreSQL, then in the cache, then fetches one.
	BinDir string
	// CacheDir keeps fetched binaries. Empty stands for the user's cache
	// directory, or /var/cache/tranche for root.
	CacheDir string
	// NoDownload forbids fetching binaries.
	NoDownload bool
	// Volatile trades durability for speed: for tests only.
	Volatile bool
	// Settings are configuration parameters that override the defaults.
	Settings map[string]string
	// Notices receives one line when something takes long (a download). Nil
	// discards them.
	Notices io.Writer
	// Log is told when the server ends unexpectedly. Nil discards.
	Log *slog.Logger

	finder finder // where installed binaries are looked for and what is fetched
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

// Server is a running server: this process's own, or another's that it uses.
type Server struct {
	options Options
	place   *place
	locks   *locks
	url     string

	close     context.CancelFunc
	closeOnce sync.Once
	kept      chan struct{} // closed when keep has ended
	endErr    error         // why stopping failed; read after kept
}

// Open returns the server of a directory, ready for connections: the one that
// another process runs there, or one started now. While the Server is open the
// directory has a server: if its holder ends, this process starts it again.
//
// It fails when no fitting binaries can be had, when the cluster is of a
// PostgreSQL version that is not installed, or when the server's user cannot
// reach the directory. Crash recovery of a large database may take minutes:
// bound it by ctx.
func Open(ctx context.Context, options Options) (*Server, error) {
	options, err := options.withDefaults()
	if err != nil {
		return nil, err
	}
	place, err := preparePlace(options.Dir)
	if err != nil {
		return nil, err
	}
	locks, err := openLocks(place)
	if err != nil {
		return nil, err
	}
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	s := &Server{options: options, place: place, locks: locks, url: place.url(database), close: end, kept: make(chan struct{})}
	process, err := s.join(ctx)
	if err != nil {
		end()
		locks.close()
		return nil, err
	}
	go s.keep(life, process)
	return s, nil
}

// Find returns the server that another process runs in a directory now, and
// keeps it from stopping for idleness (see WaitUnused) until Close. It reports
// false when none is ready. It never starts or takes over a server.
func Find(ctx context.Context, dir string) (*Server, bool, error) {
	place, found, err := findPlace(dir)
	if err != nil || !found {
		return nil, false, err
	}
	locks, err := openLocks(place)
	if err != nil {
		return nil, false, err
	}
	if !locks.use() || !ready(ctx, place) {
		locks.close()
		return nil, false, nil
	}
	kept := make(chan struct{})
	close(kept)
	return &Server{place: place, locks: locks, url: place.url(database), close: func() {}, kept: kept}, true, nil
}

// URL is the connection string of the database. It names a socket that only
// the server's user, and root, can reach; it holds no secret.
func (s *Server) URL() string { return s.url }

// Close ends this process's use of the server. If this process runs it, Close
// first gives other processes up to 3 seconds to finish what they do, then
// stops it: connections are ended and committed work is on disk. A process that
// uses the server for longer starts it again.
func (s *Server) Close() error {
	s.closeOnce.Do(func() {
		s.close()
		<-s.kept
		s.locks.close()
	})
	return s.endErr
}

// WaitUnused returns once no other process has used the server for the given
// time, or ctx ends. From then on nobody can begin to use it; call Close.
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
				s.locks.readmit()
			}
			last = now
		}
	}
}

// join becomes the holder and returns the process it started, or becomes a user
// of a server that is ready and returns nil.
func (s *Server) join(ctx context.Context) (*process, error) {
	for {
		if s.locks.use() {
			if s.locks.hold() {
				s.locks.readmit()
				return s.start(ctx)
			}
			if ready(ctx, s.place) {
				return nil, nil
			}
			s.locks.readmit()
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for the PostgreSQL server that another process runs in %s: %w", s.place.dir, ctx.Err())
		case <-time.After(pollInterval):
		}
	}
}

// keep holds the promise of Open until ctx ends: a server that ends is started
// again, one whose holder ends is taken over.
func (s *Server) keep(ctx context.Context, running *process) {
	defer close(s.kept)
	for {
		wait := watchInterval
		if running != nil {
			select {
			case <-ctx.Done():
				s.endErr = s.end(running)
				return
			case <-running.exited:
				s.options.Log.Error("the embedded PostgreSQL server ended unexpectedly; starting it again", "log", s.place.logFile, "error", running.err)
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

// takeOver starts the server if its holder has gone. It returns nil when there
// is a holder or the start failed; keep tries again.
func (s *Server) takeOver(ctx context.Context) *process {
	if !s.locks.hold() {
		return nil
	}
	s.locks.readmit()
	running, err := s.start(ctx)
	if err != nil && ctx.Err() == nil {
		s.options.Log.Error("the embedded PostgreSQL server does not start; trying again", "error", err)
	}
	return running
}

// end stops the server once other processes have finished, or after 3 seconds.
func (s *Server) end(running *process) error {
	for deadline := time.Now().Add(othersWaitMax); !s.locks.exclude() && time.Now().Before(deadline); {
		time.Sleep(pollInterval)
	}
	return running.stop()
}

// ready reports whether the server of a place answers.
func ready(ctx context.Context, place *place) bool {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, place.url(database))
	if err != nil {
		return false
	}
	return conn.Close(ctx) == nil
}

// errNoServer says that the process ended before the server was ready.
var errNoServer = errors.New("the PostgreSQL server did not start")
