package identity_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"os"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/require"

	"tranche/internal/fault"
	"tranche/internal/identity"
	"tranche/internal/pgtest"
)

func encode(part []byte) string { return base64.RawURLEncoding.EncodeToString(part) }

// lowS returns a signature of P-256 with the lower of its two values of s.
func lowS(signature []byte) []byte {
	s := new(big.Int).SetBytes(signature[32:])
	if other := new(big.Int).Sub(elliptic.P256().Params().N, s); other.Cmp(s) < 0 {
		s = other
	}
	return append(bytes.Clone(signature[:32]), s.FillBytes(make([]byte, 32))...)
}

// adopt makes the service sign and verify with a key from elsewhere, under ids
// that tokens may name.
func (b *bundle) adopt(t *testing.T, private any, ids ...string) *identity.Service {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	for _, id := range ids {
		pgtest.Exec(t, b.pool, `INSERT INTO signing_keys (id, private_key) VALUES ($1, $2)`, id, b.master.Seal(der, "signing_keys", id))
	}
	return b.replica(t)
}

// group is a key with signatures that were published to be accepted or refused.
type group struct {
	Source  string          `json:"source"`
	Key     jose.JSONWebKey `json:"key"`
	Vectors []struct {
		Name string `json:"name"`
		JWS  string `json:"jws"`
		Good bool   `json:"good"` // under its key, as a signature
	} `json:"vectors"`
}

// TestVerifyRefusesPublishedVectors presents signatures published to test
// libraries, in RFC 7515 and by project Wycheproof, to a service that has their
// keys. None is a token of its own, not even those that are good signatures.
func TestVerifyRefusesPublishedVectors(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/jws.json")
	require.NoError(t, err)
	var groups []group
	require.NoError(t, json.Unmarshal(text, &groups))
	for _, g := range groups {
		t.Run(g.Source, func(t *testing.T) {
			t.Parallel()
			service := setup(t).adopt(t, g.Key.Key, "", g.Key.KeyID)
			good := 0
			for _, v := range g.Vectors {
				_, err := service.Verify(t.Context(), v.JWS)
				require.ErrorIs(t, err, fault.Unauthorized, v.Name)
				signed, err := jose.ParseSignedCompact(v.JWS, []jose.SignatureAlgorithm{jose.ES256})
				if err == nil {
					_, err = signed.Verify(g.Key.Public())
				}
				require.Equal(t, v.Good, err == nil, v.Name)
				if v.Good {
					good++
				}
			}
			require.Positive(t, good, "the key is the vectors'")
		})
	}
}

// TestVerifyRefusesOddSignatures presents tokens whose header or signature is
// not what the service makes, though the claims are its own and, where it says
// so, the key is too.
func TestVerifyRefusesOddSignatures(t *testing.T) {
	t.Parallel()
	b := setup(t)
	good := b.token(t).AccessToken
	kid, private := b.signingKey(t)
	foreign := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	claims := strings.Split(good, ".")[1]
	n := elliptic.P256().Params().N

	sign := func(key *ecdsa.PrivateKey, header, payload string) []byte {
		hash := sha256.Sum256([]byte(encode([]byte(header)) + "." + payload))
		r, s, err := ecdsa.Sign(rand.Reader, key, hash[:])
		require.NoError(t, err)
		return lowS(append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...))
	}
	join := func(header, payload string, signature []byte) string {
		return encode([]byte(header)) + "." + payload + "." + encode(signature)
	}
	with := func(key *ecdsa.PrivateKey, header string) string {
		return join(header, claims, sign(key, header, claims))
	}
	header := func(more string) string { return fmt.Sprintf(`{"alg":"ES256","typ":"at+jwt","kid":%q%s}`, kid, more) }
	pair := func(r, s *big.Int) []byte {
		return append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...)
	}
	signature := sign(private, header(""), claims)
	r, s := new(big.Int).SetBytes(signature[:32]), new(big.Int).SetBytes(signature[32:])
	zero, one := new(big.Int), big.NewInt(1)
	_, err := b.service.Verify(t.Context(), join(header(""), claims, signature))
	require.NoError(t, err, "the forger's tools work")
	twice := func(name string) string { // the claims with a name that occurs twice
		return encode([]byte(strings.Replace(string(must(base64.RawURLEncoding.DecodeString(claims))), "{", `{"`+name+`":"x",`, 1)))
	}
	hash := sha256.Sum256([]byte(encode([]byte(header(""))) + "." + claims))

	for name, token := range map[string]string{
		"r and s are 0":             join(header(""), claims, make([]byte, 64)),
		"r is 0":                    join(header(""), claims, pair(zero, s)),
		"s is 0":                    join(header(""), claims, pair(r, zero)),
		"r is n":                    join(header(""), claims, pair(n, s)),
		"s is n":                    join(header(""), claims, pair(r, n)),
		"r and s are 1":             join(header(""), claims, pair(one, one)),
		"r and s exchanged":         join(header(""), claims, lowS(pair(s, r))),
		"high s":                    join(header(""), claims, pair(r, new(big.Int).Sub(n, s))),
		"DER":                       join(header(""), claims, must(ecdsa.SignASN1(rand.Reader, private, hash[:]))),
		"63 bytes":                  join(header(""), claims, signature[:63]),
		"65 bytes, 0 in front":      join(header(""), claims, append([]byte{0}, signature...)),
		"65 bytes, 0 behind":        join(header(""), claims, append(bytes.Clone(signature), 0)),
		"32 bytes":                  join(header(""), claims, signature[:32]),
		"r and s in 48 bytes each":  join(header(""), claims, append(append(make([]byte, 16), signature[:32]...), append(make([]byte, 16), signature[32:]...)...)),
		"another token's signature": join(header(""), claims, must(base64.RawURLEncoding.DecodeString(strings.Split(b.token(t).AccessToken, ".")[2]))),

		"foreign key, jwk":   with(foreign, header(`,"jwk":`+string(must((&jose.JSONWebKey{Key: &foreign.PublicKey}).MarshalJSON())))),
		"foreign key, jku":   with(foreign, header(`,"jku":"https://attacker.example/jwks.json"`)),
		"foreign key, x5u":   with(foreign, header(`,"x5u":"https://attacker.example/cert.pem"`)),
		"foreign key, x5t":   with(foreign, header(`,"x5t":"dGh1bWJwcmludA"`)),
		"kid of a path":      with(foreign, `{"alg":"ES256","typ":"at+jwt","kid":"../../dev/null"}`),
		"kid of SQL":         with(foreign, `{"alg":"ES256","typ":"at+jwt","kid":"' OR '1'='1"}`),
		"kid with NUL":       with(foreign, `{"alg":"ES256","typ":"at+jwt","kid":"\u0000"}`),
		"kid not a text":     with(private, `{"alg":"ES256","typ":"at+jwt","kid":1}`),
		"kid of another row": with(private, `{"alg":"ES256","typ":"at+jwt","kid":"`+kid+` "}`),

		"own key, crit":           with(private, header(`,"crit":["exp"],"exp":1`)),
		"own key, crit of b64":    with(private, header(`,"crit":["b64"],"b64":false`)),
		"own key, crit empty":     with(private, header(`,"crit":[]`)),
		"own key, crit a text":    with(private, header(`,"crit":"exp"`)),
		"own key, alg twice":      with(private, header(`,"alg":"none"`)),
		"own key, kid twice":      with(private, header(`,"kid":"other"`)),
		"own key, alg in capital": with(private, strings.Replace(header(""), "ES256", "es256", 1)),
		"own key, no alg":         with(private, strings.Replace(header(""), `"alg":"ES256",`, "", 1)),
		"own key, alg None":       with(private, strings.Replace(header(""), "ES256", "nOnE", 1)),
		"own key, alg a list":     with(private, strings.Replace(header(""), `"ES256"`, `["ES256"]`, 1)),
		"own key, alg null":       with(private, strings.Replace(header(""), `"ES256"`, `null`, 1)),
		"own key, ES256K":         with(private, strings.Replace(header(""), "ES256", "ES256K", 1)),
		"own key, typ twice":      with(private, header(`,"typ":"JWT"`)),
		"own key, typ in capital": with(private, strings.Replace(header(""), "at+jwt", "AT+JWT", 1)),
		"own key, a list":         with(private, `["ES256"]`),
		"own key, header is null": with(private, `null`),
		"own key, trailing text":  with(private, header("")+"x"),
		"own key, tenant twice":   join(header(""), twice("tenant"), sign(private, header(""), twice("tenant"))),
		"own key, scope twice":    join(header(""), twice("scope"), sign(private, header(""), twice("scope"))),
	} {
		_, err := b.service.Verify(t.Context(), token)
		require.ErrorIs(t, err, fault.Unauthorized, name)
		require.Equal(t, "the access token is invalid or has expired", err.Error(), name)
	}
}

// A token has one text: whatever the randomness of its signature.
func TestTokensAreCanonical(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for range 20 { // of which half would have a high s
		token := b.token(t).AccessToken
		signature := must(base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[2]))
		require.Equal(t, lowS(signature), signature)
		_, err := b.service.Verify(t.Context(), token)
		require.NoError(t, err)
	}
}
