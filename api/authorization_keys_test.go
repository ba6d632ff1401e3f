package api_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tranche/internal/apitest"
	"tranche/internal/secret"
	"tranche/internal/server"
)

// keyed sets the master keys of a service. The first one encrypts.
func keyed(t *testing.T, keys string) func(*server.Config) {
	t.Helper()
	ring, err := secret.ParseKeys(keys)
	require.NoError(t, err)
	return func(c *server.Config) { c.Keys = ring }
}

// A code that was sent before the master key is rotated stays valid, and its attempts
// still count.
func TestConsentAfterMasterKeyRotation(t *testing.T) {
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

	// The rate limit of a contact still applies after the rotation.
	after.id = after.create(t)
	after.Post(t, after.path("/signatures"), byEmail("rotation@example.com")).ExpectProblem(http.StatusTooManyRequests, "RATE_LIMITED", "")

	// A message that is encrypted with the new key waits for a process that has the key.
	const to = "rotated@example.com"
	otpID = after.Post(t, after.path("/signatures"), byEmail(to)).Expect(http.StatusCreated).Text("otpId")
	require.Eventually(t, func() bool {
		d.retryDelivery(t, otpID)
		return d.office.count(to) > 0
	}, letterTimeMax, 50*time.Millisecond)
	after.attempt(t, otpID, d.office.code(t, to, 1)).Expect(http.StatusAccepted)
}
