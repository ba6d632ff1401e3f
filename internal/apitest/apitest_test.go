package apitest_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"tranche/internal/apitest"
	"tranche/internal/identity"
)

func TestCallersOverHTTP(t *testing.T) {
	t.Parallel()
	service := apitest.Start(t)
	admin := service.Tenant(t).As(t, identity.RoleAdmin)
	admin.Get(t, "/v2/workflows").Expect(http.StatusOK)
	require.Equal(t, "0", admin.Get(t, "/v2/workflows").Text("pagination.total"))
	service.Anonymous().Get(t, "/v2/workflows").ExpectProblem(http.StatusUnauthorized, "UNAUTHORIZED", "")
	service.Anonymous().Get(t, "/nothing").ExpectProblem(http.StatusNotFound, "NOT_FOUND", "")
}
