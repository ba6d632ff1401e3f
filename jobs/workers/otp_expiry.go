package workers

import (
	"context"

	"github.com/riverqueue/river"

	"tranche/internal/consent"
	"tranche/internal/postgres"
	"tranche/jobs"
)

type otpExpiry struct {
	river.WorkerDefaults[jobs.OTPExpiry]
	consents *consent.Service
}

// Work wipes the messages of deliveries whose jobs were discarded.
func (w *otpExpiry) Work(ctx context.Context, _ *river.Job[jobs.OTPExpiry]) error {
	return w.consents.WipeExpired(postgres.AsSystem(ctx))
}
