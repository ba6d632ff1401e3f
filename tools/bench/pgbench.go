package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"time"
)

var (
	pgbenchRate    = regexp.MustCompile(`(?m)^tps = ([0-9.]+)`)
	pgbenchLatency = regexp.MustCompile(`(?m)^latency average = ([0-9.]+) ms`)
)

// measurePgbench measures inserts with pgbench, if it is installed. pgbench uses less
// processor time for them than a client in Go.
func (b *bench) measurePgbench(ctx context.Context) error {
	tool := filepath.Join(b.PGBin, "pgbench")
	if b.PGBin == "" {
		var err error
		if tool, err = exec.LookPath("pgbench"); err != nil {
			return nil //nolint:nilerr // this measurement is optional
		}
	} else if _, err := os.Stat(tool); err != nil {
		return nil //nolint:nilerr // this measurement is optional
	}
	script := filepath.Join(b.db.dir, "insert.sql")
	if err := os.WriteFile(script, []byte("INSERT INTO bench_rows (doc) VALUES ('"+aRow()+"');\n"), 0o600); err != nil {
		return err
	}
	alone, err := b.pgbench(ctx, tool, script, 1, pgbenchLatency)
	if err != nil {
		return err
	}
	b.add(pgbenchAlone, alone)
	many, err := b.pgbench(ctx, tool, script, clientsMany, pgbenchRate)
	b.add(pgbenchMany, many)
	return err
}

// pgbench runs pgbench and returns one of its figures.
func (b *bench) pgbench(ctx context.Context, tool, script string, clients int, figure *regexp.Regexp) (float64, error) {
	seconds := max(1, int(b.Span/time.Second))
	cmd := exec.CommandContext(ctx, tool, "--no-vacuum", "--protocol=prepared", "--file="+script, // #nosec G204 -- the operator's program
		fmt.Sprintf("--client=%d", clients), fmt.Sprintf("--time=%d", seconds))
	to := b.db.limit.Config().ConnConfig
	cmd.Env = append(os.Environ(), "PGHOST="+to.Host, fmt.Sprintf("PGPORT=%d", to.Port), "PGUSER="+to.User, "PGPASSWORD="+to.Password, "PGDATABASE="+to.Database)
	text, err := cmd.CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("pgbench: %w: %s", err, text)
	}
	found := figure.FindSubmatch(text)
	if found == nil {
		return 0, fmt.Errorf("pgbench printed no %s: %s", figure, text)
	}
	return strconv.ParseFloat(string(found[1]), 64)
}
