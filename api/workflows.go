package api

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"tranche/internal/catalog"
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
	register(s, operation{
		id: "listWorkflows", method: http.MethodGet, path: "/v2/workflows", tag: "Workflows",
		summary:     "List workflows",
		description: "The workflows of the tenant, every version a record of its own, newest first.",
		scope:       identity.ScopeWorkflowsRead, category: management,
		responseExample: `{"data":[` + workflowItemExample + `],"pagination":{"page":1,"perPage":20,"total":1,"totalPages":1}}`,
	}, s.listWorkflows)
	register(s, operation{
		id: "getWorkflow", method: http.MethodGet, path: "/v2/workflows/{id}", tag: "Workflows",
		summary:     "Get a workflow",
		description: "A workflow with its definition.",
		scope:       identity.ScopeWorkflowsRead, category: management,
		responseExample: strings.TrimSuffix(workflowItemExample, "}") + `,` + workflowDefinitionExample + `}`,
		errors:          []int{http.StatusNotFound},
	}, s.getWorkflow)
}

func workflowWriteRoutes(s *Server) {
	register(s, operation{
		id: "createWorkflow", method: http.MethodPost, path: "/v2/workflows", tag: "Workflows",
		summary: "Create a workflow",
		description: "Makes version v1 of a new alias as a draft. The draft may be incomplete: structure and types of the " +
			"definition are checked now, the graph as a whole when it is published. An alias that exists is a conflict; its next version is made by create-draft.",
		scope: identity.ScopeWorkflowsWrite, category: management, status: http.StatusCreated,
		requestExample: `{"name":"Pre-qualification","alias":"pre-qualification",` +
			`"description":"Decides whether an application is worth underwriting.",` + workflowDefinitionExample + `}`,
		responseExample: workflowItemExample,
		inspect:         s.config.Catalog.Inspect,
		errors:          []int{http.StatusConflict},
	}, s.createWorkflow)
	register(s, operation{
		id: "updateWorkflow", method: http.MethodPut, path: "/v2/workflows/{id}", tag: "Workflows",
		summary: "Change a draft",
		description: "Changes the members that the body has and leaves the others as they are; the read-only members of the detail are ignored, " +
			"so what GET answered can be changed and sent back. Only a draft can be changed.",
		scope: identity.ScopeWorkflowsWrite, category: management,
		requestExample:  `{"description":"Decides whether an application is worth underwriting.",` + workflowDefinitionExample + `}`,
		responseExample: strings.TrimSuffix(workflowItemExample, "}") + `,` + workflowDefinitionExample + `}`,
		inspect:         s.config.Catalog.Inspect,
		errors:          []int{http.StatusNotFound, http.StatusConflict, http.StatusPreconditionFailed},
	}, s.updateWorkflow)
	register(s, operation{
		id: "deleteWorkflow", method: http.MethodDelete, path: "/v2/workflows/{id}", tag: "Workflows",
		summary: "Delete a workflow",
		description: "Removes a draft for good, or an archived workflow that no execution refers to. " +
			"An active workflow must be archived first.",
		scope: identity.ScopeWorkflowsWrite, category: management,
		errors: []int{http.StatusNotFound, http.StatusConflict},
	}, s.deleteWorkflow)
}

func workflowStatusRoutes(s *Server) {
	register(s, operation{
		id: "publishWorkflow", method: http.MethodPost, path: "/v2/workflows/{id}/publish", tag: "Workflows",
		summary: "Publish a draft",
		description: "Checks the whole graph and makes the draft active, so that it can be executed. " +
			"Every fault of the graph is reported at once; a cycle has errorSubCode CIRCULAR_DEPENDENCY.",
		scope: identity.ScopeWorkflowsPublish, category: management,
		responseExample: `{"id":"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11","status":"active","version":"v1","publishedAt":"2026-11-21T02:09:25.123Z"}`,
		errors:          []int{http.StatusNotFound, http.StatusConflict, http.StatusUnprocessableEntity},
	}, s.publishWorkflow)
	register(s, operation{
		id: "validateWorkflow", method: http.MethodPost, path: "/v2/workflows/{id}/validate", tag: "Workflows",
		summary: "Check a workflow",
		description: "**[ext]** Says what publishing would find in the definition, and what may be a mistake although it can be published. " +
			"Changes nothing; the workflow may have any status.",
		scope: identity.ScopeWorkflowsRead, category: management,
		responseExample: `{"valid":false,"errors":[{"field":"edges[1].target","message":"there is no such task"}],"warnings":[]}`,
		errors:          []int{http.StatusNotFound},
	}, s.validateWorkflow)
	register(s, operation{
		id: "createWorkflowDraft", method: http.MethodPost, path: "/v2/workflows/{id}/create-draft", tag: "Workflows",
		summary: "Draft the next version",
		description: "Makes the next version of an active workflow as a draft with the same content; the active one stays as it is. " +
			"An alias has at most one draft.",
		scope: identity.ScopeWorkflowsWrite, category: management, status: http.StatusCreated,
		responseExample: `{"id":"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a12","name":"Pre-qualification","alias":"pre-qualification",` +
			`"version":"v2","status":"draft","parentVersion":"v1","createdAt":"2026-11-21T02:09:25.123Z"}`,
		errors: []int{http.StatusNotFound, http.StatusConflict},
	}, s.createWorkflowDraft)
	register(s, operation{
		id: "archiveWorkflow", method: http.MethodPost, path: "/v2/workflows/{id}/archive", tag: "Workflows",
		summary:     "Archive a workflow",
		description: "Retires an active workflow: it cannot be executed any more, while executions that run go on.",
		scope:       identity.ScopeWorkflowsPublish, category: management,
		responseExample: `{"id":"0197a1b2-6a70-7cc3-9d52-3f6e0d6c1a11","status":"archived","archivedAt":"2026-11-21T02:09:25.123Z"}`,
		errors:          []int{http.StatusNotFound, http.StatusConflict},
	}, s.archiveWorkflow)
}

func (s *Server) listWorkflows(ctx context.Context, in *workflowListInput) (*workflowListOutput, error) {
	filter := catalog.Filter{Status: catalog.Status(in.Status), Search: in.Search}
	found, total, err := s.config.Catalog.List(ctx, principal(ctx).TenantID, filter, in.window(in.PerPage))
	if err != nil {
		return nil, err
	}
	found, page := paginate(&in.PageInput, in.PerPage, found, total, func(w *catalog.Workflow) uuid.UUID { return w.ID })
	out := &workflowListOutput{Body: WorkflowList{Data: make([]WorkflowItem, len(found)), Pagination: page}}
	for i, w := range found {
		out.Body.Data[i] = workflowItem(w)
	}
	return out, nil
}

func (s *Server) getWorkflow(ctx context.Context, in *workflowInput) (*workflowDetailOutput, error) {
	id, err := parseID(in.ID, "workflow")
	if err != nil {
		return nil, err
	}
	w, err := s.config.Catalog.Get(ctx, principal(ctx).TenantID, id)
	if err != nil {
		return nil, err
	}
	return workflowDetail(w), nil
}

func (s *Server) createWorkflow(ctx context.Context, in *workflowCreateInput) (*workflowCreateOutput, error) {
	content := definitionContent(catalog.Content{
		Name: in.Body.Name, Description: in.Body.Description, Type: in.Body.Type,
	}, &in.Body.WorkflowDefinition)
	w, err := s.config.Catalog.Create(ctx, principal(ctx).TenantID, in.Body.Alias, content)
	if err != nil {
		return nil, err
	}
	return &workflowCreateOutput{Location: workflowPath(w), ETag: etag(w.Revision), Body: workflowItem(w)}, nil
}

func (s *Server) updateWorkflow(ctx context.Context, in *workflowUpdateInput) (*workflowDetailOutput, error) {
	id, err := parseID(in.ID, "workflow")
	if err != nil {
		return nil, err
	}
	accept := func(revision int) bool { return matchesETag(in.IfMatch, etag(revision)) }
	w, err := s.config.Catalog.Update(ctx, principal(ctx).TenantID, id, accept, func(content catalog.Content) catalog.Content {
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
	id, err := parseID(in.ID, "workflow")
	if err != nil {
		return nil, err
	}
	return nil, s.config.Catalog.Delete(ctx, principal(ctx).TenantID, id)
}

func (s *Server) publishWorkflow(ctx context.Context, in *workflowInput) (*workflowPublishOutput, error) {
	id, err := parseID(in.ID, "workflow")
	if err != nil {
		return nil, err
	}
	w, err := s.config.Catalog.Publish(ctx, principal(ctx).TenantID, id)
	if err != nil {
		return nil, err
	}
	return &workflowPublishOutput{Body: PublishedWorkflow{
		ID: w.ID.String(), Status: string(w.Status), Version: catalog.VersionName(w.Version), PublishedAt: stamp(*w.PublishedAt),
	}}, nil
}

func (s *Server) validateWorkflow(ctx context.Context, in *workflowInput) (*workflowValidateOutput, error) {
	id, err := parseID(in.ID, "workflow")
	if err != nil {
		return nil, err
	}
	found, err := s.config.Catalog.Validate(ctx, principal(ctx).TenantID, id)
	if err != nil {
		return nil, err
	}
	out := &workflowValidateOutput{Body: WorkflowValidation{
		Valid: found.Err == nil, Errors: []ProblemDetail{}, Warnings: problemDetails(found.Warnings),
	}}
	if found.Err != nil {
		out.Body.Errors, out.Body.ErrorSubCode = problemDetails(found.Err.Details), string(found.Err.SubCode)
	}
	return out, nil
}

func (s *Server) createWorkflowDraft(ctx context.Context, in *workflowInput) (*workflowDraftOutput, error) {
	id, err := parseID(in.ID, "workflow")
	if err != nil {
		return nil, err
	}
	w, err := s.config.Catalog.CreateDraft(ctx, principal(ctx).TenantID, id)
	if err != nil {
		return nil, err
	}
	return &workflowDraftOutput{Location: workflowPath(w), Body: DraftedWorkflow{
		ID: w.ID.String(), Name: w.Name, Alias: w.Alias, Version: catalog.VersionName(w.Version),
		Status: string(w.Status), ParentVersion: catalog.VersionName(w.ParentVersion), CreatedAt: stamp(w.CreatedAt),
	}}, nil
}

func (s *Server) archiveWorkflow(ctx context.Context, in *workflowInput) (*workflowArchiveOutput, error) {
	id, err := parseID(in.ID, "workflow")
	if err != nil {
		return nil, err
	}
	w, err := s.config.Catalog.Archive(ctx, principal(ctx).TenantID, id)
	if err != nil {
		return nil, err
	}
	return &workflowArchiveOutput{Body: ArchivedWorkflow{ID: w.ID.String(), Status: string(w.Status), ArchivedAt: stamp(*w.ArchivedAt)}}, nil
}

// definitionContent returns the content with the members that the definition has.
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

// etag names a revision of a record.
func etag(revision int) string { return `"r` + strconv.Itoa(revision) + `"` }

// matchesETag reports whether an If-Match header allows a write of what has
// the given etag (RFC 9110, 13.1.1): it does if it is absent, * or names it.
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
