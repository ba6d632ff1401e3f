// Package postgres is the way to the database: pools of connections, the habit
// of transactions, the connection that listens, and the translation of what can
// go wrong into kinds of fault. It must not know tables or the domain.
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

	connectTimeMax   = 5 * time.Second  // to make one connection
	acquireTimeMax   = 5 * time.Second  // to get one from a pool
	statementTimeMax = 30 * time.Second // of a request's statement
	answerGrace      = 5 * time.Second  // for the answer of a server that ended a statement
	idleTxTimeMax    = 60 * time.Second // between two statements of a transaction
	connLifetimeMax  = time.Hour
	connIdleTimeMax  = 10 * time.Minute
	connReadOnlyMax  = 5 * time.Second // of a connection that cannot write
)

// Config says how many connections to which database.
type Config struct {
	// URL is a connection string of libpq's form.
	URL string
	// APIConns and WorkerConns are the sizes of the pools; 0 stands for 20.
	APIConns, WorkerConns int32
	// Log is told when the listening connection is lost. Nil discards.
	Log *slog.Logger
}

// Pools are the connections of one process. Requests and jobs have pools of
// their own, so that neither can starve the other. Statements of both see the
// rows of the tenant of their context alone.
type Pools struct {
	API     *pgxpool.Pool
	Workers *pgxpool.Pool
	// Queue is River's own: as the user of the connection string, because its
	// upkeep reindexes the queue's tables, which only their owner may.
	Queue *pgxpool.Pool
	// Listen is the one connection that receives notifications; whoever wires
	// the process runs it.
	Listen *Listener
}

// Open makes the pools and checks that the database answers. It fails with
// fault.Unavailable when it does not.
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

// Close closes the pools, once every connection has been given back.
func (p *Pools) Close() {
	p.API.Close()
	p.Workers.Close()
	p.Queue.Close()
}

// PoolOptions shape one pool.
type PoolOptions struct {
	// Name is the application_name that pg_stat_activity shows.
	Name string
	// Conns is the most connections that are open at a time.
	Conns int32
	// StatementTimeMax ends statements that run longer; 0 sets no limit. The
	// server ends them; one that does not answer 5 s later is taken for gone.
	StatementTimeMax time.Duration
	// Unscoped says what statements see whose context names no tenant.
	Unscoped Unscoped
}

// NewPool makes a pool whose callers wait at most 5 s for a connection. It does
// not connect yet.
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

// setConn sets what statements rely on, whatever the server, the database or the
// user has as a default.
func setConn(config *pgx.ConnConfig, name string) {
	config.ConnectTimeout = connectTimeMax
	maps.Copy(config.RuntimeParams, map[string]string{
		"application_name": name,
		"timezone":         "UTC",
		"client_encoding":  "UTF8",
		"search_path":      "public",
		// Without it a statement fails that policies would restrict.
		"row_security": "on",
		// Functions of the schema compare names as they are.
		"quote_all_identifiers": "off",
		// Statements lock what they decide on, and read again what changed meanwhile.
		"default_transaction_isolation": "read committed",
	})
}

// checkConn refuses a connection on which statements would not do what they say: to a
// database that does not know characters, or through a pooler that has dropped
// what the connection was to begin with, the role above all, which keeps tenants apart.
func checkConn(ctx context.Context, conn *pgx.Conn) error {
	if encoding := conn.PgConn().ParameterStatus("server_encoding"); encoding != "UTF8" {
		return fmt.Errorf("the database's encoding is %s and has to be UTF8: make one WITH ENCODING 'UTF8' TEMPLATE template0", encoding)
	}
	wanted, set := conn.Config().RuntimeParams["role"], ""
	if wanted == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeMax)
	defer cancel()
	if err := conn.QueryRow(ctx, "SELECT current_setting('role')").Scan(&set); err != nil || set == wanted {
		return err
	}
	return errors.New("what is between this program and PostgreSQL drops the settings that a connection begins with: connect to PostgreSQL itself")
}

// planByKeys has statements find their rows by the keys that they name, whatever
// the planner's statistics are. A new partition has none, a plan is kept while a
// table grows from ten rows to a million, and what is best for ten, to read the
// whole table, is read again for every group of items.
func planByKeys(params map[string]string) {
	for _, way := range []string{"enable_seqscan", "enable_hashjoin", "enable_mergejoin", "jit"} {
		params[way] = "off"
	}
}

// scanInUTC has timestamptz come back in UTC; pgx's default is the machine's zone.
func scanInUTC(conn *pgx.Conn) {
	conn.TypeMap().RegisterType(&pgtype.Type{Name: "timestamptz", OID: pgtype.TimestamptzOID, Codec: &pgtype.TimestamptzCodec{ScanLocation: time.UTC}})
}

func milliseconds(d time.Duration) string { return fmt.Sprint(d.Milliseconds()) }
