package schedule

import (
	"encoding/json"
	"errors"
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
	if err != nil {
		return nil, err
	}
	return object(value)
}

func object(value any) (map[string]any, error) {
	members, ok := value.(map[string]any)
	if !ok {
		return nil, errors.New("it is no object")
	}
	return members, nil
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

func decodeBatch(text []byte) (c BatchContent, err error) {
	var stored storedBatch
	if err := json.Unmarshal(text, &stored); err != nil {
		return c, err
	}
	c = BatchContent{Label: stored.Label, Files: stored.Files, Packages: stored.Packages}
	var ok bool
	if c.Items, ok = stored.Items.Value.([]any); !ok {
		return c, errors.New("its items are no array")
	}
	if stored.CustomInput != nil {
		c.CustomInput, err = object(stored.CustomInput.Value)
	}
	return c, err
}

func orEmpty(members map[string]any) map[string]any {
	if members == nil {
		return map[string]any{}
	}
	return members
}
