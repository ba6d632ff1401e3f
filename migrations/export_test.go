package migrations

// Parts that the tests drive one by one; pgtest imports this package, so the
// tests are outside of it.
var (
	Lock        = lock
	NewProvider = newProvider
	RiverUp     = riverUp
)

const LockPollInterval = lockPollInterval
