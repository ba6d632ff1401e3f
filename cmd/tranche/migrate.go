package main

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5/pgxpool"

	"tranche/migrations"
)

// migrateCommand brings the database to this program's schema.
type migrateCommand struct {
	databaseFlags
}

// Help is the long form of the command's help.
func (*migrateCommand) Help() string {
	return "Run it before the processes of a new version start. Any number of processes may run it at once: one migrates, the others wait. It does nothing to a database that is up to date."
}

// Run migrates.
func (c *migrateCommand) Run(ctx context.Context, out *console, log *slog.Logger) error {
	return c.withDatabase(ctx, out, log, func(_ *database, pool *pgxpool.Pool) error {
		if err := migrations.Up(ctx, pool); err != nil {
			return err
		}
		own, river, err := migrations.Versions()
		if err != nil {
			return err
		}
		fmt.Fprintf(out.Out, "the database is up to date: schema %d, River %d\n", own, river)
		return nil
	})
}
