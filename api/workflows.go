package api

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"tranche/internal/catalog"
	"tranche/internal/httpapi"
	"tranche/internal/identity"
)

// Examples that several operations share.
const (
	workflowItemExample = `{"id":"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11","name":"Pre-qualification","alias":"pre-qualification",` +
		`"version":"v1","status":"draft","description":"Decides whether an application is worth underwriting.",` +
		`"createdAt":"2026-11-21T02:09:25.123Z","updatedAt":"2026-11-21T02:09:25.123Z","publishedAt":null}`
	workflowDefinitionExample = `"inputSchema":{"type":"object","required":["amount","income"],"properties":{` +
		`"amount":{"type":"number"},"income":{"type":"number"},"purpose":{"type":"string","enum":["car","home"],"default":"home"}}},` +
		`"tasks":[{"id":"ratio","type":"transform","name":"Installment to income","config":{"fields":{"ratio":"{{ input.amount / 36 / input.income }}"}}},` +
		`{"id":"done","type":"end","name":"Decision","config":{"output":{"ratio":"{{ tasks.ratio.output.ratio }}"}}}],` +
		`"edges":[{"source":"start","target":"ratio"},{"source":"ratio","target":"done"}]`
)

func workflowRoutes(s *Server) {
	workflowReadRoutes(s)
	workflowWriteRoutes(s)
	workflowStatusRoutes(s)
}

func workflowReadRoutes(s *Server) {
	httpapi.Register(s.http, httpapi.Operation{
		ID: "listWorkflows", Method: http.MethodGet, Path: "/v2/workflows", Tag: "Workflows",
		Summary:     "List workflows",
		Description: "Returns the workflows of the tenant, newest first. Every version is an entry of its own.",
		Scope:       identity.ScopeWorkflowsRead, Category: identity.LimitManagement,
		ResponseExample: `{"data":[` + workflowItemExample + `],"pagination":{"page":1,"perPage":20,"total":1,"totalPages":1}}`,
	}, s.listWorkflows)
	httpapi.Register(s.http, httpapi.Operation{
		ID: "getWorkflow", Method: http.MethodGet, Path: "/v2/workflows/{id}", Tag: "Workflows",
		Summary:     "Get a workflow",
		Description: "Returns a workflow with its definition.",
		Scope:       identity.ScopeWorkflowsRead, Category: identity.LimitManagement,
		ResponseExample: strings.TrimSuffix(workflowItemExample, "}") + `,` + workflowDefinitionExample + `}`,
		Errors:          []int{http.StatusNotFound},
	}, s.getWorkflow)
}

func workflowWriteRoutes(s *Server) {
	httpapi.Register(s.http, httpapi.Operation{
		ID: "createWorkflow", Method: http.MethodPost, Path: "/v2/workflows", Tag: "Workflows",
		Summary: "Create a workflow",
		Description: "Creates version v1 of a new alias as a draft. The draft may be incomplete: the structure and the types of the definition are " +
			"checked now, and the graph as a whole when you publish it. If the alias exists, the response is 409. Use `create-draft` to create " +
			"its next version.",
		Scope: identity.ScopeWorkflowsWrite, Category: identity.LimitManagement, Status: http.StatusCreated,
		RequestExample: `{"name":"Pre-qualification","alias":"pre-qualification",` +
			`"description":"Decides whether an application is worth underwriting.",` + workflowDefinitionExample + `}`,
		ResponseExample: workflowItemExample,
		Inspect:         s.config.Catalog.Inspect,
		Errors:          []int{http.StatusConflict},
	}, s.createWorkflow)
	httpapi.Register(s.http, httpapi.Operation{
		ID: "updateWorkflow", Method: http.MethodPut, Path: "/v2/workflows/{id}", Tag: "Workflows",
		Summary: "Change a draft",
		Description: "Changes the members that the body contains. All other members stay as they are. Read-only members are ignored, so that you can " +
			"change the response of GET and send it back. Only a draft can be changed.",
		Scope: identity.ScopeWorkflowsWrite, Category: identity.LimitManagement,
		RequestExample:  `{"description":"Decides whether an application is worth underwriting.",` + workflowDefinitionExample + `}`,
		ResponseExample: strings.TrimSuffix(workflowItemExample, "}") + `,` + workflowDefinitionExample + `}`,
		Inspect:         s.config.Catalog.Inspect,
		Errors:          []int{http.StatusNotFound, http.StatusConflict, http.StatusPreconditionFailed},
	}, s.updateWorkflow)
	httpapi.Register(s.http, httpapi.Operation{
		ID: "deleteWorkflow", Method: http.MethodDelete, Path: "/v2/workflows/{id}", Tag: "Workflows",
		Summary:     "Delete a workflow",
		Description: "Permanently deletes a draft, or an archived workflow that no execution refers to. Archive an active workflow first.",
		Scope:       identity.ScopeWorkflowsWrite, Category: identity.LimitManagement,
		Errors: []int{http.StatusNotFound, http.StatusConflict},
	}, s.deleteWorkflow)
}

func workflowStatusRoutes(s *Server) {
	httpapi.Register(s.http, httpapi.Operation{
		ID: "publishWorkflow", Method: http.MethodPost, Path: "/v2/workflows/{id}/publish", Tag: "Workflows",
		Summary: "Publish a draft",
		Description: "Validates the whole graph and makes the draft active, so that it can be executed. The response reports all errors of the graph at " +
			"once. A cycle has the `errorSubCode` CIRCULAR_DEPENDENCY.",
		Scope: identity.ScopeWorkflowsPublish, Category: identity.LimitManagement,
		ResponseExample: `{"id":"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11","status":"active","version":"v1","publishedAt":"2026-11-21T02:09:25.123Z"}`,
		Errors:          []int{http.StatusNotFound, http.StatusConflict, http.StatusUnprocessableEntity},
	}, s.publishWorkflow)
	httpapi.Register(s.http, httpapi.Operation{
		ID: "validateWorkflow", Method: http.MethodPost, Path: "/v2/workflows/{id}/validate", Tag: "Workflows",
		Summary: "Validate a workflow",
		Description: "**[ext]** Reports the errors that would prevent publishing, and possible mistakes that would not. It changes nothing. The " +
			"workflow may have any status.",
		Scope: identity.ScopeWorkflowsRead, Category: identity.LimitManagement,
		ResponseExample: `{"valid":false,"errors":[{"field":"edges[1].target","message":"there is no such task"}],"warnings":[]}`,
		Errors:          []int{http.StatusNotFound},
	}, s.validateWorkflow)
	httpapi.Register(s.http, httpapi.Operation{
		ID: "createWorkflowDraft", Method: http.MethodPost, Path: "/v2/workflows/{id}/create-draft", Tag: "Workflows",
		Summary: "Create a draft of the next version",
		Description: "Creates the next version of an active workflow as a draft with the same content. The active version does not change. An alias has " +
			"at most one draft.",
		Scope: identity.ScopeWorkflowsWrite, Category: identity.LimitManagement, Status: http.StatusCreated,
		ResponseExample: `{"id":"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a12","name":"Pre-qualification","alias":"pre-qualification",` +
			`"version":"v2","status":"draft","parentVersion":"v1","createdAt":"2026-11-21T02:09:25.123Z"}`,
		Errors: []int{http.StatusNotFound, http.StatusConflict},
	}, s.createWorkflowDraft)
	httpapi.Register(s.http, httpapi.Operation{
		ID: "archiveWorkflow", Method: http.MethodPost, Path: "/v2/workflows/{id}/archive", Tag: "Workflows",
		Summary:     "Archive a workflow",
		Description: "Archives an active workflow. It can no longer be executed. Executions in progress continue.",
		Scope:       identity.ScopeWorkflowsPublish, Category: identity.LimitManagement,
		ResponseExample: `{"id":"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11","status":"archived","archivedAt":"2026-11-21T02:09:25.123Z"}`,
		Errors:          []int{http.StatusNotFound, http.StatusConflict},
	}, s.archiveWorkflow)
}

func (s *Server) listWorkflows(ctx context.Context, in *workflowListInput) (*workflowListOutput, error) {
	filter := catalog.Filter{Status: catalog.Status(in.Status), Search: in.Search}
	found, total, err := s.config.Catalog.List(ctx, httpapi.Principal(ctx).TenantID, filter, in.Window(in.PerPage))
	if err != nil {
		return nil, err
	}
	found, page := httpapi.Paginate(&in.PageInput, in.PerPage, found, total, func(w *catalog.Workflow) uuid.UUID { return w.ID })
	out := &workflowListOutput{Body: WorkflowList{Data: make([]WorkflowItem, len(found)), Pagination: page}}
	for i, w := range found {
		out.Body.Data[i] = workflowItem(w)
	}
	return out, nil
}

func (s *Server) getWorkflow(ctx context.Context, in *workflowInput) (*workflowDetailOutput, error) {
	id, err := httpapi.ParseID(in.ID, "workflow")
	if err != nil {
		return nil, err
	}
	w, err := s.config.Catalog.Get(ctx, httpapi.Principal(ctx).TenantID, id)
	if err != nil {
		return nil, err
	}
	return workflowDetail(w), nil
}

func (s *Server) createWorkflow(ctx context.Context, in *workflowCreateInput) (*workflowCreateOutput, error) {
	content := definitionContent(catalog.Content{
		Name: in.Body.Name, Description: in.Body.Description, Type: in.Body.Type,
	}, &in.Body.WorkflowDefinition)
	w, err := s.config.Catalog.Create(ctx, httpapi.Principal(ctx).TenantID, in.Body.Alias, content)
	if err != nil {
		return nil, err
	}
	return &workflowCreateOutput{Location: workflowPath(w), ETag: etag(w.Revision), Body: workflowItem(w)}, nil
}

func (s *Server) updateWorkflow(ctx context.Context, in *workflowUpdateInput) (*workflowDetailOutput, error) {
	id, err := httpapi.ParseID(in.ID, "workflow")
	if err != nil {
		return nil, err
	}
	accept := func(revision int) bool { return matchesETag(in.IfMatch, etag(revision)) }
	w, err := s.config.Catalog.Update(ctx, httpapi.Principal(ctx).TenantID, id, accept, func(content catalog.Content) catalog.Content {
		assign(&content.Name, in.Body.Name)
		assign(&content.Description, in.Body.Description)
		assign(&content.Type, in.Body.Type)
		return definitionContent(content, &in.Body.WorkflowDefinition)
	})
	if err != nil {
		return nil, err
	}
	return workflowDetail(w), nil
}

func (s *Server) deleteWorkflow(ctx context.Context, in *workflowInput) (*struct{}, error) {
	id, err := httpapi.ParseID(in.ID, "workflow")
	if err != nil {
		return nil, err
	}
	return nil, s.config.Catalog.Delete(ctx, httpapi.Principal(ctx).TenantID, id)
}

func (s *Server) publishWorkflow(ctx context.Context, in *workflowInput) (*workflowPublishOutput, error) {
	id, err := httpapi.ParseID(in.ID, "workflow")
	if err != nil {
		return nil, err
	}
	w, err := s.config.Catalog.Publish(ctx, httpapi.Principal(ctx).TenantID, id)
	if err != nil {
		return nil, err
	}
	return &workflowPublishOutput{Body: PublishedWorkflow{
		ID: w.ID.String(), Status: string(w.Status), Version: catalog.VersionName(w.Version), PublishedAt: stamp(*w.PublishedAt),
	}}, nil
}

func (s *Server) validateWorkflow(ctx context.Context, in *workflowInput) (*workflowValidateOutput, error) {
	id, err := httpapi.ParseID(in.ID, "workflow")
	if err != nil {
		return nil, err
	}
	found, err := s.config.Catalog.Validate(ctx, httpapi.Principal(ctx).TenantID, id)
	if err != nil {
		return nil, err
	}
	out := &workflowValidateOutput{Body: WorkflowValidation{
		Valid: found.Err == nil, Errors: []httpapi.ProblemDetail{}, Warnings: httpapi.ProblemDetails(found.Warnings),
	}}
	if found.Err != nil {
		out.Body.Errors, out.Body.ErrorSubCode = httpapi.ProblemDetails(found.Err.Details), string(found.Err.SubCode)
	}
	return out, nil
}

func (s *Server) createWorkflowDraft(ctx context.Context, in *workflowInput) (*workflowDraftOutput, error) {
	id, err := httpapi.ParseID(in.ID, "workflow")
	if err != nil {
		return nil, err
	}
	w, err := s.config.Catalog.CreateDraft(ctx, httpapi.Principal(ctx).TenantID, id)
	if err != nil {
		return nil, err
	}
	return &workflowDraftOutput{Location: workflowPath(w), Body: DraftedWorkflow{
		ID: w.ID.String(), Name: w.Name, Alias: w.Alias, Version: catalog.VersionName(w.Version),
		Status: string(w.Status), ParentVersion: catalog.VersionName(w.ParentVersion), CreatedAt: stamp(w.CreatedAt),
	}}, nil
}

func (s *Server) archiveWorkflow(ctx context.Context, in *workflowInput) (*workflowArchiveOutput, error) {
	id, err := httpapi.ParseID(in.ID, "workflow")
	if err != nil {
		return nil, err
	}
	w, err := s.config.Catalog.Archive(ctx, httpapi.Principal(ctx).TenantID, id)
	if err != nil {
		return nil, err
	}
	return &workflowArchiveOutput{Body: ArchivedWorkflow{ID: w.ID.String(), Status: string(w.Status), ArchivedAt: stamp(*w.ArchivedAt)}}, nil
}

// definitionContent returns content with the members of the definition.
func definitionContent(content catalog.Content, d *WorkflowDefinition) catalog.Content {
	if d.ExecutionMode != "" {
		content.ExecutionMode = d.ExecutionMode
	}
	assign(&content.TimeoutSeconds, (*int)(d.TimeoutSeconds))
	for _, part := range []struct {
		to   *json.RawMessage
		text []byte
	}{{&content.InputSchema, d.InputSchema}, {&content.Tasks, d.Tasks}, {&content.Edges, d.Edges}} {
		if len(part.text) > 0 {
			*part.to = part.text
		}
	}
	return content
}

func assign[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

func workflowItem(w *catalog.Workflow) WorkflowItem {
	item := WorkflowItem{
		ID:          w.ID.String(),
		Name:        w.Name,
		Alias:       w.Alias,
		Version:     catalog.VersionName(w.Version),
		Status:      string(w.Status),
		Description: w.Description,
		Type:        w.Type,
		CreatedAt:   stamp(w.CreatedAt),
		UpdatedAt:   stamp(w.UpdatedAt),
		PublishedAt: stampOrNil(w.PublishedAt),
		ArchivedAt:  stampOrNil(w.ArchivedAt),
	}
	if w.ParentVersion > 0 {
		item.ParentVersion = catalog.VersionName(w.ParentVersion)
	}
	return item
}

func workflowDetail(w *catalog.Workflow) *workflowDetailOutput {
	return &workflowDetailOutput{ETag: etag(w.Revision), Body: WorkflowDetail{
		WorkflowItem:   workflowItem(w),
		ExecutionMode:  w.ExecutionMode,
		TimeoutSeconds: w.TimeoutSeconds,
		InputSchema:    RawObject(w.InputSchema),
		Tasks:          RawArray[WorkflowTask](w.Tasks),
		Edges:          RawArray[WorkflowEdge](w.Edges),
	}}
}

func workflowPath(w *catalog.Workflow) string { return "/v2/workflows/" + w.ID.String() }

// etag returns the ETag of a revision.
func etag(revision int) string { return `"r` + strconv.Itoa(revision) + `"` }

// matchesETag reports whether an If-Match header allows a write to a resource with the
// given ETag: it is absent, * or contains the ETag (RFC 9110, 13.1.1).
func matchesETag(ifMatch, etag string) bool {
	if ifMatch == "" {
		return true
	}
	for candidate := range strings.SplitSeq(ifMatch, ",") {
		if candidate = strings.TrimSpace(candidate); candidate == etag || candidate == "*" {
			return true
		}
	}
	return false
}
