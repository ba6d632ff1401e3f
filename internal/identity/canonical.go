package identity

import (
	"bytes"
	"crypto/elliptic"
	"encoding/base64"
	"math/big"
	"slices"
	"strings"
)

// signatureBytes is the length of an ES256 signature: r and s (RFC 7518, 3.4).
const signatureBytes = 64

// canonical gives a token that was just signed its one text: of the two values
// of s that are equally good it takes the lower.
func canonical(token string) string {
	end := strings.LastIndexByte(token, '.') + 1
	signature, err := base64.RawURLEncoding.DecodeString(token[end:])
	if err != nil || len(signature) != signatureBytes {
		return token // which is not accepted either
	}
	return token[:end] + base64.RawURLEncoding.EncodeToString(lowS(signature))
}

// isCanonical reports whether a token is three parts in base64url without
// stray bits or line breaks, and its signature the one that canonical makes, so
// that one token has one text.
func isCanonical(token string) bool {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return false
	}
	var signature []byte
	for _, part := range parts {
		decoded, err := base64.RawURLEncoding.Strict().DecodeString(part)
		if err != nil || part == "" || strings.ContainsAny(part, "\r\n") {
			return false
		}
		signature = decoded
	}
	return len(signature) == signatureBytes && bytes.Equal(signature, lowS(signature))
}

// lowS returns a signature with the lower of s and n-s, both of which verify.
func lowS(signature []byte) []byte {
	s := new(big.Int).SetBytes(signature[signatureBytes/2:])
	other := new(big.Int).Sub(elliptic.P256().Params().N, s)
	if other.Cmp(s) >= 0 {
		return signature
	}
	low := slices.Clone(signature)
	other.FillBytes(low[signatureBytes/2:])
	return low
}
