package identity

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"tranche/internal/audit"
	"tranche/internal/postgres"
	"tranche/internal/secret"
	"tranche/queries"
)

const (
	signatureAlgorithm = jose.ES256
	tokenType          = "at+jwt" // RFC 9068, 2.1
	// keyTable is what private keys are sealed for.
	keyTable = "signing_keys"
	// keyReloadEvery bounds how often tokens that name unknown keys can make
	// this process ask the database.
	keyReloadEvery   = time.Second
	keyReloadTimeout = 3 * time.Second
	// KeySetTTL is how long others may keep the published keys. A new key signs
	// only after it: then everybody can have it.
	KeySetTTL = 5 * time.Minute
	// keyTakenUp is when every process has loaded a key that was made.
	keyTakenUp = time.Minute
)

// keySet is what the database's signing keys are at one moment. It is never
// changed, only replaced.
type keySet struct {
	// signer signs with the newest key that is not retired and has been published
	// for long enough, or else with the newest; nil if there is none.
	signer   jose.Signer
	public   map[string]*ecdsa.PublicKey
	document []byte // the JSON Web Key Set
}

// keyStore keeps the current keySet and replaces it when a token names a key
// that another process made since.
type keyStore struct {
	pool    *pgxpool.Pool
	master  *secret.Keyring
	clock   func() time.Time
	current atomic.Pointer[keySet]

	reloading  sync.Mutex
	reloadedAt time.Time // guarded by reloading
}

// start loads the keys and makes the first one where there is none that signs.
// The lock lets processes that start together agree on one.
func (k *keyStore) start(ctx context.Context) error {
	ctx = postgres.AsSystem(ctx)
	err := postgres.InTx(ctx, k.pool, func(tx pgx.Tx) error {
		if err := queries.New().SysSigningKeyLock(ctx, tx); err != nil {
			return err
		}
		set, err := k.load(ctx, tx)
		if err != nil || set.signer != nil {
			return err
		}
		_, err = makeKeyTx(ctx, tx, k.master)
		return err
	})
	if err != nil {
		return fmt.Errorf("make the first signing key: %w", err)
	}
	_, err = k.reload(ctx)
	return err
}

// makeKeyTx inserts a new ES256 key and returns its id, which is its thumbprint
// (RFC 7638).
func makeKeyTx(ctx context.Context, tx pgx.Tx, master *secret.Keyring) (string, error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", err
	}
	thumbprint, err := (&jose.JSONWebKey{Key: &private.PublicKey}).Thumbprint(crypto.SHA256)
	if err != nil {
		return "", err
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return "", err
	}
	id := base64.RawURLEncoding.EncodeToString(thumbprint)
	return id, queries.New().SysSigningKeyInsert(ctx, tx, queries.SysSigningKeyInsertParams{
		ID: id, PrivateKey: master.Seal(der, keyTable, id),
	})
}

// RotateKey makes a new signing key and returns its id. It is published at once
// and signs once KeySetTTL has passed; the others sign until every process has
// taken it up, and verify what they signed for as long as that lives. It fails
// with secret.ErrUnknownKey where master is not the key of the others.
func RotateKey(ctx context.Context, tx pgx.Tx, master *secret.Keyring) (string, error) {
	id, err := addKeyTx(ctx, tx, master)
	if err != nil {
		return "", err
	}
	err = queries.New().SysSigningKeyRetireOthers(ctx, tx, queries.SysSigningKeyRetireOthersParams{
		ID: id, Seconds: (KeySetTTL + keyTakenUp).Seconds(),
	})
	if err != nil {
		return "", fmt.Errorf("retire the other signing keys: %w", err)
	}
	return id, audit.RecordTx(ctx, tx, uuid.Nil, audit.KeyRotate, id)
}

// ReplaceKeys makes a new signing key, removes every other one and returns its
// id: for keys that somebody may have stolen. Every access token ends within
// 5 s; refresh tokens yield new ones. It fails like RotateKey.
func ReplaceKeys(ctx context.Context, tx pgx.Tx, master *secret.Keyring) (string, error) {
	id, err := addKeyTx(ctx, tx, master)
	if err != nil {
		return "", err
	}
	if err := queries.New().SysSigningKeyWithdrawOthers(ctx, tx, id); err != nil {
		return "", fmt.Errorf("remove the other signing keys: %w", err)
	}
	return id, audit.RecordTx(ctx, tx, uuid.Nil, audit.KeyWithdraw, id)
}

// addKeyTx adds a key beside those that master opens: under another one no
// process could load it.
func addKeyTx(ctx context.Context, tx pgx.Tx, master *secret.Keyring) (string, error) {
	if err := queries.New().SysSigningKeyLock(ctx, tx); err != nil {
		return "", fmt.Errorf("lock the signing keys: %w", err)
	}
	if _, err := (&keyStore{master: master}).load(ctx, tx); err != nil {
		return "", err
	}
	id, err := makeKeyTx(ctx, tx, master)
	if err != nil {
		return "", fmt.Errorf("make a signing key: %w", err)
	}
	return id, nil
}

// find returns the public key of an id. An unknown id makes it look into the
// database, at most once a second; nil means that there is no such key.
func (k *keyStore) find(ctx context.Context, id string) (*ecdsa.PublicKey, error) {
	if public, ok := k.current.Load().public[id]; ok {
		return public, nil
	}
	k.reloading.Lock()
	defer k.reloading.Unlock()
	set := k.current.Load()
	if set.public[id] != nil || k.clock().Sub(k.reloadedAt) < keyReloadEvery {
		return set.public[id], nil
	}
	ctx, cancel := context.WithTimeout(ctx, keyReloadTimeout)
	defer cancel()
	set, err := k.reload(ctx)
	k.reloadedAt = k.clock()
	if err != nil {
		return nil, err
	}
	return set.public[id], nil
}

func (k *keyStore) reload(ctx context.Context) (*keySet, error) {
	set, err := k.load(postgres.AsSystem(ctx), k.pool)
	if err != nil {
		return nil, err
	}
	k.current.Store(set)
	return set, nil
}

func (k *keyStore) load(ctx context.Context, db queries.DBTX) (*keySet, error) {
	rows, err := queries.New().SysSigningKeyList(ctx, db, KeySetTTL.Seconds())
	if err != nil {
		return nil, fmt.Errorf("load the signing keys: %w", postgres.Translate(err))
	}
	set := &keySet{public: make(map[string]*ecdsa.PublicKey, len(rows))}
	document := jose.JSONWebKeySet{Keys: []jose.JSONWebKey{}}
	signs := false // whether the signer's key is one that everybody has
	for _, row := range rows {
		private, err := k.open(row)
		if err != nil {
			return nil, fmt.Errorf("signing key %s: %w", row.ID, err)
		}
		if row.IsLive && !signs && (set.signer == nil || row.IsPublished) {
			if set.signer, err = newSigner(row.ID, private); err != nil {
				return nil, fmt.Errorf("signing key %s: %w", row.ID, err)
			}
			signs = row.IsPublished
		}
		set.public[row.ID] = &private.PublicKey
		document.Keys = append(document.Keys, jose.JSONWebKey{
			Key: &private.PublicKey, KeyID: row.ID, Algorithm: string(signatureAlgorithm), Use: "sig",
		})
	}
	if set.document, err = json.Marshal(document); err != nil {
		return nil, fmt.Errorf("write the key set: %w", err)
	}
	return set, nil
}

func (k *keyStore) open(row queries.SysSigningKeyListRow) (*ecdsa.PrivateKey, error) {
	der, err := k.master.Open(row.PrivateKey, keyTable, row.ID)
	if err != nil {
		return nil, err
	}
	parsed, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, err
	}
	private, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || private.Curve != elliptic.P256() {
		return nil, errors.New("not a P-256 key")
	}
	return private, nil
}

func newSigner(id string, private *ecdsa.PrivateKey) (jose.Signer, error) {
	return jose.NewSigner(
		jose.SigningKey{Algorithm: signatureAlgorithm, Key: jose.JSONWebKey{Key: private, KeyID: id}},
		(&jose.SignerOptions{}).WithType(tokenType),
	)
}

// ResealKeys seals the signing keys under the first master key and returns how many
// were sealed under another. It fails with secret.ErrUnknownKey where master lacks that.
func ResealKeys(ctx context.Context, tx pgx.Tx, master *secret.Keyring) (resealed int, err error) {
	q := queries.New()
	rows, err := q.SysSigningKeyListForUpdate(ctx, tx)
	if err != nil {
		return 0, err
	}
	for _, row := range rows {
		sealed, err := master.Reseal(row.PrivateKey, keyTable, row.ID)
		if err != nil {
			return 0, fmt.Errorf("signing key %s: %w", row.ID, err)
		}
		if sealed == nil {
			continue
		}
		if err := q.SysSigningKeyReseal(ctx, tx, queries.SysSigningKeyResealParams{ID: row.ID, PrivateKey: sealed}); err != nil {
			return 0, err
		}
		resealed++
	}
	return resealed, nil
}
