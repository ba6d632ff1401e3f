package api_test

import (
	"net/http"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"tranche/internal/apitest"
	"tranche/internal/identity"
	"tranche/internal/server"
)

// Behind trusted proxies, the caller's address is the last one that is not a trusted
// proxy, with or without a port.
func TestCallerAddressBehindProxies(t *testing.T) {
	t.Parallel()
	s := apitest.Start(t, func(c *server.Config) {
		c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("10.0.0.0/8")}
	})
	tenant := s.Tenant(t)
	c := tenant.As(t, identity.RoleAdmin)
	for forwarded, address := range map[string]string{
		"":                                   "127.0.0.1",
		"1.2.3.4":                            "1.2.3.4",
		"1.2.3.4:5555":                       "1.2.3.4",
		"2001:db8::1":                        "2001:db8::1",
		"[2001:db8::1]:99":                   "2001:db8::1",
		"[2001:db8::1]":                      "2001:db8::1",
		"[fe80::1%eth0]":                     "fe80::1",
		"[2001:db8::1":                       "127.0.0.1",
		"[2001:db8::1]:":                     "127.0.0.1",
		"[1.2.3.4]":                          "127.0.0.1",
		"8.8.8.8, 1.2.3.4:5555, 10.0.0.7:80": "1.2.3.4",
		"1.2.3.4, unknown":                   "127.0.0.1",
		"1.2.3.4:":                           "127.0.0.1",
	} {
		made := c.Post(t, "/v1/authorizations", map[string]any{
			"tenant": tenant.Slug, "key": "credit-report", "identityKey": "borrowerId", "identityValue": "B-1001",
		}, apitest.Header{Name: "X-Forwarded-For", Value: forwarded}).Expect(http.StatusCreated)
		require.Equal(t, address, c.Get(t, "/v1/authorizations/"+made.Text("id")).Expect(http.StatusOK).Text("ipAddress"), forwarded)
	}
}
