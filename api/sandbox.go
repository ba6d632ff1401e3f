package api

import (
	"context"

	"github.com/google/uuid"

	"tranche/internal/fault"
	"tranche/internal/httpapi"
	"tranche/queries"
)

// A sandbox client creates test executions only. It can read executions and batches that
// are not tests, but it cannot retry, pause, cancel or signal them (contract 2.4).

func (s *Server) checkSandboxExecution(ctx context.Context, id uuid.UUID) error {
	p := httpapi.Principal(ctx)
	if !p.IsSandbox {
		return nil
	}
	row, err := queries.New().ExecutionGet(ctx, queries.OnPartition(s.config.Pool, id), queries.ExecutionGetParams{TenantID: p.TenantID, ID: id})
	if err != nil {
		return executionReadError(err)
	}
	return checkTest(row.IsTest)
}

func (s *Server) checkSandboxBatch(ctx context.Context, id uuid.UUID) error {
	p := httpapi.Principal(ctx)
	if !p.IsSandbox {
		return nil
	}
	b, err := s.config.Batches.Get(ctx, p.TenantID, id)
	if err != nil {
		return err
	}
	return checkTest(b.IsTest)
}

func checkTest(isTest bool) error {
	if isTest {
		return nil
	}
	return fault.New(fault.Forbidden, "a sandbox client makes test executions only")
}
