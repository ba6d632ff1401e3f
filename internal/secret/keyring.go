package secret

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

// Errors of Open. They reveal nothing of the sealed value.
var (
	// ErrUnknownKey means that the keyring lacks the master key of the value.
	ErrUnknownKey = errors.New("sealed under a master key that is not configured")
	// ErrBroken means that the value was changed, truncated or moved to another row.
	ErrBroken = errors.New("the sealed value is broken or belongs to another row")
)

// Keyring seals confidential values for the database with AES-256-GCM. Its master keys live
// outside the database. The first key seals and all keys open, so an operator replaces a key
// by putting the new one in front. Keyring also derives keys for other purposes, so that the
// operator has only one secret to manage.
type Keyring struct {
	keys []key
}

type key struct {
	id     [keyIDBytes]byte
	secret []byte
	aead   cipher.AEAD
}

// ParseKeys reads master keys of 256 bits each, in base64 or hexadecimal, separated by
// commas or white space.
func ParseKeys(text string) (*Keyring, error) {
	ring := &Keyring{}
	fields := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(", \t\r\n", r) })
	for i, field := range fields {
		secret, ok := decode(field)
		if !ok {
			return nil, fmt.Errorf("master key %d: must be 32 bytes in base64 or hexadecimal", i+1)
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

// GenerateKey returns a new random master key in the format of ParseKeys.
func GenerateKey() string {
	secret := make([]byte, keyBytes)
	_, _ = rand.Read(secret) // never fails: it ends the process instead
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

// Seal encrypts a value for one row of a table. The result is the key's id, a random nonce
// and the ciphertext. It opens for that row only. If the table has tenants, row includes
// the tenant's id.
func (r *Keyring) Seal(value []byte, table string, row ...string) []byte {
	k := r.keys[0]
	sealed := make([]byte, keyIDBytes+nonceBytes, keyIDBytes+nonceBytes+len(value)+k.aead.Overhead())
	copy(sealed, k.id[:])
	nonce := sealed[keyIDBytes:]
	_, _ = rand.Read(nonce) // never fails, see GenerateKey
	return k.aead.Seal(sealed, nonce, value, associatedData(table, row))
}

// Open decrypts a value that Seal made for the same row. Errors: ErrUnknownKey, ErrBroken.
func (r *Keyring) Open(sealed []byte, table string, row ...string) ([]byte, error) {
	if len(sealed) < keyIDBytes+nonceBytes {
		return nil, ErrBroken
	}
	for _, k := range r.keys {
		if k.id != [keyIDBytes]byte(sealed) {
			continue
		}
		nonce, ciphertext := sealed[keyIDBytes:keyIDBytes+nonceBytes], sealed[keyIDBytes+nonceBytes:]
		value, err := k.aead.Open(nil, nonce, ciphertext, associatedData(table, row))
		if err != nil {
			return nil, ErrBroken
		}
		return value, nil
	}
	return nil, ErrUnknownKey
}

// Reseal seals a value that Seal made for the same row again, under the first master key.
// It returns nil if the value is already sealed under that key. Errors are those of Open.
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

// Derive returns a 256-bit key for one purpose from the first master key (HKDF-SHA-256,
// RFC 5869). The key changes when the first master key changes.
func (r *Keyring) Derive(purpose string) []byte { return r.keys[0].derive(purpose) }

// DeriveAll returns the derived key of each master key. They verify values that were made
// before the first master key changed.
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
		panic("secret: 32 bytes are within HKDF's range: " + err.Error())
	}
	return derived
}

// associatedData encodes the row of a value. Each part follows its length, so that no two
// rows have the same encoding.
func associatedData(table string, row []string) []byte {
	var b strings.Builder
	for _, part := range append([]string{table}, row...) {
		fmt.Fprintf(&b, "%d:%s", len(part), part)
	}
	return []byte(b.String())
}
