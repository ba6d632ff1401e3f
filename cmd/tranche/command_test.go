package main_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"tranche/internal/pgtest"
	"tranche/internal/secret"
)

func TestHelp(t *testing.T) {
	t.Parallel()
	for command, want := range map[string][]string{
		"":              {"serve", "migrate", "tenant create", "tenant limits", "tenant revoke", "client create", "client rotate", "client revoke", "key rotate", "audit"},
		"serve":         {"$TRANCHE_ADDR", "$DATABASE_URL", "$TRANCHE_MASTER_KEY_FILE", "$TRANCHE_EGRESS_ALLOW", "$PUBLIC_URL", "$TRANCHE_DATA_DIR", "127.0.0.1:8080"},
		"migrate":       {"$DATABASE_URL_FILE"},
		"tenant create": {"<slug>"},
		"tenant limits": {"management, single, batch, polling or authorizations"},
		"client create": {"--tenant=SLUG", "admin, developer, operator, integration or auditor", "$TRANCHE_CLIENT_ROLE"},
	} {
		got := environment{}.ok(t, append(strings.Fields(command), "--help")...)
		joined := strings.Join(strings.Fields(got), " ")
		for _, text := range want {
			require.Contains(t, joined, text, command)
		}
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	require.Regexp(t, `^tranche (v\S+|\(devel\)) go1\.\S+ \S+/\S+\n$`, environment{}.ok(t, "version"))
}

func TestUsageErrors(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"":                                                   "expected one of",
		"frobnicate":                                         "frobnicate",
		"serve --role boss":                                  "--role",
		"serve --port 80":                                    "--port",
		"serve --egress-allow nowhere":                       "nowhere",
		"serve --public-url example":                         "PUBLIC_URL",
		"serve --api-conns 0":                                "--api-conns",
		"serve --trusted-proxies 10.0.0.1":                   "10.0.0.1 is not a CIDR",
		"client revoke":                                      "<client-id>",
		"audit --tenant a --count 0":                         "--count must be from 1 to 1000000",
		"audit --tenant a --count 2147483648":                "--count must be from 1 to 1000000",
		"audit --tenant a --since 0s":                        "--since must be more than 0",
		"audit --refused --action client.":                   "--action cannot be combined with --refused",
		"tenant create":                                      "<slug>",
		"tenant limits a --set":                              "--set",
		"tenant limits a --set x=1":                          "there is no such category",
		"tenant limits a --set batch=0":                      "--set batch: the limit of batch must be a whole number",
		"tenant limits a --set batch=x":                      "or unlimited",
		"client create --role admin":                         "--tenant",
		"client create --tenant a":                           "needs --role or --scope",
		"client create --tenant a --role boss":               "--role: there is no such role; the roles are admin,",
		"client create --tenant a --scope all":               "--scope: there is no such scope; the scopes are workflows:read,",
		"client create --tenant a --role admin --output xml": "--output",
	} {
		got := environment{}.run(t, strings.Fields(line)...)
		require.Equal(t, 2, got.status, line)
		require.Empty(t, got.stdout, line)
		require.Contains(t, got.stderr, want, line)
		require.Contains(t, got.stderr, "--help", line)
	}
}

func TestTenants(t *testing.T) {
	t.Parallel()
	e := onDatabase(pgtest.URL(t))
	require.Contains(t, e.ok(t, "tenant", "create", "acme"), "tenant acme created")

	var tenant map[string]string
	require.NoError(t, json.Unmarshal([]byte(e.ok(t, "tenant", "create", "other", "--output", "json")), &tenant))
	require.Equal(t, "other", tenant["slug"])
	require.Len(t, tenant["tenantId"], 36)

	e.ok(t, "tenant", "revoke", "other")
	require.Regexp(t, `^\S{36}  acme   live\n`+tenant["tenantId"]+`  other  revoked\n$`, e.ok(t, "tenant", "list"))
	var listed []map[string]any
	require.NoError(t, json.Unmarshal([]byte(e.ok(t, "tenant", "list", "-o", "json")), &listed))
	require.Len(t, listed, 2)
	require.Equal(t, map[string]any{"tenantId": tenant["tenantId"], "slug": "other", "isRevoked": true}, listed[1])

	for slug, want := range map[string]string{"acme": "a tenant acme already exists", "Acme": "lower-case letters"} {
		got := e.run(t, "tenant", "create", slug)
		require.Equal(t, result{stderr: got.stderr, status: 1}, got)
		require.Contains(t, got.stderr, want)
		require.Equal(t, 1, strings.Count(got.stderr, "\n"), "the error has one line: %s", got.stderr)
	}
}

func TestTenantLimits(t *testing.T) {
	t.Parallel()
	e := onDatabase(pgtest.URL(t))
	e.ok(t, "tenant", "create", "acme")
	limits := func(args ...string) map[string]any {
		var got map[string]any
		require.NoError(t, json.Unmarshal([]byte(e.ok(t, append([]string{"tenant", "limits", "acme", "-o", "json"}, args...)...)), &got))
		return got
	}
	want := map[string]any{"management": 100.0, "single": 50.0, "batch": 10.0, "polling": 200.0, "authorizations": 100.0}
	require.Empty(t, cmp.Diff(want, limits()))

	want["single"], want["batch"] = "unlimited", 3.0
	require.Empty(t, cmp.Diff(want, limits("--set", "single=unlimited", "--set", "batch=3")))
	want["single"], want["polling"] = 7.0, "unlimited"
	require.Empty(t, cmp.Diff(want, limits("--set", "single=7,polling=unlimited")))
	require.Regexp(t, `(?m)^single +7$`, e.ok(t, "tenant", "limits", "acme"))

	got := e.run(t, "tenant", "limits", "nobody", "--set", "single=7")
	require.Equal(t, result{stderr: "tranche: there is no tenant with this slug\n", status: 1}, got)
}

func TestClients(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	e := onDatabase(url)
	e.ok(t, "tenant", "create", "acme")

	text := e.ok(t, "client", "create", "--tenant", "acme", "--role", "admin", "--output", "json")
	require.Equal(t, 1, strings.Count(text, "\n"))
	var made map[string]string
	require.NoError(t, json.Unmarshal([]byte(text), &made))
	require.Len(t, made, 2)
	require.Len(t, made["clientId"], 36)
	require.True(t, strings.HasPrefix(made["secret"], "tranche_secret_"))

	text = e.ok(t, "client", "create", "--tenant", "acme", "--role", "auditor", "--scope", "batches:run",
		"--scope", "audit:read", "--sandbox", "--name", "Night shift")
	require.Contains(t, text, `client "Night shift" of tenant acme created`)
	e.with("TRANCHE_CLIENT_TENANT=acme", "TRANCHE_CLIENT_SCOPE=audit:read,batches:read", "TRANCHE_OUTPUT=json").ok(t, "client", "create")

	type client struct {
		name, scopes string
		sandbox      bool
	}
	var clients []client
	rows, err := pgtest.OpenPool(t, url).Query(t.Context(), `SELECT name, array_to_string(scopes, ' '), is_sandbox FROM clients ORDER BY id`)
	require.NoError(t, err)
	for rows.Next() {
		var c client
		require.NoError(t, rows.Scan(&c.name, &c.scopes, &c.sandbox))
		clients = append(clients, c)
	}
	require.NoError(t, rows.Err())
	require.Len(t, clients, 3)
	require.Equal(t, "admin", clients[0].name)
	require.Equal(t, client{"Night shift", "workflows:read executions:read executions:data batches:read authorizations:read audit:read batches:run", true}, clients[1])
	require.Equal(t, client{"client", "audit:read batches:read", false}, clients[2])

	got := e.run(t, "client", "create", "--tenant", "nobody", "--role", "admin")
	require.Equal(t, result{stderr: "tranche: there is no tenant with this slug\n", status: 1}, got)
}

// The commands for clients, tenants and keys record their actions in the audit trail.
func TestRotateAndRevoke(t *testing.T) {
	t.Parallel()
	e := onDatabase(pgtest.URL(t))
	server := e.serve(t)
	e.ok(t, "tenant", "create", "acme")
	var made, rotated map[string]string
	require.NoError(t, json.Unmarshal([]byte(e.ok(t, "client", "create", "--tenant", "acme", "--role", "admin", "--output", "json")), &made))
	id := made["clientId"]
	require.NoError(t, json.Unmarshal([]byte(e.ok(t, "client", "rotate", id, "--output", "json")), &rotated))
	require.Equal(t, id, rotated["clientId"])
	require.NotEqual(t, made["secret"], rotated["secret"])
	require.Contains(t, e.ok(t, "client", "rotate", id, "--alone"), "shown only once")
	require.Contains(t, e.ok(t, "client", "list", "--tenant", "acme"), "admin  live ")
	require.Contains(t, e.ok(t, "key", "rotate"), "signing key ")
	require.Contains(t, e.ok(t, "key", "rotate", "--withdraw", "-o", "json"), `{"keyId":"`)
	require.Contains(t, e.ok(t, "client", "revoke", id), `client "admin" of tenant acme revoked`)
	require.Contains(t, e.ok(t, "client", "list", "--tenant", "acme"), "admin  revoked ")
	var other map[string]string
	require.NoError(t, json.Unmarshal([]byte(e.ok(t, "client", "create", "--tenant", "acme", "--role", "auditor", "--output", "json")), &other))
	require.Contains(t, e.ok(t, "tenant", "revoke", "acme"), "tenant acme revoked")
	require.Contains(t, e.ok(t, "client", "list", "--tenant", "acme"), "auditor  revoked ", "a revoked tenant revokes its clients")

	for args, want := range map[string]string{
		"client rotate " + id:                "tranche: the client is revoked\n",
		"client rotate " + other["clientId"]: "tranche: tenant acme is revoked\n",
		"client rotate nobody":               "tranche: there is no client with this id\n",
		"client revoke nobody":               "tranche: there is no client with this id\n",
		"client revoke {" + id + "}":         "tranche: there is no client with this id\n",
		"tenant revoke nobody":               "tranche: there is no tenant with this slug\n",
		"audit --tenant nobody":              "tranche: there is no tenant with this slug\n",
		"client list --tenant x":             "tranche: there is no tenant with this slug\n",
	} {
		require.Equal(t, result{stderr: want, status: 1}, e.run(t, strings.Fields(args)...), args)
	}
	got := environment{e[0], "TRANCHE_MASTER_KEY=" + secret.GenerateKey()}.run(t, "key", "rotate")
	require.Equal(t, 1, got.status)
	require.Contains(t, got.stderr, "TRANCHE_MASTER_KEY is not the key")

	var installation []map[string]string
	require.NoError(t, json.Unmarshal([]byte(e.ok(t, "audit", "-o", "json")), &installation))
	require.Len(t, installation, 2)
	for i, action := range []string{"key.rotate", "key.withdraw"} {
		require.Equal(t, "operator", installation[i]["actor"])
		require.Equal(t, action, installation[i]["action"])
		require.NotEmpty(t, installation[i]["subject"])
	}
	require.JSONEq(t, "[]", e.ok(t, "audit", "--action", "client.", "-o", "json"))

	var trail []map[string]string
	require.NoError(t, json.Unmarshal([]byte(e.ok(t, "audit", "--tenant", "acme", "-o", "json")), &trail))
	var actions []string
	for _, event := range trail {
		require.Equal(t, "operator", event["actor"])
		actions = append(actions, event["action"])
	}
	require.Equal(t, []string{"tenant.create", "client.create", "client.rotate", "client.rotate", "client.revoke", "client.create", "tenant.revoke"}, actions)
	require.Regexp(t, `^\S+Z  operator  client.revoke  `+id+"\n$", e.ok(t, "audit", "--tenant", "acme", "--action", "client.revoke"))
	require.Empty(t, e.ok(t, "audit", "--tenant", "acme", "--action", "%"), "a prefix is not a pattern")
	server.stop(t)
}

func TestCommandsOnOutdatedDatabase(t *testing.T) {
	t.Parallel()
	e := onDatabase(pgtest.EmptyURL(t))
	for _, args := range [][]string{
		{"serve", "--addr", "127.0.0.1:0"},
		{"tenant", "create", "acme"},
		{"client", "create", "--tenant", "acme", "--role", "admin"},
	} {
		got := e.run(t, args...)
		require.Equal(t, 1, got.status, args)
		require.Empty(t, got.stdout)
		require.Contains(t, got.stderr, "run `tranche migrate`", args)
	}
	require.Contains(t, e.ok(t, "migrate"), "the database is up to date: schema ")
	require.Contains(t, e.ok(t, "migrate"), "the database is up to date: schema ")
	e.ok(t, "tenant", "create", "acme")
	e.serve(t).stop(t)
}

func TestServeWithWrongConfiguration(t *testing.T) {
	t.Parallel()
	e := onDatabase(pgtest.URL(t))
	first := e.serve(t)
	keyFile := filepath.Join(t.TempDir(), "key")
	require.NoError(t, os.WriteFile(keyFile, []byte(secret.GenerateKey()), 0o600))
	empty := filepath.Join(t.TempDir(), "empty")
	require.NoError(t, os.WriteFile(empty, []byte("\n"), 0o600))

	for name, c := range map[string]struct {
		env  environment
		want string
	}{
		"no master key":      {environment{e[0]}, "there is no master key: create one with openssl rand -base64 32, set TRANCHE_MASTER_KEY or TRANCHE_MASTER_KEY_FILE"},
		"malformed key":      {environment{e[0], "TRANCHE_MASTER_KEY=aGk="}, "master key 1: must be 32 bytes"},
		"another master key": {environment{e[0], "TRANCHE_MASTER_KEY=" + secret.GenerateKey()}, "TRANCHE_MASTER_KEY is not the key that this database was set up with"},
		"key twice":          {e.with("TRANCHE_MASTER_KEY_FILE=" + keyFile), "both TRANCHE_MASTER_KEY and TRANCHE_MASTER_KEY_FILE are set"},
		"no such file":       {environment{e[0], "TRANCHE_MASTER_KEY_FILE=/no/such/file"}, "no such file"},
		"empty file":         {environment{e[0], "TRANCHE_MASTER_KEY_FILE=" + empty}, "is empty"},
		"port taken":         {e.with("TRANCHE_ADDR=" + strings.TrimPrefix(first.url, "http://")), "address already in use"},
		"port of metrics":    {e.with("TRANCHE_METRICS_ADDR=" + strings.TrimPrefix(first.url, "http://")), "--metrics-addr: listen tcp"},
		"no database":        {environment{"DATABASE_URL=postgres://127.0.0.1:1/x", e[1]}, "127.0.0.1:1"},
		"not a database URL": {environment{"DATABASE_URL=http://example.com", e[1]}, "DATABASE_URL"},
		"port of SMTP":       {e.with("TRANCHE_SMTP_URL=smtp://u:hunter2@h:99999", "TRANCHE_SMTP_FROM=a@b.example"), "TRANCHE_SMTP_URL, TRANCHE_SMTP_FROM: the port of the SMTP server must be a number from 1 to 65535"},
		"no SMTP server":     {e.with("TRANCHE_SMTP_FROM=a@b.example"), "TRANCHE_SMTP_URL is not"},
		"folder in a file":   {e.with("TRANCHE_MAIL_DIR=" + filepath.Join(keyFile, "mail")), "TRANCHE_MAIL_DIR: cannot write to the mailbox folder"},
		"no address of SMS":  {e.with("TRANCHE_SMS_BODY={{to}} {{text}}"), "TRANCHE_SMS_*: URL is required"},
		"no body of SMS":     {e.with("TRANCHE_SMS_URL=https://x.example"), "TRANCHE_SMS_BODY is required"},
	} {
		env := c.env
		if name != "port taken" {
			env = env.with("TRANCHE_ADDR=127.0.0.1:0")
		}
		got := env.run(t, "serve")
		require.Equal(t, 1, got.status, name)
		require.Empty(t, got.stdout, name)
		require.Contains(t, got.stderr, c.want, name)
		require.NotContains(t, got.stderr, "hunter2", name)
	}
	first.stop(t)
}
