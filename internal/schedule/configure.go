package schedule

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"tranche/internal/audit"
	"tranche/internal/batch"
	"tranche/internal/catalog"
	"tranche/internal/exactjson"
	"tranche/internal/execution"
	"tranche/internal/fault"
	"tranche/internal/postgres"
	"tranche/queries"
)

// firingsShown is how many firings Get returns (contract 7.4).
const firingsShown = 20

// Configure sets slots of a workflow and returns all of its schedules. Settings name each
// slot at most once. The runs of a test schedule are tests. Errors:
//   - fault.NotFound: unknown workflow, file or package
//   - fault.Conflict: the workflow is not active
//   - fault.Forbidden: a test schedule would replace a schedule that is no test
//   - fault.Invalid: malformed cron expression
//   - fault.Unprocessable: the expression never fires, or an input does not match the
//     workflow's schema
//
// Details name fields with their slot, such as schedule.cron.
func (s *Service) Configure(ctx context.Context, tenantID, workflowID uuid.UUID, isTest bool, settings []Setting) ([]Schedule, error) {
	rows, err := s.check(ctx, tenantID, workflowID, settings)
	if err != nil {
		return nil, err
	}
	err = postgres.InTx(ctx, s.Pool, func(tx pgx.Tx) error {
		status, err := s.q.ScheduleWorkflowLock(ctx, tx, queries.ScheduleWorkflowLockParams{TenantID: tenantID, ID: workflowID})
		if errors.Is(err, pgx.ErrNoRows) {
			return fault.New(fault.NotFound, "there is no such workflow")
		}
		if err != nil {
			return fmt.Errorf("lock workflow %s: %w", workflowID, err)
		}
		if status != string(catalog.Active) {
			return errNotActive(catalog.Status(status))
		}
		for i, row := range rows {
			if err := s.Batches.CheckSources(ctx, tx, settings[i].Batch.request(tenantID, workflowID)); err != nil {
				return within(settings[i].Slot, err)
			}
			row.IsTest = isTest
			written, err := s.q.ScheduleUpsert(ctx, tx, row)
			if err != nil {
				return fmt.Errorf("write %s of workflow %s: %w", row.Slot, workflowID, err)
			}
			if written == 0 {
				return errTestsOnly()
			}
		}
		return audit.RecordTx(ctx, tx, tenantID, audit.ScheduleSet, workflowID.String())
	})
	if err != nil {
		return nil, err
	}
	return s.list(ctx, tenantID, workflowID)
}

func errNotActive(is catalog.Status) error {
	return fault.New(fault.Conflict, "only an active workflow can be scheduled; this one is %s", is).WithSubCode(fault.InvalidWorkflowStatus)
}

// check validates the settings and returns their rows.
func (s *Service) check(ctx context.Context, tenantID, workflowID uuid.UUID, settings []Setting) ([]queries.ScheduleUpsertParams, error) {
	w, err := s.Catalog.Get(ctx, tenantID, workflowID)
	if err != nil {
		return nil, err
	}
	if w.Status != catalog.Active {
		return nil, errNotActive(w.Status)
	}
	_, plan, err := s.Catalog.Plan(ctx, tenantID, workflowID)
	if err != nil {
		return nil, err
	}
	now, err := s.Clock(ctx, s.Pool)
	if err != nil {
		return nil, postgres.Translate(err)
	}
	rows := make([]queries.ScheduleUpsertParams, len(settings))
	var refused []fault.Detail
	for i, setting := range settings {
		at := string(setting.Slot)
		cron, err := ParseCron(setting.Cron)
		if err != nil {
			return nil, fault.InvalidRequest(fault.Detail{Field: at + ".cron", Message: err.Error()})
		}
		next, fires := cron.Next(now, setting.UTCDeltaHours)
		if !fires {
			refused = append(refused, fault.Detail{Field: at + ".cron", Message: "never fires: none of its months has the day"})
		}
		refused = append(refused, setting.checkInputs(func(input map[string]any) (map[string]any, []fault.Detail) {
			return execution.CheckInput(plan, input)
		})...)
		rows[i] = queries.ScheduleUpsertParams{
			TenantID: tenantID, WorkflowID: workflowID, Slot: at, Cron: setting.Cron, UtcDeltaHours: int32(setting.UTCDeltaHours), NextRunAt: next,
		}
		if err := setting.encode(&rows[i]); err != nil {
			return nil, err
		}
	}
	if len(refused) > 0 {
		return nil, fault.New(fault.Unprocessable, "the schedule does not fit the workflow").WithDetails(refused...)
	}
	return rows, nil
}

// checkInputs validates the input and the items of a setting and returns their faults. It
// fills in the defaults of the input. Each batch fills in the defaults of its items.
func (s *Setting) checkInputs(check func(map[string]any) (map[string]any, []fault.Detail)) (refused []fault.Detail) {
	refuse := func(field string, faults []fault.Detail) {
		for _, f := range faults {
			refused = append(refused, fault.Detail{Field: member(string(s.Slot)+"."+field, f.Field), Message: f.Message, SubCode: fault.InputSchemaMismatch})
		}
	}
	if s.Slot == Single {
		filled, faults := check(orEmpty(s.Input))
		s.Input = filled
		refuse("input", faults)
	}
	for i, item := range s.Batch.Items {
		object, _ := item.(map[string]any)
		_, faults := check(object)
		refuse(fmt.Sprintf("workflowInput.items[%d]", i), faults)
	}
	return refused
}

// errTestsOnly refuses a change of a schedule whose runs are no tests.
func errTestsOnly() error {
	return fault.New(fault.Forbidden, "a sandbox client makes test executions only")
}

// Delete deletes slots and returns those that were configured. An unknown workflow is
// fault.NotFound. With testsOnly, a schedule that is no test is fault.Forbidden.
func (s *Service) Delete(ctx context.Context, tenantID, workflowID uuid.UUID, testsOnly bool, slots []Slot) ([]Slot, error) {
	if _, err := s.Catalog.Get(ctx, tenantID, workflowID); err != nil {
		return nil, err
	}
	names := make([]string, len(slots))
	for i, slot := range slots {
		names[i] = string(slot)
	}
	var deleted []Slot
	err := postgres.InTx(ctx, s.Pool, func(tx pgx.Tx) error {
		rows, err := s.q.ScheduleDelete(ctx, tx, queries.ScheduleDeleteParams{TenantID: tenantID, WorkflowID: workflowID, Slots: names})
		if err != nil {
			return fmt.Errorf("delete schedules of workflow %s: %w", workflowID, err)
		}
		deleted = make([]Slot, len(rows))
		for i, row := range rows {
			if testsOnly && !row.IsTest {
				return errTestsOnly()
			}
			deleted[i] = Slot(row.Slot)
		}
		slices.Sort(deleted)
		if len(deleted) == 0 {
			return nil
		}
		return audit.RecordTx(ctx, tx, tenantID, audit.ScheduleDelete, workflowID.String())
	})
	if err != nil {
		return nil, err
	}
	return deleted, nil
}

// Get returns the schedules of a workflow and its last 20 firings, newest first. An
// unknown workflow is fault.NotFound.
func (s *Service) Get(ctx context.Context, tenantID, workflowID uuid.UUID) ([]Schedule, []Firing, error) {
	if _, err := s.Catalog.Get(ctx, tenantID, workflowID); err != nil {
		return nil, nil, err
	}
	schedules, err := s.list(ctx, tenantID, workflowID)
	if err != nil {
		return nil, nil, err
	}
	rows, err := s.q.ScheduleFiringListNewest(ctx, s.Pool, queries.ScheduleFiringListNewestParams{
		TenantID: tenantID, WorkflowID: workflowID, FiringsMax: firingsShown,
	})
	if err != nil {
		return nil, nil, postgres.Translate(fmt.Errorf("list firings of workflow %s: %w", workflowID, err))
	}
	firings := make([]Firing, len(rows))
	for i, row := range rows {
		firings[i] = Firing{
			Slot: Slot(row.Slot), ScheduledAt: row.ScheduledAt, FiredAt: row.FiredAt, Status: Status(row.Status),
			Reason: queries.Value(row.Reason), ExecutionID: row.ExecutionID, BatchID: row.BatchID,
		}
	}
	return schedules, firings, nil
}

func (s *Service) list(ctx context.Context, tenantID, workflowID uuid.UUID) ([]Schedule, error) {
	rows, err := s.q.ScheduleList(ctx, s.Pool, queries.ScheduleListParams{TenantID: tenantID, WorkflowID: workflowID})
	if err != nil {
		return nil, postgres.Translate(fmt.Errorf("list schedules of workflow %s: %w", workflowID, err))
	}
	schedules := make([]Schedule, len(rows))
	for i, row := range rows {
		schedules[i] = Schedule{
			Setting:   Setting{Slot: Slot(row.Slot), Cron: row.Cron, UTCDeltaHours: int(row.UtcDeltaHours)},
			NextRunAt: row.NextRunAt,
		}
		if err := schedules[i].decode(row.Input, row.Batch); err != nil {
			s.Log.WarnContext(ctx, "a schedule cannot be read", "workflow", workflowID, "slot", row.Slot, "error", err)
			schedules[i].Reason = unreadable
		}
	}
	return schedules, nil
}

// request returns the request for the batch.
func (c *BatchContent) request(tenantID, workflowID uuid.UUID) batch.Request {
	return batch.Request{
		TenantID: tenantID, PrincipalID: principal(workflowID), Label: c.Label,
		Items: c.Items, Files: c.Files, Packages: c.Packages, CustomInput: c.CustomInput,
	}
}

// principal returns the principal of the runs of a workflow's schedules (contract 5.5).
func principal(workflowID uuid.UUID) string { return "schedule:" + workflowID.String() }

// within adds the slot to the fields of an error's details.
func within(slot Slot, err error) error {
	f, ok := errors.AsType[*fault.Error](err)
	if !ok {
		return err
	}
	for i := range f.Details {
		f.Details[i].Field = member(string(slot), f.Details[i].Field)
	}
	return f
}

func member(path, name string) string {
	if name == "" {
		return path
	}
	return path + "." + name
}

// encode encodes the input or the batch of the slot for the database.
func (s *Setting) encode(row *queries.ScheduleUpsertParams) (err error) {
	if s.Slot == Single {
		row.Input, err = exactjson.Encode(orEmpty(s.Input))
	} else {
		row.Batch, err = s.Batch.encode()
	}
	if err != nil {
		return fmt.Errorf("encode %s: %w", s.Slot, err)
	}
	return nil
}

// decode decodes the result of encode.
func (s *Setting) decode(input, content []byte) (err error) {
	if s.Slot == Single {
		s.Input, err = decodeObject(input)
	} else {
		s.Batch, err = decodeBatch(content)
	}
	if err != nil {
		return fmt.Errorf("decode %s: %w", s.Slot, err)
	}
	return nil
}

func decodeObject(text []byte) (map[string]any, error) {
	value, err := exactjson.Decode(text)
	if err != nil {
		return nil, err
	}
	return object(value)
}

func object(value any) (map[string]any, error) {
	members, ok := value.(map[string]any)
	if !ok {
		return nil, errors.New("the value is not an object")
	}
	return members, nil
}

// storedBatch is the stored form of a BatchContent.
type storedBatch struct {
	Label       string         `json:"label,omitempty"`
	Items       exactjson.Any  `json:"items"`
	CustomInput *exactjson.Any `json:"customInput,omitempty"`
	Files       []string       `json:"attachmentFileNames,omitempty"`
	Packages    []string       `json:"rawPackageIds,omitempty"`
}

func (c *BatchContent) encode() ([]byte, error) {
	items := c.Items
	if items == nil {
		items = []any{}
	}
	stored := storedBatch{Label: c.Label, Items: exactjson.Any{Value: items}, Files: c.Files, Packages: c.Packages}
	if c.CustomInput != nil {
		stored.CustomInput = &exactjson.Any{Value: c.CustomInput}
	}
	return json.Marshal(stored)
}

func decodeBatch(text []byte) (c BatchContent, err error) {
	var stored storedBatch
	if err := json.Unmarshal(text, &stored); err != nil {
		return c, err
	}
	c = BatchContent{Label: stored.Label, Files: stored.Files, Packages: stored.Packages}
	var ok bool
	if c.Items, ok = stored.Items.Value.([]any); !ok {
		return c, errors.New("the items are not an array")
	}
	if stored.CustomInput != nil {
		c.CustomInput, err = object(stored.CustomInput.Value)
	}
	return c, err
}

func orEmpty(members map[string]any) map[string]any {
	if members == nil {
		return map[string]any{}
	}
	return members
}
