package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// versionCommand prints the version, for bug reports and upgrades.
type versionCommand struct{}

// Run prints the version.
func (versionCommand) Run(c *console) error {
	_, err := fmt.Fprintf(c.Out, "tranche %s %s %s/%s\n", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}

// version returns the version of the module. Between releases it contains the time and
// the commit. It is (devel) for go run and for sources outside a repository.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(devel)"
	}
	return info.Main.Version
}
