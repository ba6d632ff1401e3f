package schedule

import (
	"encoding/json"
	"fmt"

	"tranche/internal/exactjson"
	"tranche/queries"
)

// encode writes what the slot starts as it is stored.
func (s *Setting) encode(row *queries.ScheduleUpsertParams) (err error) {
	if s.Slot == Single {
		row.Input, err = exactjson.Encode(orEmpty(s.Input))
	} else {
		row.Batch, err = s.Batch.encode()
	}
	if err != nil {
		return fmt.Errorf("write what %s starts: %w", s.Slot, err)
	}
	return nil
}

// decode reads what encode wrote.
func (s *Setting) decode(input, content []byte) (err error) {
	if s.Slot == Single {
		s.Input, err = decodeObject(input)
	} else {
		s.Batch, err = decodeBatch(content)
	}
	if err != nil {
		return fmt.Errorf("read what %s starts: %w", s.Slot, err)
	}
	return nil
}

func decodeObject(text []byte) (map[string]any, error) {
	value, err := exactjson.Decode(text)
	members, _ := value.(map[string]any)
	return members, err
}

// storedBatch is a BatchContent as it is stored.
type storedBatch struct {
	Label       string         `json:"label,omitempty"`
	Items       exactjson.Any  `json:"items"`
	CustomInput *exactjson.Any `json:"customInput,omitempty"`
	Files       []string       `json:"attachmentFileNames,omitempty"`
	Packages    []string       `json:"rawPackageIds,omitempty"`
}

func (c *BatchContent) encode() ([]byte, error) {
	items := c.Items
	if items == nil {
		items = []any{}
	}
	stored := storedBatch{Label: c.Label, Items: exactjson.Any{Value: items}, Files: c.Files, Packages: c.Packages}
	if c.CustomInput != nil {
		stored.CustomInput = &exactjson.Any{Value: c.CustomInput}
	}
	return json.Marshal(stored)
}

func decodeBatch(text []byte) (BatchContent, error) {
	var stored storedBatch
	if err := json.Unmarshal(text, &stored); err != nil {
		return BatchContent{}, err
	}
	c := BatchContent{Label: stored.Label, Files: stored.Files, Packages: stored.Packages}
	c.Items, _ = stored.Items.Value.([]any)
	if stored.CustomInput != nil {
		c.CustomInput, _ = stored.CustomInput.Value.(map[string]any)
	}
	return c, nil
}

func orEmpty(members map[string]any) map[string]any {
	if members == nil {
		return map[string]any{}
	}
	return members
}
