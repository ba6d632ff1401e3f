package workers

import (
	"context"
	"errors"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"tranche/internal/fault"
)

// stageAttemptsMax is after how many attempts that failed for another reason
// than the database's being away the stage of a batch is given up: an outage
// leaves its job without an error (stages.work).
const stageAttemptsMax = 5

// isHopeless reports whether the stage whose attempt ended with err is to be
// given up.
func isHopeless(ctx context.Context, err error, job *rivertype.JobRow) bool {
	return err != nil && ctx.Err() == nil && !errors.Is(err, fault.Unavailable) && len(job.Errors) >= stageAttemptsMax-1
}

// giveUp ends the job of a stage with what records its failure, unless that
// finds nothing to end: then the job is tried on.
func giveUp(err error, fail func() (bool, error)) error {
	hasFailed, failErr := fail()
	if failErr != nil || !hasFailed {
		return errors.Join(err, failErr)
	}
	return river.JobCancel(err)
}
