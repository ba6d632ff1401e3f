package main

import "encoding/json"

// outputFlags select the format of a result.
type outputFlags struct {
	Output string `name:"output" short:"o" env:"TRANCHE_OUTPUT" enum:"text,json" default:"text" help:"Format of the result on stdout: text or json."`
}

// print writes result as one line of JSON, or calls text to print it.
func (f *outputFlags) print(out *console, result any, text func()) error {
	if f.Output != "json" {
		text()
		return nil
	}
	return json.NewEncoder(out.Out).Encode(result)
}
