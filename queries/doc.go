// Package queries is all the SQL of the service: statements by table in the
// .sql files, the Go that sqlc makes of them beside it (`make generate`), and
// the few lists whose filters vary, which are built. A query names tenant_id,
// or its name begins with Sys. It must know nothing but pgx.
package queries
