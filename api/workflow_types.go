package api

import "tranche/internal/httpapi"

// WorkflowItem is a workflow in lists and in the answer to its creation.
type WorkflowItem struct {
	ID            string     `json:"id" doc:"Unique identifier of this version." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11"`
	Name          string     `json:"name" doc:"Name for people." example:"Pre-qualification"`
	Alias         string     `json:"alias" doc:"What executions name the workflow by; shared by its versions." example:"pre-qualification"`
	Version       string     `json:"version" doc:"Version of the alias." example:"v1"`
	Status        string     `json:"status" enum:"draft,active,archived" doc:"Only an active workflow can be executed, only a draft changed." example:"draft"`
	Description   string     `json:"description" doc:"What the workflow is for." example:"Decides whether an application is worth underwriting."`
	Type          string     `json:"type,omitempty" doc:"**[ext]** The workflowType of its executions." example:"scoring"`
	ParentVersion string     `json:"parentVersion,omitempty" doc:"The version that it was made from by create-draft." example:"v1"`
	CreatedAt     Timestamp  `json:"createdAt" doc:"When it was created."`
	UpdatedAt     Timestamp  `json:"updatedAt" doc:"When it was last written."`
	PublishedAt   *Timestamp `json:"publishedAt" nullable:"true" doc:"When it was published; null while it never was."`
	ArchivedAt    *Timestamp `json:"archivedAt,omitempty" doc:"When it was archived."`
}

// WorkflowDetail is a whole workflow.
type WorkflowDetail struct {
	WorkflowItem
	ExecutionMode  string                 `json:"executionMode,omitempty" enum:"sync,async" doc:"**[ext]** Whether execute waits for the result, where the definition says so." example:"sync"`
	TimeoutSeconds int                    `json:"timeoutSeconds,omitempty" doc:"**[ext]** Time limit of an execution, where the definition has one." example:"60"`
	InputSchema    RawObject              `json:"inputSchema" doc:"JSON Schema of the input."`
	Tasks          RawArray[WorkflowTask] `json:"tasks" doc:"The nodes of the graph."`
	Edges          RawArray[WorkflowEdge] `json:"edges" doc:"What can follow what."`
}

// WorkflowDefinition is what a caller writes of the graph and its terms.
type WorkflowDefinition struct {
	ExecutionMode  string                 `json:"executionMode,omitempty" enum:"sync,async" doc:"**[ext]** Whether execute waits for the result; by default it does, unless the graph waits." example:"sync"`
	TimeoutSeconds *Integer               `json:"timeoutSeconds,omitempty" minimum:"1" maximum:"2592000" doc:"**[ext]** Time limit of an execution. sync: 60 by default, at most 300; async: 86400 by default, at most 30 days." example:"60"`
	InputSchema    RawObject              `json:"inputSchema,omitempty" doc:"JSON Schema (2020-12, or draft-07 where $schema says so) of the input; by default any object."`
	Tasks          RawArray[WorkflowTask] `json:"tasks,omitempty" doc:"The nodes of the graph."`
	Edges          RawArray[WorkflowEdge] `json:"edges,omitempty" doc:"What can follow what."`
}

// WorkflowTask is a node of the graph.
type WorkflowTask struct {
	ID     string    `json:"id" doc:"Matches ^[A-Za-z_][A-Za-z0-9_-]{0,63}$, is unique in the workflow and not start." example:"score"`
	Type   string    `json:"type" doc:"What kind of task it is." example:"http-request"`
	Name   string    `json:"name,omitempty" doc:"Name for people." example:"Ask the bureau"`
	Config RawObject `json:"config,omitempty" doc:"What the task does; its members depend on the type. Strings are templates: {{ input.amount }}."`
}

// WorkflowEdge leads from one task to another.
type WorkflowEdge struct {
	Source string `json:"source" doc:"A task id, or start." example:"start"`
	Target string `json:"target" doc:"A task id." example:"score"`
}

// WorkflowCreate is what a new workflow is made of.
type WorkflowCreate struct {
	Name        string `json:"name" minLength:"1" maxLength:"200" doc:"Name for people." example:"Pre-qualification"`
	Alias       string `json:"alias" pattern:"^[a-z0-9][a-z0-9_-]{0,63}$" doc:"What executions name the workflow by; it must be new." example:"pre-qualification"`
	Description string `json:"description,omitempty" maxLength:"10000" doc:"What the workflow is for."`
	Type        string `json:"type,omitempty" maxLength:"100" doc:"**[ext]** The workflowType of its executions." example:"scoring"`
	WorkflowDefinition
}

// WorkflowChange is what an update may say; what it leaves out stays.
type WorkflowChange struct {
	Name        *string `json:"name,omitempty" minLength:"1" maxLength:"200" doc:"Name for people." example:"Pre-qualification"`
	Description *string `json:"description,omitempty" maxLength:"10000" doc:"What the workflow is for."`
	Type        *string `json:"type,omitempty" maxLength:"100" doc:"**[ext]** The workflowType of its executions; empty removes it." example:"scoring"`
	WorkflowDefinition

	// The read-only members of the detail, so that what was read can be sent back.
	ID            JSON `json:"id,omitzero" doc:"Ignored."`
	Alias         JSON `json:"alias,omitzero" doc:"Ignored."`
	Version       JSON `json:"version,omitzero" doc:"Ignored."`
	Status        JSON `json:"status,omitzero" doc:"Ignored."`
	ParentVersion JSON `json:"parentVersion,omitzero" doc:"Ignored."`
	CreatedAt     JSON `json:"createdAt,omitzero" doc:"Ignored."`
	UpdatedAt     JSON `json:"updatedAt,omitzero" doc:"Ignored."`
	PublishedAt   JSON `json:"publishedAt,omitzero" doc:"Ignored."`
	ArchivedAt    JSON `json:"archivedAt,omitzero" doc:"Ignored."`
}

// WorkflowList is a page of workflows.
type WorkflowList struct {
	Data       []WorkflowItem     `json:"data" doc:"The workflows, newest first."`
	Pagination httpapi.Pagination `json:"pagination"`
}

// PublishedWorkflow answers a publish.
type PublishedWorkflow struct {
	ID          string    `json:"id" doc:"The workflow." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11"`
	Status      string    `json:"status" enum:"active" doc:"Always active."`
	Version     string    `json:"version" doc:"Version of the alias." example:"v1"`
	PublishedAt Timestamp `json:"publishedAt" doc:"When it was published."`
}

// WorkflowValidation says what publishing would find.
type WorkflowValidation struct {
	Valid        bool                    `json:"valid" doc:"Whether the definition could be published."`
	Errors       []httpapi.ProblemDetail `json:"errors" doc:"What forbids publishing, at most 50."`
	ErrorSubCode string                  `json:"errorSubCode,omitempty" doc:"The errorSubCode that publishing would answer." example:"CIRCULAR_DEPENDENCY"`
	Warnings     []httpapi.ProblemDetail `json:"warnings" doc:"What may be a mistake but does not forbid publishing."`
}

// DraftedWorkflow answers a create-draft.
type DraftedWorkflow struct {
	ID            string    `json:"id" doc:"The new record." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11"`
	Name          string    `json:"name" doc:"Name for people." example:"Pre-qualification"`
	Alias         string    `json:"alias" doc:"The alias of the source." example:"pre-qualification"`
	Version       string    `json:"version" doc:"One more than the highest version that the alias ever had." example:"v2"`
	Status        string    `json:"status" enum:"draft" doc:"Always draft."`
	ParentVersion string    `json:"parentVersion" doc:"The version of the source." example:"v1"`
	CreatedAt     Timestamp `json:"createdAt" doc:"When it was created."`
}

// ArchivedWorkflow answers an archive.
type ArchivedWorkflow struct {
	ID         string    `json:"id" doc:"The workflow." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11"`
	Status     string    `json:"status" enum:"archived" doc:"Always archived."`
	ArchivedAt Timestamp `json:"archivedAt" doc:"When it was archived."`
}

type (
	workflowListInput struct {
		httpapi.PageInput
		PerPage int    `query:"per-page" minimum:"1" maximum:"100" default:"20" doc:"How many workflows a page has."`
		Status  string `query:"status" enum:"draft,active,archived" doc:"Only workflows of this status."`
		Search  string `query:"search" maxLength:"200" doc:"Only workflows whose name or alias contains this, in whatever case."`
	}
	workflowListOutput struct{ Body WorkflowList }

	workflowInput struct {
		ID string `path:"id" doc:"The workflow's id." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11"`
	}
	workflowDetailOutput struct {
		ETag string `header:"ETag" doc:"**[ext]** Changes with every write; for If-Match."`
		Body WorkflowDetail
	}

	workflowCreateInput  struct{ Body WorkflowCreate }
	workflowCreateOutput struct {
		Location string `header:"Location" doc:"The path of the new workflow."`
		ETag     string `header:"ETag" doc:"**[ext]** Changes with every write; for If-Match."`
		Body     WorkflowItem
	}

	workflowUpdateInput struct {
		ID      string `path:"id" doc:"The workflow's id." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11"`
		IfMatch string `header:"If-Match" maxLength:"1000" doc:"**[ext]** ETags; the update is refused with 412 unless the workflow still has one of them."`
		Body    WorkflowChange
	}

	workflowPublishOutput  struct{ Body PublishedWorkflow }
	workflowValidateOutput struct{ Body WorkflowValidation }
	workflowDraftOutput    struct {
		Location string `header:"Location" doc:"The path of the new workflow."`
		Body     DraftedWorkflow
	}
	workflowArchiveOutput struct{ Body ArchivedWorkflow }
)
