package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// versionCommand tells builds apart, in reports and during an upgrade.
type versionCommand struct{}

// Run writes the version.
func (versionCommand) Run(c *console) error {
	_, err := fmt.Fprintf(c.Out, "tranche %s %s %s/%s\n", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}

// version is that of the module, which has the time and the commit of its source
// between releases; (devel) where the source was not in a repository, or go run built it.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(devel)"
	}
	return info.Main.Version
}
