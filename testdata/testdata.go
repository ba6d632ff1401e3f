// Package testdata embeds the sample data of the demo and the tests: loan applications
// and workflows that decide on them. README.md describes them. The package must not know
// other packages of the project.
package testdata

import "embed"

//go:generate go run generate.go
//go:generate go run files/generate.go

// Applications is loan-applications.csv: a header and 2,000 rows. About three in a hundred
// rows violate the input schema of the workflows.
//
//go:embed loan-applications.csv
var Applications []byte

// Application is application.json: the input of one execution.
//
//go:embed application.json
var Application []byte

// Workflows holds workflows/*.json: bodies for POST /v2/workflows.
//
//go:embed workflows/*.json
var Workflows embed.FS

// Guide holds guide/*.json: the workflow of docs/workflows.md after each step.
//
//go:embed guide/*.json
var Guide embed.FS

// Published holds published/*.json: workflows like the examples of other engines, written
// for Tranche. They call ServicesURL.
//
//go:embed published/*.json
var Published embed.FS

// ServicesURL is the address of all calls in Published.
const ServicesURL = "https://services.example"

// BureauURL is the address of the credit bureau in Workflows. Replace it before you create
// a workflow.
const BureauURL = "https://bureau.example"
