package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/jackc/pgx/v5"

	"tranche/internal/audit"
	"tranche/internal/identity"
	"tranche/internal/postgres"
)

// The aliases of the workflows. Each has a transform of five decimal expressions, a
// decision table of 20 rules and an end. Two call the bureau first: one answers at once,
// the other after 20 ms.
const (
	aliasPure = "bench"
	aliasCall = "bench-call"
	aliasSlow = "bench-slow-call"
)

//go:embed workflow.json
var pureWorkflow []byte

// input is the input of a workflow, 300 bytes.
const input = `{"borrowerId":"B-0001001","firstName":"Maria","lastName":"Santos-1001","email":"maria.santos.1001@example.com",` +
	`"income":5400.50,"debt":912.35,"amount":12000.00,"months":36,"score":712,"purpose":"home improvement",` +
	`"address":{"street":"12 Long Avenue, Apartment 4","zip":"01234","city":"Springfield"}}`

// tenant is a tenant without rate limits.
type tenant struct {
	slug    string
	clients []identity.Credentials
	token   string
}

// tenantClients is the number of clients of a tenant. The token endpoint accepts 60 calls a
// minute from each client.
const tenantClients = 20

// newTenant creates a tenant and publishes the workflows.
func (b *bench) newTenant(ctx context.Context, slug string) (*tenant, error) {
	t := &tenant{slug: slug}
	ctx = audit.WithOrigin(ctx, audit.Operator, "")
	err := postgres.InTx(ctx, b.db.own, func(tx pgx.Tx) error {
		made, err := identity.CreateTenant(ctx, tx, slug)
		if err != nil {
			return err
		}
		limits := identity.DefaultLimits()
		for i := range limits {
			limits[i].PerMinute = identity.Unlimited
		}
		if err := identity.SetLimits(ctx, tx, made.ID, limits); err != nil {
			return err
		}
		t.clients = nil
		for range tenantClients {
			client, err := identity.CreateClient(ctx, tx, identity.NewClient{Tenant: made, Name: "bench", Scopes: identity.RoleAdmin.Scopes()})
			if err != nil {
				return err
			}
			t.clients = append(t.clients, client)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	w, err := dial(b.service.addr, "")
	if err != nil {
		return nil, err
	}
	defer func() { _ = w.Close() }()
	if t.token, err = signIn(w, t.clients[0]); err != nil {
		return nil, err
	}
	w.token = t.token
	call, err := callingWorkflow(aliasCall, b.bureau.url(atOncePath))
	if err != nil {
		return nil, err
	}
	slow, err := callingWorkflow(aliasSlow, b.bureau.url(slowPath))
	if err != nil {
		return nil, err
	}
	for _, definition := range [][]byte{pureWorkflow, call, slow} {
		var made struct{ ID string }
		if err := w.call(http.MethodPost, "/v2/workflows", definition, http.StatusCreated, &made); err != nil {
			return nil, err
		}
		if err := w.call(http.MethodPost, "/v2/workflows/"+made.ID+"/publish", nil, http.StatusOK, nil); err != nil {
			return nil, err
		}
	}
	return t, nil
}

func signIn(w *wire, client identity.Credentials) (string, error) {
	var answer struct{ AccessToken string }
	err := w.call(http.MethodPost, "/identity/resources/auth/v1/api-token",
		map[string]string{"clientId": client.ClientID.String(), "secret": client.Secret}, http.StatusOK, &answer)
	return answer.AccessToken, err
}

// callingWorkflow returns the workflow with a call to url before its first task.
func callingWorkflow(alias, url string) ([]byte, error) {
	var definition map[string]any
	decoder := json.NewDecoder(bytes.NewReader(pureWorkflow))
	decoder.UseNumber()
	if err := decoder.Decode(&definition); err != nil {
		return nil, err
	}
	tasks, _ := definition["tasks"].([]any)
	edges, _ := definition["edges"].([]any)
	first, _ := edges[0].(map[string]any)
	first["source"] = "bureau"
	definition["alias"] = alias
	definition["tasks"] = append(tasks, map[string]any{
		"id": "bureau", "type": "http-request", "config": map[string]any{"method": http.MethodGet, "url": url},
	})
	definition["edges"] = append(edges, map[string]any{"source": "start", "target": "bureau"})
	return json.Marshal(definition)
}

func executePath(alias string) string { return fmt.Sprintf("/v1/workflows/%s/v1/execute", alias) }
