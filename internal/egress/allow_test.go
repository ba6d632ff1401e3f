package egress

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseAllow(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, want string }{
		{"", ""},
		{" , ", ""},
		{"127.0.0.1/32:8081,10.0.0.0/8", "127.0.0.1/32:8081,10.0.0.0/8"},
		{" 127.0.0.1:80 , 192.168.1.7", "127.0.0.1/32:80,192.168.1.7/32"},
		{"::1", "::1/128"},
		{"fd00::/8", "fd00::/8"},
		{"[fd00::/8]:443", "[fd00::/8]:443"},
		{"[::1]:8080,[::1]", "[::1/128]:8080,::1/128"},
		{"::ffff:127.0.0.1", "127.0.0.1/32"},
		{"0.0.0.0/0", "0.0.0.0/0"},
	} {
		got, err := ParseAllow(c.text)
		require.NoError(t, err, c.text)
		require.Equal(t, c.want, got.String(), c.text)
		again, err := ParseAllow(got.String())
		require.NoError(t, err)
		require.Equal(t, got, again)
	}
	for _, text := range []string{
		"localhost", "127.0.0.1/33", "127.0.0.1/32:0", "127.0.0.1/32:65536", "127.0.0.1/32:http", "127.0.0.1/32:",
		"10.0.0.1/8", "[fd00::/8]443", "[fd00::/8", "::ffff:10.0.0.0/104", "10.0.0.0/8 11.0.0.0/8", "10.0.0.0/8:1-2",
	} {
		_, err := ParseAllow(text)
		require.Error(t, err, text)
	}
}

func TestExceptions(t *testing.T) {
	t.Parallel()
	open, err := ParseAllow("127.0.0.1/32:8081,10.0.0.0/8,[fd00::/8]:443")
	require.NoError(t, err)
	for to, want := range map[string]bool{
		"127.0.0.1:8081":          true,
		"[::ffff:127.0.0.1]:8081": true,
		"127.0.0.1:8082":          false,
		"127.0.0.2:8081":          false,
		"10.9.8.7:22":             true,
		"11.0.0.1:80":             false,
		"[fd12::1]:443":           true,
		"[fd12::1%eth0]:443":      true,
		"[fd12::1]:80":            false,
		"[::1]:8081":              false,
	} {
		require.Equal(t, want, open.allows(netip.MustParseAddrPort(to)), to)
	}
}

// FuzzParseAllow checks that ParseAllow reads the output of String.
func FuzzParseAllow(f *testing.F) {
	f.Add("127.0.0.1/32:8081,10.0.0.0/8")
	f.Add("[fd00::/8]:443,::1")
	f.Fuzz(func(t *testing.T, text string) {
		open, err := ParseAllow(text)
		if err != nil {
			return
		}
		again, err := ParseAllow(open.String())
		require.NoError(t, err)
		require.Equal(t, open, again)
	})
}
