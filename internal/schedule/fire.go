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
	// postponeTime is how long a schedule is postponed if it must not fire or cannot be
	// read. If it stayed due, every poll would find it first.
	postponeTime = 24 * time.Hour
)

// firing is a due schedule in the transaction that fires it.
type firing struct {
	queries.SysScheduleClaimRow
	setting Setting // describes the run
	next    time.Time
	runID   uuid.UUID
	status  Status
	reason  string
}

// Fire fires at most 500 due schedules and returns how many it locked. It skips schedules
// that another process has locked, and postpones schedules of archived workflows and
// revoked tenants. A late schedule fires once, with its planned time, and continues with
// the first time after now (contract 7.3).
func (s *Service) Fire(ctx context.Context) (locked int, err error) {
	// Most polls find no due schedule and need no transaction.
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
		if locked = len(rows); err != nil || locked == 0 {
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
	return locked, err
}

// plan decodes each schedule, computes its next time and assigns an id to its run. A
// schedule that cannot be read fails without affecting the others.
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
			f.next = now.Add(postponeTime)
			continue
		}
		fires := false
		cron, err := ParseCron(row.Cron)
		if err == nil {
			f.next, fires = cron.Next(now, int(row.UtcDeltaHours))
		}
		if !fires {
			f.status, f.reason, f.next = Failed, "the cron expression cannot be read", now.Add(postponeTime)
		} else if err := f.setting.decode(row.Input, row.Batch); err != nil {
			f.status, f.reason, f.next = Failed, unreadable, now.Add(postponeTime)
		}
	}
	return firings, nil
}

// skipRunning marks firings whose previous run has not ended.
func (s *Service) skipRunning(ctx context.Context, tx pgx.Tx, firings []*firing) error {
	tenants, workflows, slots := keys(firings)
	running, err := s.q.SysScheduleListRunning(ctx, tx, queries.SysScheduleListRunningParams{
		TenantIds: tenants, WorkflowIds: workflows, Slots: slots,
	})
	if err != nil {
		return fmt.Errorf("list runs that have not ended: %w", err)
	}
	for _, position := range running {
		f := firings[position-1]
		f.status, f.reason = Skipped, "the previous run had not ended"
	}
	return nil
}

// record records the firings and returns those that must start a run. A time that has
// fired before, because the clock went back, starts no run.
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

// start records the runs of firings and their jobs.
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

// startBatch records the batch of a firing. If that fails, it stores the reason in the
// firing, and the other firings continue.
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

// advance sets the next times of the schedules and deletes their oldest firings.
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
		return fmt.Errorf("advance schedules: %w", err)
	}
	err = s.q.SysScheduleFiringDeleteOld(ctx, tx, queries.SysScheduleFiringDeleteOldParams{
		TenantIds: tenants, WorkflowIds: workflows, Slots: slots, FiringsKept: firingsKept,
	})
	if err != nil {
		return fmt.Errorf("delete old firings: %w", err)
	}
	return nil
}

// keys returns the key columns of the schedules.
func keys(firings []*firing) (tenants, workflows []uuid.UUID, slots []string) {
	for _, f := range firings {
		tenants = append(tenants, f.TenantID)
		workflows = append(workflows, f.WorkflowID)
		slots = append(slots, f.Slot)
	}
	return tenants, workflows, slots
}

const (
	// pollInterval is how often a process polls for due schedules.
	pollInterval = time.Second
	// firersMax is how many transactions of a process fire concurrently if more schedules
	// are due than one transaction fires.
	firersMax = 4
)

// Start polls for due schedules about once a second, until Stop.
func (s *Service) Start(ctx context.Context) {
	ctx, s.stop = context.WithCancel(postgres.AsSystem(context.WithoutCancel(ctx)))
	s.stopped = make(chan struct{})
	go s.run(ctx)
}

// Stop ends the polling. It rolls back a running transaction; other processes fire its
// schedules.
func (s *Service) Stop() {
	if s.stop == nil {
		return
	}
	s.stop()
	<-s.stopped
}

func (s *Service) run(ctx context.Context) {
	defer close(s.stopped)
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		err := s.fireAll(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			s.Log.WarnContext(ctx, "due schedules could not be fired; trying again", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// fireAll fires until the last transaction is not full.
func (s *Service) fireAll(ctx context.Context) error {
	locked, err := s.Fire(ctx)
	if err != nil || locked < claimMax {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	for range firersMax {
		group.Go(func() error {
			for {
				if locked, err := s.Fire(ctx); err != nil || locked < claimMax {
					return err
				}
			}
		})
	}
	return group.Wait()
}
