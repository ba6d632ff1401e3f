package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// demoState is what the demo remembers between two runs, in its data
// directory: an interrupted run leaves a batch that the next one follows to
// its end.
type demoState struct {
	// Bureau is where the published workflows expect the bureau, host:port.
	Bureau string `json:"bureau"`
	// BatchID is a batch that was not seen to end; empty for none.
	BatchID string `json:"batchId,omitempty"`

	path string
}

func loadDemoState(dataDir string) (*demoState, error) {
	s := &demoState{path: filepath.Join(dataDir, "demo.json")}
	text, err := os.ReadFile(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err == nil {
		err = json.Unmarshal(text, s)
	}
	if err != nil {
		return nil, fmt.Errorf("read what the last demo left: %w", err)
	}
	return s, nil
}

// save replaces the file as a whole, so that a kill leaves the old one or the new.
func (s *demoState) save() error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err := os.WriteFile(s.path+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(s.path+".new", s.path)
}

// demoDataDir is beside the data directory of `serve`, so that neither touches
// the other's.
func demoDataDir(dataDir string) string {
	if dataDir == "" {
		return ""
	}
	return dataDir + "-demo"
}
