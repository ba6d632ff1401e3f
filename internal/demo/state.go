package demo

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// state is kept in the demo's directory between runs. With it a run continues the
// batch of an interrupted one.
type state struct {
	// Bureau is the host:port of the bureau in the published workflows.
	Bureau string `json:"bureau"`
	// BatchID is the batch that has not ended yet; empty for none.
	BatchID string `json:"batchId,omitempty"`

	path string
}

func loadState(dataDir string) (*state, error) {
	s := &state{path: filepath.Join(dataDir, "demo.json")}
	text, err := os.ReadFile(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err == nil {
		err = json.Unmarshal(text, s)
	}
	if err != nil {
		return nil, fmt.Errorf("read the state of the last run: %w", err)
	}
	return s, nil
}

// save replaces the file at once, so that a killed process leaves the old or the new.
func (s *state) save() error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err := os.WriteFile(s.path+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(s.path+".new", s.path)
}
