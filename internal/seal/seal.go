// Package seal keeps confidential values confidential in a database that
// others may read: AES-256-GCM under master keys that live outside it. It also
// derives keys for other purposes from the master key, so that an operator has
// one secret to look after. It must know no other package of the project.
package seal

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

const (
	keyBytes   = 32
	keyIDBytes = 8
	nonceBytes = 12
)

// Errors of Open. Neither says anything about the sealed value.
var (
	// ErrUnknownKey means that the value was sealed under a master key which
	// the keyring does not hold.
	ErrUnknownKey = errors.New("sealed under a master key that is not configured")
	// ErrBroken means that the value was changed, cut off or moved from the
	// row it was sealed for.
	ErrBroken = errors.New("the sealed value is broken or belongs to another row")
)

// Keyring holds master keys: the first seals, all of them open, so that a key
// can be replaced by putting the new one in front.
type Keyring struct {
	keys []key
}

type key struct {
	id     [keyIDBytes]byte
	secret []byte
	aead   cipher.AEAD
}

// Parse reads master keys of 256 bits each, in base64 or hexadecimal, one a
// line or separated by commas.
func Parse(text string) (*Keyring, error) {
	ring := &Keyring{}
	fields := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(", \t\r\n", r) })
	for i, field := range fields {
		secret, ok := decode(field)
		if !ok {
			return nil, fmt.Errorf("master key %d is not 32 bytes in base64 or hexadecimal", i+1)
		}
		k, err := newKey(secret)
		if err != nil {
			return nil, err
		}
		ring.keys = append(ring.keys, k)
	}
	if len(ring.keys) == 0 {
		return nil, errors.New("there is no master key")
	}
	return ring, nil
}

// Generate returns a new random master key in the form that Parse reads.
func Generate() string {
	secret := make([]byte, keyBytes)
	_, _ = rand.Read(secret) // crypto/rand.Read never fails: it ends the process instead
	return base64.StdEncoding.EncodeToString(secret)
}

func decode(field string) ([]byte, bool) {
	if len(field) == hex.EncodedLen(keyBytes) {
		secret, err := hex.DecodeString(field)
		return secret, err == nil
	}
	field = strings.TrimRight(field, "=")
	for _, encoding := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		if secret, err := encoding.DecodeString(field); err == nil {
			return secret, len(secret) == keyBytes
		}
	}
	return nil, false
}

func newKey(secret []byte) (key, error) {
	block, err := aes.NewCipher(secret)
	if err != nil {
		return key{}, fmt.Errorf("master key: %w", err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return key{}, fmt.Errorf("master key: %w", err)
	}
	sum := sha256.Sum256(append([]byte("tranche master key id\x00"), secret...))
	return key{id: [keyIDBytes]byte(sum[:]), secret: secret, aead: aead}, nil
}

// Seal encrypts a value for one row of one table: the result is the key's id,
// a random nonce, and the ciphertext, which opens for that row only. A table
// with tenants takes the tenant's id as a part of row.
func (r *Keyring) Seal(value []byte, table string, row ...string) []byte {
	k := r.keys[0]
	sealed := make([]byte, keyIDBytes+nonceBytes, keyIDBytes+nonceBytes+len(value)+k.aead.Overhead())
	copy(sealed, k.id[:])
	nonce := sealed[keyIDBytes:]
	_, _ = rand.Read(nonce) // never fails, see Generate
	return k.aead.Seal(sealed, nonce, value, place(table, row))
}

// Open decrypts what Seal made for the same row. Errors are ErrUnknownKey and
// ErrBroken.
func (r *Keyring) Open(sealed []byte, table string, row ...string) ([]byte, error) {
	if len(sealed) < keyIDBytes+nonceBytes {
		return nil, ErrBroken
	}
	for _, k := range r.keys {
		if k.id != [keyIDBytes]byte(sealed) {
			continue
		}
		nonce, ciphertext := sealed[keyIDBytes:keyIDBytes+nonceBytes], sealed[keyIDBytes+nonceBytes:]
		value, err := k.aead.Open(nil, nonce, ciphertext, place(table, row))
		if err != nil {
			return nil, ErrBroken
		}
		return value, nil
	}
	return nil, ErrUnknownKey
}

// Reseal seals what Seal made for the same row under the first master key; nil where
// it is already. It fails like Open.
func (r *Keyring) Reseal(sealed []byte, table string, row ...string) ([]byte, error) {
	if bytes.HasPrefix(sealed, r.keys[0].id[:]) {
		return nil, nil
	}
	value, err := r.Open(sealed, table, row...)
	if err != nil {
		return nil, err
	}
	return r.Seal(value, table, row...), nil
}

// Derive returns a 256-bit key for one purpose (HKDF-SHA-256, RFC 5869) from
// the first master key: for signing addresses, for instance. It changes when
// the first master key does.
func (r *Keyring) Derive(purpose string) []byte { return r.keys[0].derive(purpose) }

// DeriveAll returns what Derive does for each master key, so that what was
// made before the first one changed can still be recognised.
func (r *Keyring) DeriveAll(purpose string) [][]byte {
	derived := make([][]byte, len(r.keys))
	for i, k := range r.keys {
		derived[i] = k.derive(purpose)
	}
	return derived
}

func (k key) derive(purpose string) []byte {
	derived, err := hkdf.Key(sha256.New, k.secret, nil, "tranche "+purpose, keyBytes)
	if err != nil {
		panic("seal: 32 bytes are within HKDF's range: " + err.Error())
	}
	return derived
}

// place is the associated data: where a value belongs, each part preceded by
// its length so that no two places read the same.
func place(table string, row []string) []byte {
	var b strings.Builder
	for _, part := range append([]string{table}, row...) {
		fmt.Fprintf(&b, "%d:%s", len(part), part)
	}
	return []byte(b.String())
}
