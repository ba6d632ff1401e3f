// Package catalog owns the workflow records of a tenant: drafted, published,
// archived, deleted (sections 2.2, 3.1 and 4.2 of the interface specification,
// decisions 3), and the bounded cache of the plans compiled from them. It must
// not know HTTP.
package catalog

// Catalog keeps workflows and resolves the ones to execute.
type Catalog struct{}
