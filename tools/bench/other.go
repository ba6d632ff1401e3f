package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"
)

// measureTokens measures the token endpoint, one call of each client.
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
	attemptsEach    = 5 // as many as one code allows
)

// measureAttempts measures attempts with a wrong code: the answer has to be
// counted before it is given.
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
		// Seven digits are never the code, which has six.
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

// measureLists asks for lists among the executions of the run. `make
// bench-lists` does so with ten million.
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
