package secret_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tranche/internal/secret"
)

func keyring(t *testing.T, keys ...string) *secret.Keyring {
	t.Helper()
	ring, err := secret.ParseKeys(strings.Join(keys, "\n"))
	require.NoError(t, err)
	return ring
}

func TestParseKeys(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		strings.Repeat("ab", 32),
		"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
		"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8",
		"__79_Pv6-fj39vX08_Lx8O_u7ezr6uno5-bl5OPi4eA",
		" " + secret.GenerateKey() + "\n",
		secret.GenerateKey() + "," + secret.GenerateKey(),
	} {
		_, err := secret.ParseKeys(text)
		require.NoError(t, err, text)
	}
	for _, text := range []string{"", "\n", "short", strings.Repeat("ab", 31), strings.Repeat("zz", 32), secret.GenerateKey() + ",x"} {
		_, err := secret.ParseKeys(text)
		require.Error(t, err, text)
	}
	_, err := secret.ParseKeys("aVeryWrongKey")
	require.NotContains(t, err.Error(), "aVeryWrongKey")
}

func TestSealAndOpen(t *testing.T) {
	t.Parallel()
	ring := keyring(t, secret.GenerateKey())
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.SliceOf(rapid.Byte()).Draw(t, "value")
		row := rapid.SliceOfN(rapid.String(), 1, 3).Draw(t, "row")
		sealed := ring.Seal(value, "secrets", row...)
		opened, err := ring.Open(sealed, "secrets", row...)
		require.NoError(t, err)
		require.Equal(t, len(value), len(opened))
		require.Equal(t, string(value), string(opened))
		require.NotEqual(t, sealed, ring.Seal(value, "secrets", row...), "every value has its own nonce")
	})
}

func TestOpenRejectsChangedValues(t *testing.T) {
	t.Parallel()
	ring := keyring(t, secret.GenerateKey())
	sealed := ring.Seal([]byte("value"), "secrets", "tenant", "name")

	for i := range sealed {
		broken := append([]byte(nil), sealed...)
		broken[i] ^= 1
		_, err := ring.Open(broken, "secrets", "tenant", "name")
		require.Error(t, err, "byte %d flipped", i)
	}
	for n := range sealed {
		_, err := ring.Open(sealed[:n], "secrets", "tenant", "name")
		require.ErrorIs(t, err, secret.ErrBroken, "cut to %d bytes", n)
	}
	for _, place := range [][]string{
		{"tenant", "other"}, {"other", "name"}, {"tenantname"}, {"tenant", "name", ""}, {"tenan", "tname"},
	} {
		_, err := ring.Open(sealed, "secrets", place...)
		require.ErrorIs(t, err, secret.ErrBroken, "moved to %v", place)
	}
	_, err := ring.Open(sealed, "signing_keys", "tenant", "name")
	require.ErrorIs(t, err, secret.ErrBroken)
	_, err = keyring(t, secret.GenerateKey()).Open(sealed, "secrets", "tenant", "name")
	require.ErrorIs(t, err, secret.ErrUnknownKey)
}

func TestKeyRotation(t *testing.T) {
	t.Parallel()
	older, newer := secret.GenerateKey(), secret.GenerateKey()
	sealed := keyring(t, older).Seal([]byte("value"), "secrets", "row")

	both := keyring(t, newer, older)
	opened, err := both.Open(sealed, "secrets", "row")
	require.NoError(t, err)
	require.Equal(t, "value", string(opened))

	_, err = keyring(t, older).Open(both.Seal([]byte("value"), "secrets", "row"), "secrets", "row")
	require.ErrorIs(t, err, secret.ErrUnknownKey, "Seal uses the first key")
}

func TestDerive(t *testing.T) {
	t.Parallel()
	key := secret.GenerateKey()
	ring := keyring(t, key)
	require.Len(t, ring.Derive("upload"), 32)
	require.Equal(t, ring.Derive("upload"), keyring(t, key).Derive("upload"))
	require.NotEqual(t, ring.Derive("upload"), ring.Derive("download"))
	require.NotEqual(t, ring.Derive("upload"), keyring(t, secret.GenerateKey()).Derive("upload"))
}
