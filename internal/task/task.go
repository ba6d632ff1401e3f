// Package task holds the task types of workflow definitions, one file each: reading of the
// config and the program (contract 4.4). The reference for authors is docs/workflows.md.
// The package must know neither the database nor the engine. Programs reach the outside
// through ports.
package task

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"tranche/internal/egress"
	"tranche/internal/expression"
	"tranche/internal/workflow"
)

// Ports are the interfaces through which programs reach the outside.
type Ports struct {
	HTTP *egress.Client
	// RevealSecret opens the secrets that requests carry.
	RevealSecret RevealSecret
	// FindAuthorization answers authorization-check.
	FindAuthorization FindAuthorization
	// Log takes why a request got no answer, which callers do not see; nil
	// leaves it unsaid.
	Log *slog.Logger
}

// Types returns the task types by the name that definitions use.
func Types(ports Ports) map[string]workflow.TaskType {
	if ports.Log == nil {
		ports.Log = slog.New(slog.DiscardHandler)
	}
	return map[string]workflow.TaskType{
		"http-request":        httpRequestType{http: ports.HTTP, log: ports.Log, secrets: ports.RevealSecret, tokens: &tokenCache{}},
		"transform":           transformType{},
		"switch":              switchType{},
		"decision-table":      decisionTableType{},
		"for-each":            forEachType{},
		"loop":                loopType{},
		"delay":               delayType{},
		"wait-for-signal":     waitForSignalType{},
		"sub-workflow":        subWorkflowType{},
		"end":                 endType{},
		"authorization-check": authorizationCheckType{find: ports.FindAuthorization},
	}
}

// The codes of failures that are the workflow's own doing.
const (
	codeDecisionTable  = "DECISION_TABLE_ERROR"
	codeInvalidRequest = "INVALID_REQUEST" // a value does not fit where the request needs it
	codeInvalidResult  = "INVALID_RESULT"  // a value does not fit where an end task needs it
)

func failure(code, format string, args ...any) *workflow.TaskError {
	return &workflow.TaskError{Code: code, Message: fmt.Sprintf(format, args...)}
}

// failureAt makes the failure of a config member: an expression's own error
// keeps its place within the member, any other error gets the code given.
func failureAt(code, path string, err error) *workflow.TaskError {
	inExpression, ok := errors.AsType[*expression.Error](err)
	if !ok {
		return failure(code, "%s: %s", path, err)
	}
	at := *inExpression
	at.Path = workflow.JoinPath(path, at.Path)
	return failure(workflow.CodeExpression, "%s", at.Error())
}

func sortedNames[V any](members map[string]V) []string {
	return slices.Sorted(maps.Keys(members))
}
