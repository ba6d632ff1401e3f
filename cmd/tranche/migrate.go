package main

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5/pgxpool"

	"tranche/migrations"
)

// migrateCommand migrates the database to the schema of this program.
type migrateCommand struct {
	databaseFlags
}

// Help returns the long help of the command.
func (*migrateCommand) Help() string {
	return "Run it before you start processes of a new version. If several processes run it at the same time, one migrates and the others wait. It does not change a database that is up to date."
}

// Run migrates the database.
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
