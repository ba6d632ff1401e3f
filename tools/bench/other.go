package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"
)

// measureTokens measures one call of the token endpoint for each client.
func (b *bench) measureTokens(context.Context) error {
	w, err := dial(b.service.addr, "")
	if err != nil {
		return err
	}
	defer func() { _ = w.Close() }()
	var result loaded
	for _, client := range b.tenant.clients {
		begin := time.Now()
		if _, err := signIn(w, client); err != nil {
			return err
		}
		result.times = append(result.times, time.Since(begin))
	}
	slices.Sort(result.times)
	b.add(tokenTime, result.percentile(50))
	return nil
}

const (
	signersMeasured = 10
	attemptsEach    = 5 // maximum for one code
)

// measureAttempts measures attempts with a wrong code. The service must record each
// attempt before it answers.
func (b *bench) measureAttempts(context.Context) error {
	w, err := dial(b.service.addr, b.tenant.token)
	if err != nil {
		return err
	}
	defer func() { _ = w.Close() }()
	var result loaded
	for i := range signersMeasured {
		var authorization struct{ ID string }
		err := w.call(http.MethodPost, "/v1/authorizations", map[string]string{
			"tenant": b.tenant.slug, "key": "credit-report", "identityKey": "borrowerId", "identityValue": fmt.Sprintf("B-%d", i),
		}, http.StatusCreated, &authorization)
		if err != nil {
			return err
		}
		b.signers++
		var otp struct{ OTPID string }
		path := "/v1/authorizations/" + authorization.ID + "/signatures"
		err = w.call(http.MethodPost, path, map[string]string{
			"value": fmt.Sprintf("signer-%d@example.com", b.signers), "contactMethod": "email", "templateId": "default",
		}, http.StatusCreated, &otp)
		if err != nil {
			return err
		}
		// A code has six digits, so seven are always wrong.
		request := w.request(http.MethodPost, path+"/attempt", fmt.Appendf(nil, `{"otpId":%q,"code":"0000000"}`, otp.OTPID))
		for range attemptsEach {
			begin := time.Now()
			if _, err := w.send(request, http.StatusBadRequest); err != nil {
				return err
			}
			result.times = append(result.times, time.Since(begin))
		}
	}
	slices.Sort(result.times)
	b.add(attemptTime, result.percentile(50))
	return nil
}

// measureLists measures lists of the executions of this run. `make bench-lists` measures
// them with ten million executions.
func (b *bench) measureLists(ctx context.Context) error {
	var rows float64
	if err := b.db.own.QueryRow(ctx, `SELECT count(*) FROM executions`).Scan(&rows); err != nil {
		return err
	}
	b.add(listRows, rows)
	today := time.Now().UTC().Format(time.DateOnly)
	queries := []string{
		"", "?status=failed", "?status=completed&exclude-tests=true", "?workflow-alias=" + aliasPure, "?borrower-id=B-0000017",
		"?workflow-alias=" + aliasSlow + "&status=completed&date-from=" + today, "?exclude-batch-executions=true",
	}
	result, err := load(ctx, 1, b.Span, func(context.Context) (func() error, func(), error) {
		w, err := dial(b.service.addr, b.tenant.token)
		if err != nil {
			return nil, nil, err
		}
		i := 0
		return func() error {
			i++
			_, err := w.send(w.request(http.MethodGet, "/v1/executions"+queries[i%len(queries)], nil), http.StatusOK)
			return err
		}, func() { _ = w.Close() }, nil
	})
	b.add(list50, result.percentile(50))
	b.add(list99, result.percentile(99))
	return err
}
