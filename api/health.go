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
		Status string `json:"status" enum:"ok" doc:"Always ok; anything else is an error."`
	}
}

func healthRoutes(s *Server) {
	httpapi.Register(s.http, httpapi.Operation{
		ID: "health", Method: http.MethodGet, Path: "/healthz", Tag: "Service",
		Summary:         "Whether the process lives",
		Description:     "Answers as long as the process can answer at all; it looks at nothing else. For liveness probes.",
		ResponseExample: `{"status":"ok"}`,
	}, func(context.Context, *struct{}) (*healthOutput, error) {
		return healthy(), nil
	})
	httpapi.Register(s.http, httpapi.Operation{
		ID: "readiness", Method: http.MethodGet, Path: "/readyz", Tag: "Service",
		Summary: "Whether the service can work",
		Description: "Whether the database is reachable and can be written, its schema is current and the workers run. " +
			"A 503 names each part that is not ready in `details`. For readiness probes and load balancers.",
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
