package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/jackc/pgx/v5/pgxpool"

	"tranche/internal/secret"
)

// masterKeyFile is where the own server's master key lies in its data directory.
const masterKeyFile = "master.key"

// keyFlags say under which key confidential values are sealed.
type keyFlags struct {
	MasterKey     string `name:"master-key" env:"TRANCHE_MASTER_KEY" group:"Keys" placeholder:"KEY" help:"Key that seals signing keys and secrets in the database: 32 bytes in base64, from openssl rand -base64 32. Several, separated by commas: the first seals, all open. Better given by the environment or a file than as a flag."`
	MasterKeyFile string `name:"master-key-file" env:"TRANCHE_MASTER_KEY_FILE" group:"Keys" placeholder:"FILE" help:"File that holds the master key. With the own server it is made on the first run, as master.key in the data directory."`
}

// open returns the master keys: those that are given, or those of the data
// directory, where the first is made.
func (f *keyFlags) open(db *database) (*secret.Keyring, error) {
	text, err := valueOrFile(f.MasterKey, f.MasterKeyFile, "TRANCHE_MASTER_KEY")
	if err != nil {
		return nil, err
	}
	if text == "" && db.dataDir == "" {
		return nil, errors.New("there is no master key: set TRANCHE_MASTER_KEY or TRANCHE_MASTER_KEY_FILE, and keep the key as safe as the database (openssl rand -base64 32 makes one)")
	}
	if text == "" {
		if text, err = readOrMakeKey(filepath.Join(db.dataDir, masterKeyFile)); err != nil {
			return nil, fmt.Errorf("master key: %w", err)
		}
	}
	keys, err := secret.ParseKeys(text)
	if err != nil {
		return nil, fmt.Errorf("TRANCHE_MASTER_KEY: %w", err)
	}
	return keys, nil
}

// readOrMakeKey returns the key in a file. Of processes that make it at once
// one wins, because a link, unlike a rename, never replaces a file.
func readOrMakeKey(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return string(text), err
	}
	temporary, err := os.CreateTemp(filepath.Dir(path), masterKeyFile+".*") // mode 0600
	if err != nil {
		return "", err
	}
	defer func() { _ = os.Remove(temporary.Name()) }()
	_, err = temporary.WriteString(secret.GenerateKey() + "\n")
	if err = errors.Join(err, temporary.Sync(), temporary.Close()); err != nil {
		return "", err
	}
	if err := os.Link(temporary.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	text, err = os.ReadFile(path)
	return string(text), err
}

// sealedFlags lead to a database and to the master key of what is sealed in it.
type sealedFlags struct {
	databaseFlags
	keyFlags
}

// withMaster does something with both.
func (f *sealedFlags) withMaster(ctx context.Context, out *console, log *slog.Logger, do func(*pgxpool.Pool, *secret.Keyring) error) error {
	return f.withDatabase(ctx, out, log, func(db *database, pool *pgxpool.Pool) error {
		master, err := f.keyFlags.open(db)
		if err != nil {
			return err
		}
		if err := db.prepare(ctx, pool); err != nil {
			return err
		}
		return do(pool, master)
	})
}
