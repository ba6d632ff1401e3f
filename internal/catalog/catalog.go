// Package catalog owns the workflow records of a tenant: drafted, published,
// archived, deleted (contract A.2.2, A.3.1 and A.4.2, 3), and the bounded cache of the plans compiled from them. It must
// not know HTTP.
package catalog

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"tranche/internal/fault"
	"tranche/internal/workflow"
	"tranche/queries"
)

// Status is where a workflow stands (contract A.3.1).
type Status string

// The statuses.
const (
	Draft    Status = "draft"
	Active   Status = "active"
	Archived Status = "archived"
)

// Content is the part of a workflow that callers write.
type Content struct {
	Name        string
	Description string
	// Type becomes the workflowType of executions; empty for none.
	Type string
	// ExecutionMode is sync or async; empty leaves it to the graph (contract 5.1).
	ExecutionMode string
	// TimeoutSeconds is the time limit of an execution; 0 takes the default of
	// the mode (contract 3.4).
	TimeoutSeconds int
	// InputSchema, Tasks and Edges are JSON as the caller wrote it.
	InputSchema, Tasks, Edges json.RawMessage
}

// Workflow is one version of an alias.
type Workflow struct {
	Content
	ID       uuid.UUID
	TenantID uuid.UUID
	Alias    string
	Version  int
	Status   Status
	// ParentVersion is the version that a draft was made from, 0 for none.
	ParentVersion int
	// Revision counts the writes of this record, from 1.
	Revision    int
	CreatedAt   time.Time
	UpdatedAt   time.Time
	PublishedAt *time.Time // nil while never published
	ArchivedAt  *time.Time // nil while not archived
}

// VersionName is how callers write a version: v1, v2.
func VersionName(version int) string { return "v" + strconv.Itoa(version) }

// ParseVersion parses a name that VersionName returns.
func ParseVersion(name string) (version int, ok bool) {
	digits, found := strings.CutPrefix(name, "v")
	n, err := strconv.ParseInt(digits, 10, 32)
	if !found || err != nil || n < 1 || VersionName(int(n)) != name {
		return 0, false
	}
	return int(n), true
}

// Catalog keeps workflows and resolves the ones to execute.
type Catalog struct {
	pool    *pgxpool.Pool
	queries *queries.Queries
	types   map[string]workflow.TaskType
	plans   *planCache
}

// New returns a catalog for workflows of the given task types.
func New(pool *pgxpool.Pool, types map[string]workflow.TaskType) *Catalog {
	return &Catalog{pool: pool, queries: queries.New(), types: types, plans: newPlanCache(planBytesMax)}
}

// errUnknown answers for an unknown workflow and for another tenant's alike.
func errUnknown() error { return fault.New(fault.NotFound, "there is no such workflow") }

// errStatus returns the error for an action that the workflow's status forbids.
func errStatus(only Status, action string, is Status) error {
	return fault.New(fault.Conflict, "only %s workflow can be %s; this one is %s", article(only), action, is).
		WithSubCode(fault.InvalidWorkflowStatus)
}

func article(status Status) string {
	if status == Draft {
		return "a draft"
	}
	return fmt.Sprintf("an %s", status)
}

// Get returns a workflow of the tenant; fault.NotFound if it has none of that id.
func (c *Catalog) Get(ctx context.Context, tenantID, id uuid.UUID) (*Workflow, error) {
	row, err := c.queries.WorkflowGet(ctx, c.pool, queries.WorkflowGetParams{TenantID: tenantID, ID: id})
	if err != nil {
		return nil, readError(err, "get workflow %s", id)
	}
	return fromRow(row), nil
}
