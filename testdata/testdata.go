// Package testdata holds the sample data of the demo and the tests: loan
// applications and the workflows that judge them. README.md beside it says
// what they are. It must know nothing else of the project.
package testdata

import "embed"

//go:generate go run generate.go
//go:generate go run files/generate.go

// Applications is loan-applications.csv: a header and 2,000 rows, of which
// about three in a hundred do not match the workflows' input schema.
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

// Guide holds guide/*.json: the workflow that docs/workflows.md builds, as it is
// after each step.
//
//go:embed guide/*.json
var Guide embed.FS

// Published holds published/*.json: workflows of kinds that other engines publish
// as their examples, written anew as ours. They call ServicesURL.
//
//go:embed published/*.json
var Published embed.FS

// ServicesURL is where the workflows of Published expect what they call.
const ServicesURL = "https://services.example"

// BureauURL is where the workflows expect the credit bureau. Whoever creates
// them replaces it by the address of theirs.
const BureauURL = "https://bureau.example"
