package batch_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"tranche/internal/apitest"
	"tranche/internal/identity"
)

// The items of a status of a large batch are the same and in the same order as those of a small
// one, by page and by cursor.
func TestItemsOfStatusOfLargeBatch(t *testing.T) {
	t.Parallel()
	s := apitest.Start(t)
	c := s.Tenant(t).As(t, identity.RoleAdmin)
	publish(t, c, affordability)
	id := start(t, c, "affordability", map[string]any{"workflowInput": map[string]any{"items": []any{map[string]any{"borrowerId": "B-1", "income": 10, "debt": 1}}}})
	follow(t, c, id)
	const items, each = 10_300, 103 // of which one has failed
	_, err := s.Pool.Exec(t.Context(), `WITH item AS (
			INSERT INTO executions (id, tenant_id, workflow_id, workflow_alias, workflow_version, principal_id, batch_id, item_index, status, created_at)
			SELECT overlay(uuid_at(now()::timestamp)::text PLACING substr(gen_random_uuid()::text, 15) FROM 15)::uuid,
				b.tenant_id, b.workflow_id, b.workflow_alias, b.workflow_version, b.principal_id, b.id, i, CASE WHEN i % $3 = 0 THEN 'failed' ELSE 'completed' END, now()
			FROM execution_batches b, generate_series(1, $2 - 1) i WHERE b.id = $1 RETURNING id, tenant_id
		), payload AS (
			INSERT INTO execution_payloads (execution_id, tenant_id, input) SELECT id, tenant_id, '{}' FROM item
		) UPDATE execution_batches SET items_total = $2 WHERE id = $1`, uuid.MustParse(id), items, each)
	require.NoError(t, err)

	var want []int
	for i := each; i < items; i += each {
		want = append(want, i)
	}
	type page struct {
		Data []struct {
			ItemIndex int `json:"itemIndex"`
		} `json:"data"`
		Pagination struct {
			Total      int    `json:"total"`
			NextCursor string `json:"nextCursor"`
		} `json:"pagination"`
	}
	read := func(query string) (indexes []int, p page) {
		c.Get(t, "/v1/execution-batches/"+id+"/items?"+query).Expect(http.StatusOK).Decode(&p)
		for _, item := range p.Data {
			indexes = append(indexes, item.ItemIndex)
		}
		return indexes, p
	}
	var paged, walked []int
	for n := range 4 {
		indexes, p := read(fmt.Sprintf("status=failed&per-page=30&page=%d", n+1))
		require.Equal(t, len(want), p.Pagination.Total)
		paged = append(paged, indexes...)
	}
	require.Equal(t, want, paged)
	for cursor, more := "", true; more; {
		indexes, p := read("status=failed&per-page=40&cursor=" + cursor)
		walked, cursor = append(walked, indexes...), p.Pagination.NextCursor
		more = cursor != ""
	}
	require.Equal(t, want, walked)
	indexes, p := read("status=completed&per-page=3")
	require.Equal(t, []int{0, 1, 2}, indexes)
	require.Equal(t, 10_000, p.Pagination.Total, "of which no more are counted")
	indexes, p = read("status=running")
	require.Empty(t, indexes)
	require.Zero(t, p.Pagination.Total)
	indexes, _ = read("per-page=2&page=5101")
	require.Equal(t, []int{10_200, 10_201}, indexes)
}
