package main

import "encoding/json"

// outputFlags say how a command writes its result.
type outputFlags struct {
	Output string `name:"output" short:"o" env:"TRANCHE_OUTPUT" enum:"text,json" default:"text" help:"Form of the result on stdout: text or json."`
}

// print writes a result as one line of JSON, or calls text to write it for people.
func (f *outputFlags) print(out *console, result any, text func()) error {
	if f.Output != "json" {
		text()
		return nil
	}
	return json.NewEncoder(out.Out).Encode(result)
}
