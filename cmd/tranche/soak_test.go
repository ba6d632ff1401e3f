package main_test

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"tranche/internal/postgres/embedded"
)

const (
	// soakVariable sets the duration, "150s" for example; see `make soak`.
	// soakSeedVariable repeats the actions of a run, but not their exact times.
	soakVariable     = "TRANCHE_TEST_SOAK"
	soakSeedVariable = "TRANCHE_TEST_SOAK_SEED"
	soakCallers      = 12
)

// Two processes and their database are killed, suspended, stopped and restarted while
// callers use them. All acknowledged work ends once and with the correct result, and each
// of its outgoing calls has one idempotency key.
func TestSoak(t *testing.T) {
	span, err := time.ParseDuration(os.Getenv(soakVariable))
	if err != nil {
		t.Skipf("takes minutes: set %s to a duration", soakVariable)
	}
	seed := rand.Uint64N(1000)
	if text := os.Getenv(soakSeedVariable); text != "" {
		seed, err = strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("seed %d", seed)
	s := openSoak(t, seed)
	until := time.Now().Add(span)
	var callers sync.WaitGroup
	defer callers.Wait()
	for i := range soakCallers {
		callers.Add(1)
		go (&caller{soak: s, rand: rand.New(rand.NewPCG(seed, uint64(i)))}).run(until, &callers)
	}
	chance := rand.New(rand.NewPCG(seed, soakCallers))
	for time.Now().Before(until) && !t.Failed() {
		time.Sleep(time.Second + time.Duration(chance.Int64N(int64(4*time.Second))))
		if action := chance.IntN(9); action < 5 {
			s.disturb(chance, action)
		} else {
			s.db.disturb(t, chance, action-5)
		}
	}
	callers.Wait()
	s.check()
	for i := range s.processes {
		s.end(i)
	}
}

// openSoak starts the installation and creates the tenant and its workflows.
func openSoak(t *testing.T, seed uint64) *soak {
	t.Helper()
	s := &soak{t: t, seed: seed, target: newSoakTarget(t), db: openSoakDatabase(t)}
	s.env = onDatabase(s.db.server.URL()).with("TRANCHE_EGRESS_ALLOW=127.0.0.1/32")
	s.env.ok(t, "migrate")
	s.begin(0)
	s.begin(1)
	s.token = s.env.accessToken(t, s.processes[0].url, "acme", "single=unlimited", "batch=unlimited", "polling=unlimited")
	s.publish(s.processes[0].url)
	return s
}

func (s *soak) begin(i int) {
	s.processes[i] = s.env.serve(s.t)
	s.urls[i].Store(&s.processes[i].url)
}

// end stops a process with SIGTERM.
func (s *soak) end(i int) {
	require.NoError(s.t, s.processes[i].cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(s.t, <-s.processes[i].ended)
}

// disturb disturbs one of the processes and returns when it runs again.
func (s *soak) disturb(chance *rand.Rand, action int) {
	i, now := chance.IntN(len(s.processes)), time.Now().Format(time.TimeOnly)
	switch process := s.processes[i].cmd.Process; action {
	case 0:
		span := time.Duration(1000+chance.IntN(25_000)) * time.Millisecond
		s.t.Logf("%s process %d is suspended for %s", now, i, span)
		require.NoError(s.t, process.Signal(syscall.SIGSTOP))
		time.Sleep(span)
		require.NoError(s.t, process.Signal(syscall.SIGCONT))
	case 1:
		s.t.Logf("%s process %d stops and starts", now, i)
		s.end(i)
		s.begin(i)
	default:
		s.t.Logf("%s process %d is killed and starts", now, i)
		require.NoError(s.t, process.Kill())
		<-s.processes[i].ended
		s.begin(i)
	}
}

func (s *soak) publish(url string) {
	var definitions []json.RawMessage
	text := strings.NewReplacer("TARGET", s.target.URL, "RETRY", soakRetry).Replace(soakWorkflows)
	require.NoError(s.t, json.Unmarshal([]byte(text), &definitions))
	for _, definition := range definitions {
		made := call(s.t, http.MethodPost, url+"/v2/workflows", s.token, string(definition))
		require.Equal(s.t, http.StatusCreated, made.status, made.body)
		published := call(s.t, http.MethodPost, url+"/v2/workflows/"+made.body["id"].(string)+"/publish", s.token, "")
		require.Equal(s.t, http.StatusOK, published.status, published.body)
	}
}

// check compares the database with the answers that the callers got.
func (s *soak) check() {
	t := s.t
	conn := s.db.connect(t)
	for problem, query := range map[string]string{
		"jobs have not ended":        `SELECT count(*) FROM river.river_job WHERE state NOT IN ('completed', 'cancelled', 'discarded') AND scheduled_at < now() + interval '1 hour'`,
		"jobs were discarded":        `SELECT count(*) FROM river.river_job WHERE state = 'discarded'`,
		"executions have not ended":  `SELECT count(*) FROM executions WHERE status IN ('pending', 'running')`,
		"executions did not succeed": `SELECT count(*) FROM executions WHERE status <> 'completed'`,
	} {
		require.Eventually(t, func() bool {
			var n int
			require.NoError(t, conn.QueryRow(t.Context(), query).Scan(&n), problem)
			return n == 0
		}, time.Minute, 500*time.Millisecond, problem)
	}
	var executions int64
	require.NoError(t, conn.QueryRow(t.Context(), `SELECT count(*) FROM executions`).Scan(&executions))
	require.Equal(t, s.singles.Load()+s.items.Load(), executions, "one execution for each acknowledgement")
	asked, requests := s.target.check(t)
	t.Logf("%d single executions, %d batches with %d items, %d answered URIs, %d calls", s.singles.Load(), s.batches.Load(), s.items.Load(), asked, requests)
}

// soakDatabase is a PostgreSQL server that the test disturbs.
type soakDatabase struct {
	dir    string
	server *embedded.Server
}

func openSoakDatabase(t *testing.T) *soakDatabase {
	t.Helper()
	db := &soakDatabase{dir: dataDir(t)}
	db.open(t)
	t.Cleanup(func() { _ = db.server.Close() })
	return db
}

func (db *soakDatabase) open(t *testing.T) {
	t.Helper()
	var err error
	db.server, err = embedded.Open(t.Context(), embedded.Options{Dir: db.dir})
	require.NoError(t, err)
}

// disturb disturbs the server and returns when it answers again.
func (db *soakDatabase) disturb(t *testing.T, chance *rand.Rand, action int) {
	t.Helper()
	switch now := time.Now().Format(time.TimeOnly); action {
	case 0:
		t.Logf("%s the database stops and starts", now)
		require.NoError(t, db.server.Close())
		db.open(t)
	case 1:
		span := time.Duration(1000+chance.IntN(8000)) * time.Millisecond
		t.Logf("%s the database is suspended for %s", now, span)
		pids := db.processes(t)
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGSTOP) // it may have ended
		}
		time.Sleep(span)
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGCONT)
		}
	case 2:
		t.Logf("%s all connections are cut", now)
		_, err := db.connect(t).Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'`)
		require.NoError(t, err)
	default:
		t.Logf("%s a process of the database dies, and it recovers", now)
		victim, witness := db.connect(t), db.connect(t)
		require.NoError(t, syscall.Kill(int(victim.PgConn().PID()), syscall.SIGKILL))
		require.Eventually(t, func() bool { return witness.Ping(t.Context()) != nil }, time.Minute, 10*time.Millisecond)
	}
	require.Eventually(t, func() bool { return db.answers(t) }, time.Minute, 100*time.Millisecond)
}

func (db *soakDatabase) answers(t *testing.T) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, db.server.URL())
	if err != nil {
		return false
	}
	return conn.Close(ctx) == nil
}

func (db *soakDatabase) connect(t *testing.T) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), db.server.URL())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

// processes returns the process ids of the server, the postmaster first.
func (db *soakDatabase) processes(t *testing.T) []int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(db.dir, "postgres", "postmaster.pid"))
	require.NoError(t, err)
	first, _, _ := strings.Cut(string(text), "\n")
	postmaster, err := strconv.Atoi(first)
	require.NoError(t, err)
	children, err := os.ReadFile(filepath.Join("/proc", first, "task", first, "children"))
	require.NoError(t, err)
	pids := []int{postmaster}
	for child := range strings.FieldsSeq(string(children)) {
		pid, err := strconv.Atoi(child)
		require.NoError(t, err)
		pids = append(pids, pid)
	}
	return pids
}
