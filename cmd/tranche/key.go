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

// masterKeyFile is the name of the master key in the data directory.
const masterKeyFile = "master.key"

// keyFlags select the master keys.
type keyFlags struct {
	MasterKey     string `name:"master-key" env:"TRANCHE_MASTER_KEY" group:"Keys" placeholder:"KEY" help:"Key that seals signing keys and secrets in the database: 32 bytes in base64, from openssl rand -base64 32. Of several keys, separated by commas, the first seals and all open. Use the environment or a file rather than the flag."`
	MasterKeyFile string `name:"master-key-file" env:"TRANCHE_MASTER_KEY_FILE" group:"Keys" placeholder:"FILE" help:"File with the master key. With the program's own server, the first run creates master.key in the data directory."`
}

// open returns the configured master keys. With the program's own server it falls back
// to the key in the data directory, and creates that on the first run.
func (f *keyFlags) open(db *database) (*secret.Keyring, error) {
	text, err := valueOrFile(f.MasterKey, f.MasterKeyFile, "TRANCHE_MASTER_KEY")
	if err != nil {
		return nil, err
	}
	if text == "" && db.dataDir == "" {
		return nil, errors.New("there is no master key: create one with openssl rand -base64 32, set TRANCHE_MASTER_KEY or TRANCHE_MASTER_KEY_FILE, and back it up like the database")
	}
	if text == "" {
		if text, err = readOrCreateKey(filepath.Join(db.dataDir, masterKeyFile)); err != nil {
			return nil, fmt.Errorf("master key: %w", err)
		}
	}
	keys, err := secret.ParseKeys(text)
	if err != nil {
		return nil, fmt.Errorf("TRANCHE_MASTER_KEY: %w", err)
	}
	return keys, nil
}

// readOrCreateKey returns the key in a file, and creates the file if it does not exist.
// If several processes create it at the same time, one succeeds and all use its key: a
// link, unlike a rename, never replaces a file.
func readOrCreateKey(path string) (string, error) {
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

// sealedFlags select a database and its master keys.
type sealedFlags struct {
	databaseFlags
	keyFlags
}

// withMaster prepares the database and calls work with a pool and the master keys.
func (f *sealedFlags) withMaster(ctx context.Context, out *console, log *slog.Logger, work func(*pgxpool.Pool, *secret.Keyring) error) error {
	return f.withDatabase(ctx, out, log, func(db *database, pool *pgxpool.Pool) error {
		master, err := f.keyFlags.open(db)
		if err != nil {
			return err
		}
		if err := db.prepare(ctx, pool); err != nil {
			return err
		}
		return work(pool, master)
	})
}
