package api

import "tranche/internal/httpapi"

// WorkflowItem is a workflow in a list or in the answer to its creation.
type WorkflowItem struct {
	ID            string     `json:"id" doc:"The unique id of this version." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11"`
	Name          string     `json:"name" doc:"A name for people." example:"Pre-qualification"`
	Alias         string     `json:"alias" doc:"The name that execute requests use. All versions of a workflow share it." example:"pre-qualification"`
	Version       string     `json:"version" doc:"The version." example:"v1"`
	Status        string     `json:"status" enum:"draft,active,archived" doc:"The status. Only an active workflow can be executed, and only a draft can be changed." example:"draft"`
	Description   string     `json:"description" doc:"A description of the workflow." example:"Decides whether an application is worth underwriting."`
	Type          string     `json:"type,omitempty" doc:"**[ext]** The workflowType of its executions." example:"scoring"`
	ParentVersion string     `json:"parentVersion,omitempty" doc:"The version from which create-draft created this one." example:"v1"`
	CreatedAt     Timestamp  `json:"createdAt" doc:"The time of creation."`
	UpdatedAt     Timestamp  `json:"updatedAt" doc:"The time of the last change."`
	PublishedAt   *Timestamp `json:"publishedAt" nullable:"true" doc:"The time of publication, or null if it was never published."`
	ArchivedAt    *Timestamp `json:"archivedAt,omitempty" doc:"The time of archiving."`
}

// WorkflowDetail is a workflow with its definition.
type WorkflowDetail struct {
	WorkflowItem
	ExecutionMode  string                 `json:"executionMode,omitempty" enum:"sync,async" doc:"**[ext]** sync if execute waits for the result, async if it does not. Absent if the definition does not set it." example:"sync"`
	TimeoutSeconds int                    `json:"timeoutSeconds,omitempty" doc:"**[ext]** The time limit of an execution in seconds. Absent if the definition does not set it." example:"60"`
	InputSchema    RawObject              `json:"inputSchema" doc:"The JSON Schema of the input."`
	Tasks          RawArray[WorkflowTask] `json:"tasks" doc:"The tasks, which are the nodes of the graph."`
	Edges          RawArray[WorkflowEdge] `json:"edges" doc:"The edges of the graph."`
}

// WorkflowDefinition is the graph of a workflow and its settings in a request.
type WorkflowDefinition struct {
	ExecutionMode  string                 `json:"executionMode,omitempty" enum:"sync,async" doc:"**[ext]** sync if execute waits for the result, async if it does not. Defaults to sync, or to async if the graph has a task that waits." example:"sync"`
	TimeoutSeconds *Integer               `json:"timeoutSeconds,omitempty" minimum:"1" maximum:"2592000" doc:"**[ext]** The time limit of an execution in seconds. With sync it defaults to 60 and is at most 300. With async it defaults to 86400 and is at most 2592000 (30 days)." example:"60"`
	InputSchema    RawObject              `json:"inputSchema,omitempty" doc:"The JSON Schema of the input: draft 2020-12, or draft-07 if $schema says so. Defaults to any object."`
	Tasks          RawArray[WorkflowTask] `json:"tasks,omitempty" doc:"The tasks, which are the nodes of the graph."`
	Edges          RawArray[WorkflowEdge] `json:"edges,omitempty" doc:"The edges of the graph."`
}

// WorkflowTask is a node of the graph.
type WorkflowTask struct {
	ID     string    `json:"id" doc:"The id of the task. It matches ^[A-Za-z_][A-Za-z0-9_-]{0,63}$, is unique in the workflow and is not start." example:"score"`
	Type   string    `json:"type" doc:"The type of the task." example:"http-request"`
	Name   string    `json:"name,omitempty" doc:"A name for people." example:"Ask the bureau"`
	Config RawObject `json:"config,omitempty" doc:"The settings of the task. The members depend on the type. Strings are templates, such as {{ input.amount }}."`
}

// WorkflowEdge connects two tasks.
type WorkflowEdge struct {
	Source string `json:"source" doc:"The id of a task, or start." example:"start"`
	Target string `json:"target" doc:"The id of a task." example:"score"`
}

// WorkflowCreate is the content of a new workflow.
type WorkflowCreate struct {
	Name        string `json:"name" minLength:"1" maxLength:"200" doc:"A name for people." example:"Pre-qualification"`
	Alias       string `json:"alias" pattern:"^[a-z0-9][a-z0-9_-]{0,63}$" doc:"The name that execute requests use. It must be new." example:"pre-qualification"`
	Description string `json:"description,omitempty" maxLength:"10000" doc:"A description of the workflow."`
	Type        string `json:"type,omitempty" maxLength:"100" doc:"**[ext]** The workflowType of its executions." example:"scoring"`
	WorkflowDefinition
}

// WorkflowChange is an update. Absent members stay as they are.
type WorkflowChange struct {
	Name        *string `json:"name,omitempty" minLength:"1" maxLength:"200" doc:"A name for people." example:"Pre-qualification"`
	Description *string `json:"description,omitempty" maxLength:"10000" doc:"A description of the workflow."`
	Type        *string `json:"type,omitempty" maxLength:"100" doc:"**[ext]** The workflowType of its executions. An empty string removes it." example:"scoring"`
	WorkflowDefinition

	// The read-only members of WorkflowDetail are accepted, so that an answer can be sent back.
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
	Data       []WorkflowItem     `json:"data" doc:"The workflows of the page, newest first."`
	Pagination httpapi.Pagination `json:"pagination"`
}

// PublishedWorkflow is the answer to publish.
type PublishedWorkflow struct {
	ID          string    `json:"id" doc:"The id of the workflow." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11"`
	Status      string    `json:"status" enum:"active" doc:"Always active."`
	Version     string    `json:"version" doc:"The version." example:"v1"`
	PublishedAt Timestamp `json:"publishedAt" doc:"The time of publication."`
}

// WorkflowValidation has the errors that publishing would report.
type WorkflowValidation struct {
	Valid        bool                    `json:"valid" doc:"true if the definition could be published."`
	Errors       []httpapi.ProblemDetail `json:"errors" doc:"The errors that prevent publishing, at most 50."`
	ErrorSubCode string                  `json:"errorSubCode,omitempty" doc:"The errorSubCode that publishing would return." example:"CIRCULAR_DEPENDENCY"`
	Warnings     []httpapi.ProblemDetail `json:"warnings" doc:"Possible mistakes that do not prevent publishing."`
}

// DraftedWorkflow is the answer to create-draft.
type DraftedWorkflow struct {
	ID            string    `json:"id" doc:"The id of the new version." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11"`
	Name          string    `json:"name" doc:"A name for people." example:"Pre-qualification"`
	Alias         string    `json:"alias" doc:"The alias of the source workflow." example:"pre-qualification"`
	Version       string    `json:"version" doc:"The new version: one more than the highest version that the alias has ever had." example:"v2"`
	Status        string    `json:"status" enum:"draft" doc:"Always draft."`
	ParentVersion string    `json:"parentVersion" doc:"The version of the source workflow." example:"v1"`
	CreatedAt     Timestamp `json:"createdAt" doc:"The time of creation."`
}

// ArchivedWorkflow is the answer to archive.
type ArchivedWorkflow struct {
	ID         string    `json:"id" doc:"The id of the workflow." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11"`
	Status     string    `json:"status" enum:"archived" doc:"Always archived."`
	ArchivedAt Timestamp `json:"archivedAt" doc:"The time of archiving."`
}

type (
	workflowListInput struct {
		httpapi.PageInput
		PerPage int    `query:"per-page" minimum:"1" maximum:"100" default:"20" doc:"The number of workflows on a page."`
		Status  string `query:"status" enum:"draft,active,archived" doc:"Returns only workflows with this status."`
		Search  string `query:"search" maxLength:"200" doc:"Returns only workflows whose name or alias contains this text. Case is ignored."`
	}
	workflowListOutput struct{ Body WorkflowList }

	workflowInput struct {
		ID string `path:"id" doc:"The id of the workflow." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11"`
	}
	workflowDetailOutput struct {
		ETag string `header:"ETag" doc:"**[ext]** Identifies the content of the workflow and changes with every write. Send it in If-Match."`
		Body WorkflowDetail
	}

	workflowCreateInput  struct{ Body WorkflowCreate }
	workflowCreateOutput struct {
		Location string `header:"Location" doc:"The path of the new workflow."`
		ETag     string `header:"ETag" doc:"**[ext]** Identifies the content of the workflow and changes with every write. Send it in If-Match."`
		Body     WorkflowItem
	}

	workflowUpdateInput struct {
		ID      string `path:"id" doc:"The id of the workflow." example:"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11"`
		IfMatch string `header:"If-Match" maxLength:"1000" doc:"**[ext]** One or more ETags. The update is rejected with 412 unless the workflow still has one of them."`
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
