package schedule

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"golang.org/x/sync/errgroup"

	"tranche/internal/batch"
	"tranche/internal/execution"
	"tranche/internal/fault"
	"tranche/internal/postgres"
	"tranche/jobs"
	"tranche/queries"
)

const (
	// claimMax is how many schedules one transaction fires.
	claimMax = 500
	// firingsKept is how many firings of a slot are kept.
	firingsKept = 50
	// putOffWait is after how long a schedule is looked at again that must not fire,
	// or that cannot be read any more, which only another version of the program can
	// have written: were it due until then, each look would come upon it first.
	putOffWait = 24 * time.Hour
)

// firing is a schedule that is due, in the transaction that fires it.
type firing struct {
	queries.SysScheduleClaimRow
	setting Setting // what it starts
	next    time.Time
	runID   uuid.UUID
	status  Status
	reason  string
}

// Fire fires schedules that are due and that no other process holds, at most
// 500, and returns how many it held. Those of what has ended it puts off. However
// late it is, a schedule fires once, under the time that was announced, and goes on
// with the first time from now on (decisions 7.3).
func (s *Service) Fire(ctx context.Context) (held int, err error) {
	// Most looks find nothing and need no transaction.
	next, err := s.q.SysScheduleGetNextRun(ctx, s.Pool)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, nil
	}
	if err != nil {
		return 0, postgres.Translate(err)
	}
	now, err := s.Clock(ctx, s.Pool)
	if err != nil || next.After(now) {
		return 0, postgres.Translate(err)
	}
	err = postgres.InTx(ctx, s.Pool, func(tx pgx.Tx) error {
		rows, err := s.q.SysScheduleClaim(ctx, tx, queries.SysScheduleClaimParams{Now: now, SchedulesMax: claimMax})
		if held = len(rows); err != nil || held == 0 {
			return err
		}
		firings, err := plan(rows, now)
		if err != nil {
			return err
		}
		live := slices.DeleteFunc(slices.Clone(firings), func(f *firing) bool { return !f.MayFire })
		if err := s.skipRunning(ctx, tx, live); err != nil {
			return err
		}
		fresh, err := s.record(ctx, tx, live, now)
		if err != nil {
			return err
		}
		if err := s.start(ctx, tx, fresh); err != nil {
			return err
		}
		return s.advance(ctx, tx, firings)
	})
	return held, err
}

// plan reads what each schedule starts, says when it is due next and names its
// run. One that cannot be read fails alone.
func plan(rows []queries.SysScheduleClaimRow, now time.Time) ([]*firing, error) {
	firings := make([]*firing, len(rows))
	for i, row := range rows {
		id, err := uuid.NewV7()
		if err != nil {
			return nil, err
		}
		f := &firing{SysScheduleClaimRow: row, setting: Setting{Slot: Slot(row.Slot)}, runID: id, status: Started}
		firings[i] = f
		if !row.MayFire {
			f.next = now.Add(putOffWait)
			continue
		}
		fires := false
		cron, err := ParseCron(row.Cron)
		if err == nil {
			f.next, fires = cron.Next(now, int(row.UtcDeltaHours))
		}
		if !fires {
			f.status, f.reason, f.next = Failed, "the cron expression cannot be read", now.Add(putOffWait)
		} else if err := f.setting.decode(row.Input, row.Batch); err != nil {
			f.status, f.reason, f.next = Failed, unreadable, now.Add(putOffWait)
		}
	}
	return firings, nil
}

// skipRunning marks the firings whose predecessor still runs.
func (s *Service) skipRunning(ctx context.Context, tx pgx.Tx, firings []*firing) error {
	tenants, workflows, slots := keys(firings)
	running, err := s.q.SysScheduleListRunning(ctx, tx, queries.SysScheduleListRunningParams{
		TenantIds: tenants, WorkflowIds: workflows, Slots: slots,
	})
	if err != nil {
		return fmt.Errorf("look for runs that go on: %w", err)
	}
	for _, position := range running {
		f := firings[position-1]
		f.status, f.reason = Skipped, "the run of the firing before it had not ended"
	}
	return nil
}

// record writes the firings and returns those that are to start a run: a time
// that has fired before, because the clock went back, starts none.
func (s *Service) record(ctx context.Context, tx pgx.Tx, firings []*firing, now time.Time) ([]*firing, error) {
	var params queries.SysScheduleFiringInsertManyParams
	params.TenantIds, params.WorkflowIds, params.Slots = keys(firings)
	params.FiredAt = now
	for _, f := range firings {
		params.ScheduledAt = append(params.ScheduledAt, f.NextRunAt)
		params.Statuses = append(params.Statuses, string(f.status))
		params.Reasons = append(params.Reasons, f.reason)
		params.RunIds = append(params.RunIds, f.runID)
	}
	positions, err := s.q.SysScheduleFiringInsertMany(ctx, tx, params)
	if err != nil {
		return nil, fmt.Errorf("record firings: %w", err)
	}
	var fresh []*firing
	for _, position := range positions {
		if f := firings[position-1]; f.status == Started {
			fresh = append(fresh, f)
		}
	}
	return fresh, nil
}

// start records the runs of firings with their jobs.
func (s *Service) start(ctx context.Context, tx pgx.Tx, firings []*firing) error {
	var executions []execution.Pending
	var begin []river.InsertManyParams
	for _, f := range firings {
		job := jobs.ScheduleFiring{TenantID: f.TenantID}
		if Slot(f.Slot) == Batch {
			job.BatchID = f.runID
			if err := s.startBatch(ctx, tx, f); err != nil {
				return err
			}
			if f.status != Started {
				continue
			}
		} else {
			job.ExecutionID = f.runID
			executions = append(executions, execution.Pending{
				ID: f.runID, TenantID: f.TenantID, PrincipalID: principal(f.WorkflowID), WorkflowID: f.WorkflowID,
				Input: f.setting.Input, IsTest: f.IsTest,
			})
		}
		begin = append(begin, river.InsertManyParams{Args: job})
	}
	if len(begin) == 0 {
		return nil
	}
	if err := s.Executions.RecordTx(ctx, tx, executions); err != nil {
		return err
	}
	if _, err := s.Jobs.InsertManyTx(ctx, tx, begin); err != nil {
		return fmt.Errorf("insert the jobs of firings: %w", err)
	}
	return nil
}

// startBatch records the batch of a firing. Where that cannot be, the firing
// says why and the others go on.
func (s *Service) startBatch(ctx context.Context, tx pgx.Tx, f *firing) error {
	request := f.setting.Batch.request(f.TenantID, f.WorkflowID)
	request.Alias, request.IsTest = f.Alias, f.IsTest
	err := pgx.BeginFunc(ctx, tx, func(savepoint pgx.Tx) error {
		return s.Batches.RecordTx(ctx, savepoint, f.runID, f.WorkflowID, request)
	})
	if err = postgres.Translate(err); err == nil {
		return nil
	}
	if ctx.Err() != nil || errors.Is(err, fault.Unavailable) {
		return err
	}
	f.status, f.reason = Failed, fault.From(err).Message
	if errors.Is(err, batch.ErrNothingToRepeat) {
		f.status = Skipped
	}
	if errors.Is(fault.From(err), fault.Internal) {
		s.Log.ErrorContext(ctx, "a scheduled batch cannot be started", "workflow", f.WorkflowID, "error", err)
	}
	return s.q.ScheduleFiringSetFailed(ctx, tx, queries.ScheduleFiringSetFailedParams{
		TenantID: f.TenantID, WorkflowID: f.WorkflowID, Slot: f.Slot, ScheduledAt: f.NextRunAt, Status: string(f.status), Reason: f.reason,
	})
}

// advance moves the schedules on and forgets their oldest firings.
func (s *Service) advance(ctx context.Context, tx pgx.Tx, firings []*firing) error {
	tenants, workflows, slots := keys(firings)
	next := make([]time.Time, len(firings))
	for i, f := range firings {
		next[i] = f.next
	}
	err := s.q.SysScheduleAdvance(ctx, tx, queries.SysScheduleAdvanceParams{
		TenantIds: tenants, WorkflowIds: workflows, Slots: slots, NextRunAt: next,
	})
	if err != nil {
		return fmt.Errorf("move schedules on: %w", err)
	}
	err = s.q.SysScheduleFiringDeleteOld(ctx, tx, queries.SysScheduleFiringDeleteOldParams{
		TenantIds: tenants, WorkflowIds: workflows, Slots: slots, FiringsKept: firingsKept,
	})
	if err != nil {
		return fmt.Errorf("forget old firings: %w", err)
	}
	return nil
}

// keys are the columns that name the schedules.
func keys(firings []*firing) (tenants, workflows []uuid.UUID, slots []string) {
	for _, f := range firings {
		tenants = append(tenants, f.TenantID)
		workflows = append(workflows, f.WorkflowID)
		slots = append(slots, f.Slot)
	}
	return tenants, workflows, slots
}

const (
	// tickInterval is how often a process looks for schedules that are due.
	tickInterval = time.Second
	// claimersMax is how many transactions of a process fire at a time where
	// more is due than one of them takes.
	claimersMax = 4
)

// Start looks for schedules that are due, about once a second, until Stop.
func (s *Service) Start(ctx context.Context) {
	ctx, s.stop = context.WithCancel(postgres.AsSystem(context.WithoutCancel(ctx)))
	s.stopped = make(chan struct{})
	go s.run(ctx)
}

// Stop ends what Start began: a firing that is under way is undone, and left to
// other processes.
func (s *Service) Stop() {
	if s.stop == nil {
		return
	}
	s.stop()
	<-s.stopped
}

func (s *Service) run(ctx context.Context) {
	defer close(s.stopped)
	ticker := time.NewTicker(tickInterval)
	defer ticker.Stop()
	for {
		err := s.fireAll(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			s.Log.WarnContext(ctx, "schedules that are due cannot be fired, trying again", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// fireAll fires until little or nothing that is due is left.
func (s *Service) fireAll(ctx context.Context) error {
	held, err := s.Fire(ctx)
	if err != nil || held < claimMax {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	for range claimersMax {
		group.Go(func() error {
			for {
				if held, err := s.Fire(ctx); err != nil || held < claimMax {
					return err
				}
			}
		})
	}
	return group.Wait()
}
