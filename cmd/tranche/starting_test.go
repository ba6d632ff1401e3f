package main_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tranche/internal/postgres"
	"tranche/internal/postgres/embedded"
)

// serve waits for a database that is recovering, until it is stopped. Other commands do
// not wait.
func TestServeWaitsForRecoveringDatabase(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	server, err := embedded.Open(t.Context(), embedded.Options{Dir: dir, Volatile: true})
	require.NoError(t, err)
	e := onDatabase(server.URL())
	e.ok(t, "migrate")
	require.NoError(t, server.Close())

	// A standby that accepts no connections recovers until it is promoted.
	cluster := filepath.Join(dir, "postgres")
	signalTo(t, cluster, "standby.signal")
	recovered := make(chan *embedded.Server, 1)
	go func() {
		server, err := embedded.Open(t.Context(), embedded.Options{Dir: dir, Volatile: true, Settings: map[string]string{"hot_standby": "off"}})
		assert.NoError(t, err)
		recovered <- server
	}()
	require.Eventually(t, func() bool {
		_, err := pgx.Connect(t.Context(), server.URL())
		return postgres.IsStarting(err)
	}, readyTimeMax, 20*time.Millisecond)

	require.Contains(t, e.run(t, "tenant", "create", "acme").stderr, "57P03")
	service, stopped := e.startServe(t), e.startServe(t)
	for _, r := range []*running{service, stopped} {
		r.awaitLog(t, "waiting for the database")
	}
	stopped.stop(t)
	signalTo(t, cluster, "promote")
	text, err := os.ReadFile(filepath.Join(cluster, "postmaster.pid"))
	require.NoError(t, err)
	first, _, _ := strings.Cut(string(text), "\n")
	postmaster, err := strconv.Atoi(first)
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(postmaster, syscall.SIGUSR1))
	server = <-recovered
	defer func() { require.NoError(t, server.Close()) }()
	service.awaitReady(t)
	require.Equal(t, 1, strings.Count(service.stderr.String(), "waiting for the database"))
	service.stop(t)
}

// signalTo creates a signal file in the directory of a cluster.
func signalTo(t *testing.T, cluster, name string) {
	t.Helper()
	path := filepath.Join(cluster, name)
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	info, err := os.Stat(cluster)
	require.NoError(t, err)
	owner, ok := info.Sys().(*syscall.Stat_t)
	require.True(t, ok)
	require.NoError(t, os.Chown(path, int(owner.Uid), int(owner.Gid)))
}
