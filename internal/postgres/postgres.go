// Package postgres gives access to the database: connection pools, transactions, a listener
// for notifications, and the translation of database errors into kinds of fault. It must not
// know tables or the domain.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Limits of the connections.
const (
	apiConnsDefault    = 20
	workerConnsDefault = 20
	queueConns         = 8

	connectTimeMax   = 5 * time.Second  // to open a connection
	acquireTimeMax   = 5 * time.Second  // to acquire a connection from a pool
	statementTimeMax = 30 * time.Second // of a statement of a request
	answerGrace      = 5 * time.Second  // for the response of the server after it ended a statement
	idleTxTimeMax    = 60 * time.Second // between two statements of a transaction
	connLifetimeMax  = time.Hour
	connIdleTimeMax  = 10 * time.Minute
	connReadOnlyMax  = 5 * time.Second // of a connection that cannot write
)

// Config configures the connections.
type Config struct {
	// URL is a connection string in the format of libpq.
	URL string
	// APIConns and WorkerConns are the sizes of the pools. 0 means 20.
	APIConns, WorkerConns int32
	// Log receives a line when the listener loses its connection. It may be nil.
	Log *slog.Logger
}

// Pools are the connections of one process. Requests and jobs have separate pools, so that
// neither can starve the other. The statements of both see only the rows of the tenant in
// their context.
type Pools struct {
	API     *pgxpool.Pool
	Workers *pgxpool.Pool
	// Queue is the pool of River. It connects as the user of the connection string,
	// because River reindexes its tables, which only their owner may do.
	Queue *pgxpool.Pool
	// Listen is the connection that receives notifications. The caller runs it.
	Listen *Listener
}

// Open creates the pools and pings the database. It fails with fault.Unavailable if the
// database does not respond.
func Open(ctx context.Context, config Config) (*Pools, error) {
	api, err := NewPool(ctx, config.URL, PoolOptions{Name: "tranche api", Conns: orDefault(config.APIConns, apiConnsDefault), StatementTimeMax: statementTimeMax})
	if err != nil {
		return nil, err
	}
	workers, err := NewPool(ctx, config.URL, PoolOptions{Name: "tranche workers", Conns: orDefault(config.WorkerConns, workerConnsDefault)})
	if err != nil {
		api.Close()
		return nil, err
	}
	queue, err := NewPool(ctx, config.URL, PoolOptions{Name: "tranche queue", Conns: queueConns, Unscoped: SeesAsUser})
	if err != nil {
		api.Close()
		workers.Close()
		return nil, err
	}
	pools := &Pools{API: api, Workers: workers, Queue: queue}
	if pools.Listen, err = NewListener(config.URL, config.Log); err != nil {
		pools.Close()
		return nil, err
	}
	if err := api.Ping(ctx); err != nil {
		pools.Close()
		return nil, Translate(err)
	}
	return pools, nil
}

func orDefault(conns, standard int32) int32 {
	if conns <= 0 {
		return standard
	}
	return conns
}

// Close waits until every connection has been released and closes the pools.
func (p *Pools) Close() {
	p.API.Close()
	p.Workers.Close()
	p.Queue.Close()
}

// PoolOptions configure a pool.
type PoolOptions struct {
	// Name is the application_name that pg_stat_activity shows.
	Name string
	// Conns is the highest number of open connections.
	Conns int32
	// StatementTimeMax is the time limit of a statement, which the server enforces. 0 sets
	// no limit. If the server does not respond 5 s later, the connection is closed.
	StatementTimeMax time.Duration
	// Unscoped defines which rows a statement sees if its context names no tenant.
	Unscoped Unscoped
}

// NewPool creates a pool. Its callers wait at most 5 s for a connection. NewPool does not
// connect.
func NewPool(ctx context.Context, url string, options PoolOptions) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("DATABASE_URL: %w", err)
	}
	config.MaxConns = options.Conns
	config.MaxConnLifetime = connLifetimeMax
	config.MaxConnLifetimeJitter = connLifetimeMax / 10
	config.MaxConnIdleTime = connIdleTimeMax
	config.ConnConfig.Tracer = limits{statementTimeMax: options.StatementTimeMax}
	unscoped := options.Unscoped.scope()
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		if err := checkConn(ctx, conn); err != nil {
			return err
		}
		scanInUTC(conn)
		registerUUID(conn.TypeMap())
		registerArrays(conn.TypeMap())
		conn.PgConn().CustomData()[sessionKey] = &session{began: time.Now(), unscoped: unscoped, current: unscoped}
		return nil
	}
	config.PrepareConn = prepareConn
	setConn(config.ConnConfig, options.Name)
	if unscoped.role != "" {
		config.ConnConfig.RuntimeParams["role"] = unscoped.role
	}
	if options.Unscoped != SeesAsUser {
		planByKeys(config.ConnConfig.RuntimeParams)
	}
	config.ConnConfig.RuntimeParams["idle_in_transaction_session_timeout"] = milliseconds(idleTxTimeMax)
	if options.StatementTimeMax > 0 {
		config.ConnConfig.RuntimeParams["statement_timeout"] = milliseconds(options.StatementTimeMax)
	}
	return pgxpool.NewWithConfig(ctx, config)
}

// setConn sets the parameters that statements rely on, so that the defaults of the server, the
// database and the user have no effect.
func setConn(config *pgx.ConnConfig, name string) {
	config.ConnectTimeout = connectTimeMax
	maps.Copy(config.RuntimeParams, map[string]string{
		"application_name": name,
		"timezone":         "UTC",
		"client_encoding":  "UTF8",
		"search_path":      "public",
		// If it is off, a statement fails instead of seeing fewer rows.
		"row_security": "on",
		// Functions of the schema compare unquoted names.
		"quote_all_identifiers": "off",
		// Statements lock the rows that they decide on and see the latest committed version.
		"default_transaction_isolation": "read committed",
	})
}

// checkConn rejects a connection to a database that is not in UTF-8, and a connection through a
// pooler that drops the startup parameters. The role is one of them, and it separates tenants.
func checkConn(ctx context.Context, conn *pgx.Conn) error {
	if encoding := conn.PgConn().ParameterStatus("server_encoding"); encoding != "UTF8" {
		return fmt.Errorf("the database must have the encoding UTF8, not %s: create one WITH ENCODING 'UTF8' TEMPLATE template0", encoding)
	}
	wanted, actual := conn.Config().RuntimeParams["role"], ""
	if wanted == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeMax)
	defer cancel()
	if err := conn.QueryRow(ctx, "SELECT current_setting('role')").Scan(&actual); err != nil || actual == wanted {
		return err
	}
	return errors.New("the pooler in front of PostgreSQL drops startup parameters: connect to PostgreSQL directly")
}

// planByKeys makes the planner use indexes regardless of its statistics. A new partition has
// no statistics. And a plan is cached while a table grows from ten rows to a million, where the
// best plan for ten rows, a sequential scan, is the worst.
func planByKeys(params map[string]string) {
	for _, param := range []string{"enable_seqscan", "enable_hashjoin", "enable_mergejoin", "jit"} {
		params[param] = "off"
	}
}

// scanInUTC makes pgx return timestamptz values in UTC instead of the local time zone.
func scanInUTC(conn *pgx.Conn) {
	conn.TypeMap().RegisterType(&pgtype.Type{Name: "timestamptz", OID: pgtype.TimestamptzOID, Codec: &pgtype.TimestamptzCodec{ScanLocation: time.UTC}})
}

func milliseconds(d time.Duration) string { return fmt.Sprint(d.Milliseconds()) }
