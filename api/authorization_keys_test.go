package api_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"tranche/internal/apitest"
	"tranche/internal/secret"
	"tranche/internal/server"
)

// keyed makes a service have these master keys, the first of which seals.
func keyed(t *testing.T, keys string) func(*server.Config) {
	t.Helper()
	ring, err := secret.ParseKeys(keys)
	require.NoError(t, err)
	return func(c *server.Config) { c.Keys = ring }
}

// TestConsentOutlivesTheMasterKey replaces the master key while a code is open:
// processes with the new key in front take it, and count on.
func TestConsentOutlivesTheMasterKey(t *testing.T) {
	t.Parallel()
	older, newer := secret.GenerateKey(), secret.GenerateKey()
	d := openDesk(t, keyed(t, older))
	s := d.signer(t)
	otpID, code := s.start(t, "rotation@example.com")
	s.attempt(t, otpID, otherThan(code)).Expect(http.StatusBadRequest)

	both := apitest.Start(t, keyed(t, newer+","+older), func(c *server.Config) {
		c.DatabaseURL, c.Senders = d.DatabaseURL, d.senders
	})
	after := &signer{desk: d, Caller: both.WithToken(s.Token), tenant: s.tenant, id: s.id}
	problem := after.attempt(t, otpID, otherThan(code)).ExpectProblem(http.StatusBadRequest, "VALIDATION_ERROR", "")
	require.Contains(t, problem.Message, "3 attempts are left")
	after.attempt(t, otpID, code).Expect(http.StatusAccepted)

	// A contact cannot be sent more codes because the key has changed.
	after.id = after.create(t)
	after.Post(t, after.path("/signatures"), byEmail("rotation@example.com")).ExpectProblem(http.StatusTooManyRequests, "RATE_LIMITED", "")

	// A message that is sealed under the new key waits for a process that has it.
	otpID, code = after.start(t, "rotated@example.com")
	after.attempt(t, otpID, code).Expect(http.StatusAccepted)
}
