package catalog

import (
	"bytes"
	"context"
	"encoding/json"
	"regexp"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"tranche/internal/exactjson"
	"tranche/internal/fault"
	"tranche/internal/postgres"
	"tranche/internal/workflow"
	"tranche/queries"
)

// aliasPattern matches valid aliases (contract 3.1).
var aliasPattern = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}$`)

// Create makes version 1 of a new alias as a draft. An alias that exists is
// fault.Conflict, a definition of the wrong structure fault.Invalid with all
// its faults.
func (c *Catalog) Create(ctx context.Context, tenantID uuid.UUID, alias string, content Content) (*Workflow, error) {
	content = withDefaults(content)
	if _, err := parse(content, c.types, append(nameFaults(content.Name), aliasFaults(alias)...)...); err != nil {
		return nil, err
	}
	var made *Workflow
	err := postgres.InTx(ctx, c.pool, func(tx pgx.Tx) error {
		_, err := c.queries.WorkflowAliasLock(ctx, tx, queries.WorkflowAliasLockParams{TenantID: tenantID, Alias: alias})
		if err != nil {
			return err
		}
		use, err := c.queries.WorkflowAliasGetVersions(ctx, tx, queries.WorkflowAliasGetVersionsParams{TenantID: tenantID, Alias: alias})
		if err != nil {
			return err
		}
		if use.HasVersion {
			return fault.New(fault.Conflict, "the alias is in use; create a draft from an active version of it instead")
		}
		made, err = c.insertTx(ctx, tx, tenantID, alias, 1, 0, content)
		return err
	})
	if err != nil {
		return nil, err
	}
	return made, nil
}

// insertTx writes a new draft.
func (c *Catalog) insertTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, alias string, version, parent int, content Content) (*Workflow, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return nil, err
	}
	row, err := c.queries.WorkflowInsert(ctx, tx, queries.WorkflowInsertParams{
		ID:             id,
		TenantID:       tenantID,
		Alias:          alias,
		Version:        int32(version),
		Name:           content.Name,
		Description:    content.Description,
		Type:           queries.Optional(content.Type),
		ExecutionMode:  queries.Optional(content.ExecutionMode),
		TimeoutSeconds: queries.Optional(int32(content.TimeoutSeconds)),
		InputSchema:    content.InputSchema,
		Tasks:          content.Tasks,
		Edges:          content.Edges,
		ParentVersion:  queries.Optional(int32(parent)),
	})
	if err != nil {
		return nil, err
	}
	return fromRow(row), nil
}

// Update changes a draft with a function from its content to its new content. It returns
// fault.Conflict for a workflow that is not a draft, and fault.Stale if accept refuses the
// revision.
func (c *Catalog) Update(ctx context.Context, tenantID, id uuid.UUID, accept func(revision int) bool, change func(Content) Content) (*Workflow, error) {
	var updated *Workflow
	err := postgres.InTx(ctx, c.pool, func(tx pgx.Tx) error {
		current, err := c.lockTx(ctx, tx, tenantID, id)
		if err != nil {
			return err
		}
		if !accept(current.Revision) {
			return fault.New(fault.Stale, "the workflow has changed since the version that If-Match names")
		}
		if current.Status != Draft {
			return errStatus(Draft, "changed", current.Status)
		}
		content := withDefaults(change(current.Content))
		if _, err := parse(content, c.types, nameFaults(content.Name)...); err != nil {
			return err
		}
		row, err := c.queries.WorkflowUpdate(ctx, tx, queries.WorkflowUpdateParams{
			TenantID:       tenantID,
			ID:             id,
			Name:           content.Name,
			Description:    content.Description,
			Type:           queries.Optional(content.Type),
			ExecutionMode:  queries.Optional(content.ExecutionMode),
			TimeoutSeconds: queries.Optional(int32(content.TimeoutSeconds)),
			InputSchema:    content.InputSchema,
			Tasks:          content.Tasks,
			Edges:          content.Edges,
		})
		if err != nil {
			return err
		}
		updated = fromRow(row)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return updated, nil
}

// lockTx returns a workflow and locks its row until tx ends.
func (c *Catalog) lockTx(ctx context.Context, tx pgx.Tx, tenantID, id uuid.UUID) (*Workflow, error) {
	row, err := c.queries.WorkflowGetForUpdate(ctx, tx, queries.WorkflowGetForUpdateParams{TenantID: tenantID, ID: id})
	if err != nil {
		return nil, readError(err, "lock workflow %s", id)
	}
	return fromRow(row), nil
}

func withDefaults(content Content) Content {
	content.InputSchema = jsonOr(content.InputSchema, `{"type":"object"}`)
	content.Tasks = jsonOr(content.Tasks, `[]`)
	content.Edges = jsonOr(content.Edges, `[]`)
	return content
}

// jsonOr returns the text without insignificant space, or the default for none.
func jsonOr(text json.RawMessage, otherwise string) json.RawMessage {
	if len(text) == 0 {
		return json.RawMessage(otherwise)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, text); err != nil {
		return text // parse reports it
	}
	return compact.Bytes()
}

func aliasFaults(alias string) []fault.Detail {
	if aliasPattern.MatchString(alias) {
		return nil
	}
	return []fault.Detail{{Field: "alias", Message: "must match " + aliasPattern.String()}}
}

func nameFaults(name string) []fault.Detail {
	if strings.TrimSpace(name) != "" {
		return nil
	}
	return []fault.Detail{{Field: "name", Message: "must not be blank"}}
}

// parse checks structure and types of a definition; a fault.Invalid names
// every fault, those that the caller has found already included. Without types
// the configs are not looked at.
func parse(content Content, types map[string]workflow.TaskType, details ...fault.Detail) (workflow.Definition, error) {
	decode := func(field string, text json.RawMessage) any {
		value, err := exactjson.Decode(text)
		if err != nil {
			details = append(details, fault.Detail{Field: field, Message: "is not acceptable JSON"})
		}
		return value
	}
	inputSchema := decode("inputSchema", content.InputSchema)
	tasks := decode("tasks", content.Tasks)
	edges := decode("edges", content.Edges)
	definition, found := workflow.Parse(inputSchema, tasks, edges, types)
	definition.ExecutionMode, definition.TimeoutSeconds = workflow.Mode(content.ExecutionMode), content.TimeoutSeconds
	if details = append(details, found...); len(details) > 0 {
		return workflow.Definition{}, fault.New(fault.Invalid, "the workflow is invalid").WithDetails(details...)
	}
	return definition, nil
}

// Inspect finds the faults in structure and types of a definition that is part
// of a larger body, given as the members of that body; absent ones have none.
func (c *Catalog) Inspect(members map[string]any) []fault.Detail {
	_, details := workflow.Parse(members["inputSchema"], members["tasks"], members["edges"], c.types)
	if name, isText := members["name"].(string); isText && name != "" {
		details = append(nameFaults(name), details...)
	}
	return details
}
