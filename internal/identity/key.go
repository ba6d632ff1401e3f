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
	// keyTable binds sealed private keys to their table.
	keyTable = "signing_keys"
	// keyReloadEvery limits how often tokens with unknown keys cause a query.
	keyReloadEvery   = time.Second
	keyReloadTimeout = 3 * time.Second
	// KeySetTTL is how long clients may cache the published keys. A new key signs only
	// after that time, when every client can know it.
	KeySetTTL = 5 * time.Minute
	// keyTakenUp is the time within which every process loads a new key.
	keyTakenUp = time.Minute
)

// keySet is an immutable snapshot of the signing keys.
type keySet struct {
	// signer signs with the newest key that is not retired and was published at least
	// KeySetTTL ago, or else with the newest key. It is nil if there is no key.
	signer   jose.Signer
	public   map[string]*ecdsa.PublicKey
	document []byte // the JSON Web Key Set
}

// keyStore caches the current keySet. It reloads the set if a token has an unknown key,
// which another process may have created.
type keyStore struct {
	pool    *pgxpool.Pool
	master  *secret.Keyring
	clock   func() time.Time
	current atomic.Pointer[keySet]

	reloading  sync.Mutex
	reloadedAt time.Time // guarded by reloading
}

// start loads the keys and creates the first one if none can sign. The lock makes
// processes that start at the same time agree on one key.
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

// makeKeyTx inserts a new ES256 key and returns its id, the thumbprint (RFC 7638).
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

// RotateKey creates a new signing key and returns its id. The key is published at once
// and signs after KeySetTTL. The other keys sign until every process has loaded the new
// one, and verify their tokens until those expire. RotateKey returns
// secret.ErrUnknownKey if master does not open the other keys.
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

// ReplaceKeys creates a new signing key, removes all other keys and returns the new id.
// Use it if a key may have been stolen. All access tokens become invalid within 5 s;
// refresh tokens still work. It fails like RotateKey.
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

// addKeyTx adds a key. It first checks that master opens the existing keys, because a
// process could not load keys of different master keys.
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

// find returns the public key with an id, or nil. For an unknown id it queries the
// database, at most once a second.
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
	signs := false // the signer's key has been published long enough
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

// ResealKeys seals the signing keys under the first master key and returns how many of
// them were sealed under another. It returns secret.ErrUnknownKey if master does not have
// that other key.
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
