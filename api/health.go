package api

import (
	"context"
	"maps"
	"net/http"
	"slices"

	"tranche/internal/fault"
	"tranche/internal/httpapi"
)

type healthOutput struct {
	Body struct {
		Status string `json:"status" enum:"ok" doc:"Always ok. Any other state is an error response."`
	}
}

func healthRoutes(s *Server) {
	httpapi.Register(s.http, httpapi.Operation{
		ID: "health", Method: http.MethodGet, Path: "/healthz", Tag: "Service",
		Summary:         "Check that the process runs",
		Description:     "Returns 200 as long as the process can answer requests. It checks nothing else. Use it for liveness probes.",
		ResponseExample: `{"status":"ok"}`,
	}, func(context.Context, *struct{}) (*healthOutput, error) {
		return healthy(), nil
	})
	httpapi.Register(s.http, httpapi.Operation{
		ID: "readiness", Method: http.MethodGet, Path: "/readyz", Tag: "Service",
		Summary: "Check that the service is ready",
		Description: "Returns 200 if the database is reachable and writable, its schema is current, and the workers run. Otherwise it returns 503, and " +
			"`details` names each part that is not ready. Use it for readiness probes and load balancers.",
		ResponseExample: `{"status":"ok"}`,
	}, s.readiness)
}

func healthy() *healthOutput {
	out := &healthOutput{}
	out.Body.Status = "ok"
	return out
}

func (s *Server) readiness(ctx context.Context, _ *struct{}) (*healthOutput, error) {
	var details []fault.Detail
	for _, name := range slices.Sorted(maps.Keys(s.config.Ready)) {
		if err := s.config.Ready[name](ctx); err != nil {
			s.config.HTTP.Log.WarnContext(ctx, "not ready", "part", name, "error", err)
			details = append(details, fault.Detail{Field: name, Message: "is not ready"})
		}
	}
	if len(details) > 0 {
		return nil, fault.New(fault.Unavailable, "the service is not ready").WithDetails(details...)
	}
	return healthy(), nil
}
