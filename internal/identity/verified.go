package identity

import (
	"crypto/sha256"
	"sync"
	"time"

	"github.com/google/uuid"
)

// verifiedTokensMax bounds the memory of a process: about 3 MB.
const verifiedTokensMax = 10_000

// verifiedToken is what is known of a token whose signature and claims are good.
type verifiedToken struct {
	principal Principal
	family    uuid.UUID
	keyID     string
	notBefore time.Time
	expiresAt time.Time
}

// verifiedTokens remembers tokens by their hash, because checking a signature
// costs a hundred times more than looking one up. Times are checked at every
// use. When it is full it starts anew.
type verifiedTokens struct {
	mu     sync.RWMutex
	tokens map[[sha256.Size]byte]verifiedToken
}

func newVerifiedTokens() *verifiedTokens {
	return &verifiedTokens{tokens: map[[sha256.Size]byte]verifiedToken{}}
}

func (v *verifiedTokens) get(hash [sha256.Size]byte) (verifiedToken, bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	token, ok := v.tokens[hash]
	return token, ok
}

func (v *verifiedTokens) put(hash [sha256.Size]byte, token verifiedToken) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.tokens) >= verifiedTokensMax {
		clear(v.tokens)
	}
	v.tokens[hash] = token
}
