package main

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	gocmp "github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "update the configuration tables of docs/operating.md")

const (
	operatingPath = "../../docs/operating.md"
	tablesBegin   = "<!-- The tables up to the next such line are written by go test ./cmd/tranche -run Configuration -update -->\n"
	tablesEnd     = "<!-- end of the tables -->\n"
)

// docs/operating.md lists all flags, and each flag has an environment variable.
func TestConfigurationIsDocumented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(operatingPath)
	require.NoError(t, err)
	before, rest, found := strings.Cut(string(text), tablesBegin)
	require.True(t, found)
	_, after, found := strings.Cut(rest, tablesEnd)
	require.True(t, found)

	want := before + tablesBegin + configurationTables(t) + tablesEnd + after
	if *update {
		require.NoError(t, os.WriteFile(operatingPath, []byte(want), 0o600))
		return
	}
	require.Empty(t, gocmp.Diff(string(text), want), "run go test ./cmd/tranche -run Configuration -update")
}

// configurationTables returns one table for each command, serve first. A flag of several
// commands is only in the first table.
func configurationTables(t *testing.T) string {
	t.Helper()
	parser, err := newParser(&commandLine{}, "~/.local/share/tranche")
	require.NoError(t, err)
	var tables strings.Builder
	seen := map[string]bool{}
	rank := func(command *kong.Node) int {
		if command.Name == "serve" {
			return 0
		}
		return 1
	}
	commands := parser.Model.Leaves(true)
	slices.SortStableFunc(commands, func(a, b *kong.Node) int {
		return cmp.Compare(rank(a), rank(b))
	})
	for _, command := range commands {
		var rows []string
		for _, group := range command.AllFlags(true) {
			for _, f := range group {
				row := configurationRow(t, f)
				if f.Name != "help" && !seen[row] {
					rows = append(rows, row)
				}
				seen[row] = true
			}
		}
		if len(rows) > 0 {
			fmt.Fprintf(&tables, "\n`%s`:\n\n| flag | variable | default | meaning |\n|---|---|---|---|\n%s", command.FullPath(), strings.Join(rows, ""))
		}
	}
	return tables.String() + "\n"
}

func configurationRow(t *testing.T, f *kong.Flag) string {
	t.Helper()
	if f.Name == "help" {
		return ""
	}
	require.Len(t, f.Envs, 1, "--%s has no environment variable", f.Name)
	standard := f.Default
	if standard != "" {
		standard = "`" + standard + "`"
	}
	help := strings.Replace(f.Help, " ("+f.Default+")", "", 1)
	return fmt.Sprintf("| `--%s` | `%s` | %s | %s |\n", f.Name, f.Envs[0], standard, help)
}
