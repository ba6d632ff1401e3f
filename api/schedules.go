package api

import (
	"context"
	"net/http"

	"tranche/internal/fault"
	"tranche/internal/httpapi"
	"tranche/internal/identity"
	"tranche/internal/schedule"
)

// ScheduleTimes are the times of a schedule (contract A.2.11).
type ScheduleTimes struct {
	Cron          string  `json:"cron" maxLength:"500" doc:"Five fields separated by spaces: minute (0-59), hour (0-23), day of month (1-31), month (1-12 or jan-dec), day of week (0-7 or sun-sat; 0 and 7 are Sunday). A field is *, a value, a range such as 1-5, or a comma-separated list of these. * and ranges may have a step, such as */15. If neither day field is *, a day matches if one of the two fields matches. If one of them is *, the other one decides." example:"30 6 * * mon-fri"`
	UTCDeltaHours Integer `json:"utcDeltaHours,omitempty" minimum:"-12" maximum:"14" doc:"The offset from UTC in hours of the time zone in which cron is evaluated. Defaults to 0." example:"-5"`
}

// ScheduleRequest configures the schedule of executions.
type ScheduleRequest struct {
	ScheduleTimes
	Input *JSONObject `json:"input,omitempty" doc:"**[ext]** The input of each execution. Defaults to {}. It must match the workflow's inputSchema."`
}

// BatchScheduleRequest configures the schedule of batches.
type BatchScheduleRequest struct {
	ScheduleTimes
	BatchScheduleContent
}

// BatchScheduleContent is the content of a scheduled batch.
type BatchScheduleContent struct {
	Label               string      `json:"label,omitempty" maxLength:"200" doc:"**[ext]** A name of the batches for people. Defaults to the alias of the workflow." example:"Nightly re-scoring"`
	AttachmentFileNames []string    `json:"attachmentFileNames,omitempty" maxItems:"100" doc:"**[ext]** The fileName values of uploaded files that contain items."`
	WorkflowInput       *BatchInput `json:"workflowInput,omitempty" doc:"**[ext]** Items, input that all items share, and packages of items."`
}

// ConfigureSchedules has the schedules to set.
type ConfigureSchedules struct {
	WorkflowID    string                `json:"workflowId" doc:"The id of an active workflow." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11"`
	Schedule      *ScheduleRequest      `json:"schedule,omitempty" doc:"The schedule of executions."`
	ScheduleBatch *BatchScheduleRequest `json:"scheduleBatch,omitempty" doc:"The schedule of batches. If it has no items, each batch uses the sources of the workflow's newest batch. Only schedules of tests use batches of tests."`
}

// ScheduleRecord is a configured schedule.
type ScheduleRecord struct {
	Cron          string      `json:"cron" doc:"The cron expression." example:"30 6 * * mon-fri"`
	UTCDeltaHours int         `json:"utcDeltaHours" doc:"The offset from UTC in hours of the time zone in which cron is evaluated." example:"-5"`
	NextRunAt     Timestamp   `json:"nextRunAt" doc:"The time of the next run."`
	Input         *JSONObject `json:"input,omitempty" doc:"**[ext]** The input of each execution, including the defaults of the inputSchema. Only tokens with the scope executions:data receive it."`
	Reason        string      `json:"reason,omitempty" doc:"**[ext]** The reason why the schedule starts no runs: another version of the service stored it, and this version cannot read it. Configure the schedule again." example:"the stored input or batch cannot be read; configure the schedule again"`
}

// BatchScheduleRecord is a configured schedule of batches.
type BatchScheduleRecord struct {
	Cron          string    `json:"cron" doc:"The cron expression." example:"0 22 1 * *"`
	UTCDeltaHours int       `json:"utcDeltaHours" doc:"The offset from UTC in hours of the time zone in which cron is evaluated." example:"0"`
	NextRunAt     Timestamp `json:"nextRunAt" doc:"The time of the next run."`
	Reason        string    `json:"reason,omitempty" doc:"**[ext]** The reason why the schedule starts no runs: another version of the service stored it, and this version cannot read it. Configure the schedule again." example:"the stored input or batch cannot be read; configure the schedule again"`
	BatchScheduleContent
}

// Schedules are the schedules of a workflow.
type Schedules struct {
	WorkflowID    string               `json:"workflowId" doc:"The id of the workflow." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11"`
	Schedule      *ScheduleRecord      `json:"schedule,omitempty" doc:"The schedule of executions. Absent if there is none."`
	ScheduleBatch *BatchScheduleRecord `json:"scheduleBatch,omitempty" doc:"The schedule of batches. Absent if there is none."`
}

// DeleteSchedules selects the schedules to delete.
type DeleteSchedules struct {
	WorkflowID    string `json:"workflowId" doc:"The id of the workflow." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11"`
	Schedule      *bool  `json:"schedule,omitempty" doc:"true deletes the schedule of executions." example:"true"`
	ScheduleBatch *bool  `json:"scheduleBatch,omitempty" doc:"true deletes the schedule of batches." example:"false"`
}

// DeletedSchedules lists the deleted schedules.
type DeletedSchedules struct {
	WorkflowID       string   `json:"workflowId" doc:"The id of the workflow." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11"`
	SchedulesDeleted []string `json:"schedulesDeleted" enum:"schedule,scheduleBatch" doc:"The schedules that were deleted."`
}

// ScheduleOverview has the schedules of a workflow and their last firings.
type ScheduleOverview struct {
	Schedules
	Firings []ScheduleFiring `json:"firings" doc:"The last 20 firings of both schedules, newest first."`
}

// ScheduleFiring is a firing of a schedule.
type ScheduleFiring struct {
	Slot             string    `json:"slot" enum:"schedule,scheduleBatch" doc:"The schedule that fired."`
	ScheduledAt      Timestamp `json:"scheduledAt" doc:"The scheduled time."`
	FiredAt          Timestamp `json:"firedAt" doc:"The time at which it fired. Later than scheduledAt if the service was down."`
	Status           string    `json:"status" enum:"started,skipped,failed" doc:"The outcome. skipped: the previous run had not ended, or there was no batch to repeat. failed: the run could not be started." example:"started"`
	Reason           string    `json:"reason,omitempty" doc:"The reason why no run was started." example:"the previous run had not ended"`
	ExecutionID      string    `json:"executionId,omitempty" doc:"The id of the execution that was started." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a12"`
	ExecutionBatchID string    `json:"executionBatchId,omitempty" doc:"The id of the batch that was started." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a13"`
}

type (
	configureSchedulesInput  struct{ Body ConfigureSchedules }
	configureSchedulesOutput struct{ Body Schedules }
	deleteSchedulesInput     struct{ Body DeleteSchedules }
	deleteSchedulesOutput    struct{ Body DeletedSchedules }
	schedulesOutput          struct{ Body ScheduleOverview }
)

func scheduleRoutes(s *Server) {
	httpapi.Register(s.http, httpapi.Operation{
		ID: "configureSchedules", Method: http.MethodPost, Path: "/v1/workflows/commands/configure-schedules", Tag: "Schedules",
		Summary: "Schedule a workflow",
		Description: "Sets the schedules in the body, at least one. A schedule that is not in the body stays as it is. At each scheduled time, a " +
			"schedule starts one execution or one batch with the principal `schedule:{workflowId}`. A firing is skipped if the previous run " +
			"has not ended. After a downtime, one missed firing is started.\n\n" +
			"A new version of the workflow has no schedules, and archiving a workflow deletes its schedules. The response is 400 for a " +
			"malformed cron expression. It is 422 for an expression that never fires, and for an input or an item of `workflowInput` that does " +
			"not match the `inputSchema`.\n\n" +
			"The schedules of a sandbox client start tests. A sandbox client cannot replace schedules that do not start tests (403).",
		Scope: identity.ScopeSchedulesWrite, Category: identity.LimitManagement,
		RequestExample: `{"workflowId":"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11","schedule":{"cron":"30 6 * * mon-fri","utcDeltaHours":-5,"input":{"amount":12000.50,"income":54000}},` +
			`"scheduleBatch":{"cron":"0 22 1 * *"}}`,
		ResponseExample: `{"workflowId":"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11","schedule":{"cron":"30 6 * * mon-fri","utcDeltaHours":-5,"nextRunAt":"2026-11-23T11:30:00.000Z","input":{"amount":12000.50,"income":54000}},` +
			`"scheduleBatch":{"cron":"0 22 1 * *","utcDeltaHours":0,"nextRunAt":"2026-12-01T22:00:00.000Z"}}`,
		Inspect: inspectSchedules,
		Errors:  []int{http.StatusNotFound, http.StatusConflict, http.StatusUnprocessableEntity},
	}, s.configureSchedules)
	httpapi.Register(s.http, httpapi.Operation{
		ID: "deleteSchedules", Method: http.MethodPost, Path: "/v1/workflows/commands/delete-schedules", Tag: "Schedules",
		Summary: "Delete schedules",
		Description: "Deletes the schedules that are `true` in the body. Runs in progress continue. A sandbox client can delete only schedules of tests " +
			"(403).",
		Scope:           identity.ScopeSchedulesWrite,
		Category:        identity.LimitManagement,
		RequestExample:  `{"workflowId":"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11","schedule":true}`,
		ResponseExample: `{"workflowId":"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11","schedulesDeleted":["schedule"]}`,
		Inspect:         inspectSlots,
		Errors:          []int{http.StatusNotFound},
	}, s.deleteSchedules)
	httpapi.Register(s.http, httpapi.Operation{
		ID: "getSchedules", Method: http.MethodGet, Path: "/v1/workflows/{id}/schedules", Tag: "Schedules",
		Summary:     "Get the schedules of a workflow",
		Description: "**[ext]** Returns both schedules with the times of their next runs, and the last 20 firings with their outcomes.",
		Scope:       identity.ScopeWorkflowsRead, Category: identity.LimitManagement,
		ResponseExample: `{"workflowId":"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11","schedule":{"cron":"30 6 * * mon-fri","utcDeltaHours":-5,"nextRunAt":"2026-11-23T11:30:00.000Z"},` +
			`"firings":[{"slot":"schedule","scheduledAt":"2026-11-20T11:30:00.000Z","firedAt":"2026-11-20T11:30:00.412Z","status":"started","executionId":"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a12"}]}`,
		Errors: []int{http.StatusNotFound},
	}, s.getSchedules)
}

// inspectSchedules reports invalid cron expressions and a body without a schedule.
func inspectSchedules(members map[string]any) []fault.Detail {
	var details []fault.Detail
	for _, slot := range []schedule.Slot{schedule.Single, schedule.Batch} {
		setting, _ := members[string(slot)].(map[string]any)
		if text, ok := setting["cron"].(string); ok {
			if _, err := schedule.ParseCron(text); err != nil {
				details = append(details, fault.Detail{Field: string(slot) + ".cron", Message: err.Error()})
			}
		}
	}
	return append(details, inspectSlots(members)...)
}

// inspectSlots reports a body without a schedule.
func inspectSlots(members map[string]any) []fault.Detail {
	if members[string(schedule.Single)] != nil || members[string(schedule.Batch)] != nil {
		return nil
	}
	return []fault.Detail{{Field: string(schedule.Single), Message: "is required if scheduleBatch is absent", SubCode: fault.MissingRequiredField}}
}

func (s *Server) configureSchedules(ctx context.Context, in *configureSchedulesInput) (*configureSchedulesOutput, error) {
	id, err := httpapi.ParseID(in.Body.WorkflowID, "workflow")
	if err != nil {
		return nil, err
	}
	p := httpapi.Principal(ctx)
	configured, err := s.config.Schedules.Configure(ctx, p.TenantID, id, p.IsSandbox, scheduleSettings(&in.Body))
	if err != nil {
		return nil, err
	}
	return &configureSchedulesOutput{Body: schedules(in.Body.WorkflowID, configured, p)}, nil
}

func (s *Server) deleteSchedules(ctx context.Context, in *deleteSchedulesInput) (*deleteSchedulesOutput, error) {
	id, err := httpapi.ParseID(in.Body.WorkflowID, "workflow")
	if err != nil {
		return nil, err
	}
	var slots []schedule.Slot
	if in.Body.Schedule != nil && *in.Body.Schedule {
		slots = append(slots, schedule.Single)
	}
	if in.Body.ScheduleBatch != nil && *in.Body.ScheduleBatch {
		slots = append(slots, schedule.Batch)
	}
	p := httpapi.Principal(ctx)
	deleted, err := s.config.Schedules.Delete(ctx, p.TenantID, id, p.IsSandbox, slots)
	if err != nil {
		return nil, err
	}
	out := &deleteSchedulesOutput{Body: DeletedSchedules{WorkflowID: in.Body.WorkflowID, SchedulesDeleted: []string{}}}
	for _, slot := range deleted {
		out.Body.SchedulesDeleted = append(out.Body.SchedulesDeleted, string(slot))
	}
	return out, nil
}

func (s *Server) getSchedules(ctx context.Context, in *workflowInput) (*schedulesOutput, error) {
	id, err := httpapi.ParseID(in.ID, "workflow")
	if err != nil {
		return nil, err
	}
	p := httpapi.Principal(ctx)
	configured, firings, err := s.config.Schedules.Get(ctx, p.TenantID, id)
	if err != nil {
		return nil, err
	}
	out := &schedulesOutput{Body: ScheduleOverview{Schedules: schedules(in.ID, configured, p), Firings: make([]ScheduleFiring, len(firings))}}
	for i, f := range firings {
		out.Body.Firings[i] = ScheduleFiring{
			Slot: string(f.Slot), ScheduledAt: stamp(f.ScheduledAt), FiredAt: stamp(f.FiredAt), Status: string(f.Status), Reason: f.Reason,
			ExecutionID: idOrEmpty(f.ExecutionID), ExecutionBatchID: idOrEmpty(f.BatchID),
		}
	}
	return out, nil
}

// scheduleSettings returns the schedules of a body.
func scheduleSettings(body *ConfigureSchedules) []schedule.Setting {
	var settings []schedule.Setting
	if single := body.Schedule; single != nil {
		setting := schedule.Setting{Slot: schedule.Single, Cron: single.Cron, UTCDeltaHours: int(single.UTCDeltaHours)}
		if single.Input != nil {
			setting.Input = single.Input.Members
		}
		settings = append(settings, setting)
	}
	if b := body.ScheduleBatch; b != nil {
		setting := schedule.Setting{Slot: schedule.Batch, Cron: b.Cron, UTCDeltaHours: int(b.UTCDeltaHours)}
		setting.Batch = schedule.BatchContent{Label: b.Label, Files: b.AttachmentFileNames}
		if input := b.WorkflowInput; input != nil {
			setting.Batch.Packages = input.RawPackageIDs
			for _, item := range input.Items {
				setting.Batch.Items = append(setting.Batch.Items, item.Members)
			}
			if input.CustomInput != nil {
				setting.Batch.CustomInput = input.CustomInput.Members
			}
		}
		settings = append(settings, setting)
	}
	return settings
}

// schedules returns the answer for the schedules of a workflow. Only tokens that may read
// inputs receive the input of the runs.
func schedules(workflowID string, configured []schedule.Schedule, p identity.Principal) Schedules {
	answer := Schedules{WorkflowID: workflowID}
	showsData := p.Has(identity.ScopeExecutionsData)
	for _, c := range configured {
		if c.Slot == schedule.Single {
			answer.Schedule = &ScheduleRecord{Cron: c.Cron, UTCDeltaHours: c.UTCDeltaHours, NextRunAt: stamp(c.NextRunAt), Reason: c.Reason}
			if showsData && c.Reason == "" {
				answer.Schedule.Input = &JSONObject{c.Input}
			}
			continue
		}
		answer.ScheduleBatch = &BatchScheduleRecord{
			Cron: c.Cron, UTCDeltaHours: c.UTCDeltaHours, NextRunAt: stamp(c.NextRunAt), Reason: c.Reason,
			BatchScheduleContent: BatchScheduleContent{Label: c.Batch.Label, AttachmentFileNames: c.Batch.Files},
		}
		if showsData {
			answer.ScheduleBatch.WorkflowInput = batchInputOf(&c.Batch)
		}
	}
	return answer
}

// batchInputOf returns the workflowInput of a scheduled batch, or nil.
func batchInputOf(c *schedule.BatchContent) *BatchInput {
	if len(c.Items)+len(c.Packages) == 0 && c.CustomInput == nil {
		return nil
	}
	input := &BatchInput{RawPackageIDs: c.Packages}
	for _, item := range c.Items {
		members, _ := item.(map[string]any)
		input.Items = append(input.Items, JSONObject{members})
	}
	if c.CustomInput != nil {
		input.CustomInput = &JSONObject{c.CustomInput}
	}
	return input
}
