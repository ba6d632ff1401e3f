package api

import (
	"context"
	"net/http"

	"tranche/internal/fault"
)

type healthOutput struct {
	Body struct {
		Status string `json:"status" enum:"ok" doc:"Always ok; anything else is an error."`
	}
}

func healthRoutes(s *Server) {
	register(s, operation{
		id: "health", method: http.MethodGet, path: "/healthz", tag: "Service",
		summary:         "Whether the process lives",
		description:     "Answers as long as the process can answer at all; it looks at nothing else. For liveness probes.",
		responseExample: `{"status":"ok"}`,
	}, func(context.Context, *struct{}) (*healthOutput, error) {
		return healthy(), nil
	})
	register(s, operation{
		id: "readiness", method: http.MethodGet, path: "/readyz", tag: "Service",
		summary: "Whether the service can work",
		description: "Whether the database is reachable and can be written, its schema is current and the workers run. " +
			"A 503 names each part that is not ready in `details`. For readiness probes and load balancers.",
		responseExample: `{"status":"ok"}`,
	}, s.readiness)
}

func healthy() *healthOutput {
	out := &healthOutput{}
	out.Body.Status = "ok"
	return out
}

func (s *Server) readiness(ctx context.Context, _ *struct{}) (*healthOutput, error) {
	var details []fault.Detail
	for _, name := range sortedKeys(s.config.Ready) {
		if err := s.config.Ready[name](ctx); err != nil {
			s.config.Log.WarnContext(ctx, "not ready", "part", name, "error", err)
			details = append(details, fault.Detail{Field: name, Message: "is not ready"})
		}
	}
	if len(details) > 0 {
		return nil, fault.New(fault.Unavailable, "the service is not ready").WithDetails(details...)
	}
	return healthy(), nil
}
