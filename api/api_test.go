package api_test

import (
	"testing"

	"tranche/internal/apitest"
)

// runShared runs tests in parallel against one service. Each test uses a tenant of its
// own and looks at no rows of other tenants. A test that counts rows of all tenants,
// reads metrics or configures the service starts a service of its own.
func runShared(t *testing.T, tests map[string]func(*testing.T, *apitest.Service)) {
	t.Helper()
	s := apitest.Start(t)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, s)
		})
	}
}
