package pgtest

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"tranche/queries"
)

// The functions below change stored times, so that a test need not wait until
// something expires. Each fails the test if it finds no row.

// idempotencyKeyTTL is how long the service keeps an idempotency key.
const idempotencyKeyTTL = 24 * time.Hour

// age runs a statement that must change at least one row.
func age(tb testing.TB, db queries.DBTX, sql string, args ...any) {
	tb.Helper()
	if Exec(tb, db, sql, args...) == 0 {
		tb.Fatalf("no row to change: %s", sql)
	}
}

// ExpireAuthorization lets an authorization expire now.
func ExpireAuthorization(tb testing.TB, db queries.DBTX, id uuid.UUID) {
	tb.Helper()
	age(tb, db, "UPDATE authorizations SET expires_at = now() WHERE id = $1", id)
}

// ExpireOneTimePassword sets the expiry of a one-time password to a time before
// now. A negative time sets it after now.
func ExpireOneTimePassword(tb testing.TB, db queries.DBTX, id uuid.UUID, ago time.Duration) {
	tb.Helper()
	age(tb, db, "UPDATE one_time_passwords SET expires_at = now() - $2::interval WHERE id = $1", id, ago)
}

// AgeOneTimePasswords makes the one-time passwords of a tenant older.
func AgeOneTimePasswords(tb testing.TB, db queries.DBTX, tenantID uuid.UUID, by time.Duration) {
	tb.Helper()
	age(tb, db, "UPDATE one_time_passwords SET created_at = created_at - $2::interval WHERE tenant_id = $1", tenantID, by)
}

// ExpireIdempotencyKeys makes all idempotency keys of a tenant a second older
// than their lifetime.
func ExpireIdempotencyKeys(tb testing.TB, db queries.DBTX, tenantID uuid.UUID) {
	tb.Helper()
	age(tb, db, "UPDATE idempotency_keys SET created_at = now() - $2::interval WHERE tenant_id = $1", tenantID, idempotencyKeyTTL+time.Second)
}

// AgeRateLimits makes all requests that the rate limits count older.
func AgeRateLimits(tb testing.TB, db queries.DBTX, by time.Duration) {
	tb.Helper()
	age(tb, db, "UPDATE rate_limit_hits SET at = at - $1::interval", by)
	age(tb, db, "UPDATE rate_limits SET last_at = last_at - $1::interval", by)
}

// SetNextRun sets when all schedules of a workflow fire next.
func SetNextRun(tb testing.TB, db queries.DBTX, workflowID uuid.UUID, at time.Time) {
	tb.Helper()
	age(tb, db, "UPDATE schedules SET next_run_at = $2 WHERE workflow_id = $1", workflowID, at)
}

// AgeHeartbeat sets the last heartbeat of a service instance to a time before now.
func AgeHeartbeat(tb testing.TB, db queries.DBTX, instanceID uuid.UUID, ago time.Duration) {
	tb.Helper()
	age(tb, db, "UPDATE processes SET heartbeat_at = now() - $2::interval WHERE id = $1", instanceID, ago)
}

// RevokeTenant revokes a tenant.
func RevokeTenant(tb testing.TB, db queries.DBTX, tenantID uuid.UUID) {
	tb.Helper()
	age(tb, db, "UPDATE tenants SET revoked_at = now() WHERE id = $1", tenantID)
}

// RevokeClients revokes all clients of a tenant at a time before now.
func RevokeClients(tb testing.TB, db queries.DBTX, tenantID uuid.UUID, ago time.Duration) {
	tb.Helper()
	age(tb, db, "UPDATE clients SET revoked_at = now() - $2::interval WHERE tenant_id = $1", tenantID, ago)
}
