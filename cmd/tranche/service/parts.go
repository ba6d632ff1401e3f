package service

import (
	"context"
	"errors"
	"fmt"
	"time"

	"tranche/api"
	"tranche/migrations"
)

// readyTimeMax bounds one check of /readyz.
const readyTimeMax = 2 * time.Second

// assemble makes the parts of the domain, the workers and the API.
func (s *Service) assemble() error {
	s.handler = api.New(api.Config{
		Log: s.config.Log, Clock: s.config.Clock,
		Verify: s.identity.Verify, Ready: s.readiness(), HealthOnly: s.config.Role == RoleWorker,
		Identity: s.identity,
	})
	return nil
}

// readiness are the checks of /readyz.
func (s *Service) readiness() map[string]func(context.Context) error {
	checks := map[string]func(context.Context) error{
		"database": s.checkSchema,
	}
	if s.workers != nil {
		checks["workers"] = s.checkWorkers
	}
	return checks
}

// checkSchema asks the database for its schema. A schema that is ahead is
// ready: a newer version is being rolled out beside this process.
func (s *Service) checkSchema(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeMax)
	defer cancel()
	if err := migrations.Behind(ctx, s.control); !errors.Is(err, migrations.ErrAhead) {
		return err
	}
	return nil
}

func (s *Service) checkWorkers(context.Context) error {
	select {
	case <-s.workers.Stopped():
		return fmt.Errorf("the workers have stopped")
	default:
		return nil
	}
}
