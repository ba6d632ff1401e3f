package execution_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"tranche/internal/execution"
)

// A callback address is valid while its key is kept.
func TestCallbacks(t *testing.T) {
	t.Parallel()
	older, newer := []byte(strings.Repeat("o", 32)), []byte(strings.Repeat("n", 32))
	tenantID, id := uuid.New(), uuid.New()
	address := execution.NewCallbacks([][]byte{older}, "https://tranche.example/").URL(tenantID, id, "each[3].approve", 1)
	token, ours := strings.CutPrefix(address, "https://tranche.example"+execution.CallbackPath)
	require.True(t, ours)

	both := execution.NewCallbacks([][]byte{newer, older}, "https://tranche.example")
	signal, ok := both.Read(token)
	require.True(t, ok)
	require.Equal(t, execution.Signal{TenantID: tenantID, ExecutionID: id, TaskID: "each[3].approve", Attempt: 1}, signal)
	require.NotEqual(t, address, both.URL(tenantID, id, "each[3].approve", 1), "the first key signs")

	unmarked := strings.TrimSuffix(string(decoded(t, token)[32:]), "#1")
	signal, ok = both.Read(signed(older, unmarked))
	require.True(t, ok, "earlier versions named no attempt")
	require.Equal(t, execution.Signal{TenantID: tenantID, ExecutionID: id, TaskID: "each[3].approve"}, signal)

	later, _ := strings.CutPrefix(both.URL(tenantID, id, "approve", 12), "https://tranche.example"+execution.CallbackPath)
	signal, ok = both.Read(later)
	require.True(t, ok)
	require.Equal(t, execution.Signal{TenantID: tenantID, ExecutionID: id, TaskID: "approve", Attempt: 12}, signal)

	_, ok = execution.NewCallbacks([][]byte{newer}, "https://tranche.example").Read(token)
	require.False(t, ok, "the key is gone")
	changed := []byte(token)
	changed[len(changed)-1] ^= 1
	for _, wrong := range []string{"", "x", token[1:], token + "AA", string(changed)} {
		_, ok = both.Read(wrong)
		require.False(t, ok, wrong)
	}
}

func decoded(t *testing.T, token string) []byte {
	t.Helper()
	text, err := base64.RawURLEncoding.DecodeString(token)
	require.NoError(t, err)
	return text
}

func signed(key []byte, body string) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(body))
	return base64.RawURLEncoding.EncodeToString(append(mac.Sum(nil), body...))
}
