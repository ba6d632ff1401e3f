package workers

import (
	"context"

	"github.com/riverqueue/river"

	"tranche/internal/consent"
	"tranche/jobs"
)

type otpDelivery struct {
	river.WorkerDefaults[jobs.OTPDelivery]
	consents *consent.Service
}

// Work sends a code while it is valid. A failed delivery is tried again after a few seconds,
// until the code expires.
func (w *otpDelivery) Work(ctx context.Context, job *river.Job[jobs.OTPDelivery]) error {
	return w.consents.Deliver(ctx, job.Args.TenantID, job.Args.OTPID)
}
