// Package batch runs a workflow for many items: it reads their sources,
// records every item as an execution, feeds them to the workers in windows,
// counts what ends, and writes the output package. The stages are jobs; the
// row of the batch says how far each has come, so that a stage that crashed
// goes on where it was. It must not know HTTP.
package batch
