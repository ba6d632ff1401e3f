// Package queries contains all SQL of the service. The .sql files group statements by
// table; sqlc generates Go from them (`make generate`). The few lists with variable
// filters are built in Go. A query names tenant_id, or its name begins with Sys. The
// package must know nothing but pgx.
package queries
