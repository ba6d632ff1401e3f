package httpapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"tranche/internal/exactjson"
	"tranche/internal/fault"
)

// validator checks an exactjson value against a schema that Huma derived from a
// type. Huma's own validation works on float64, writes ambiguous paths for names
// with a dot, and reports a missing member at its parent.
type validator struct {
	registry huma.Registry
	patterns *patternCache
	details  []fault.Detail
}

// validate returns all errors of value.
func (s *Server) validate(schema *huma.Schema, value any) []fault.Detail {
	v := validator{registry: s.Schemas(), patterns: &s.patterns}
	v.check(schema, "", value)
	return v.details
}

func (v *validator) add(path string, code fault.SubCode, format string, args ...any) {
	if path == "" {
		path = WholeBody
	}
	v.details = append(v.details, fault.Detail{Field: path, Message: fmt.Sprintf(format, args...), SubCode: code})
}

func (v *validator) check(schema *huma.Schema, path string, value any) {
	for schema.Ref != "" {
		schema = v.registry.SchemaFromRef(schema.Ref)
	}
	if value == nil && schema.Nullable {
		return
	}
	switch schema.Type {
	case huma.TypeObject:
		if members, ok := value.(map[string]any); ok {
			v.object(schema, path, members)
			return
		}
	case huma.TypeArray:
		if items, ok := value.([]any); ok {
			v.array(schema, path, items)
			return
		}
	case huma.TypeString:
		if text, ok := value.(string); ok {
			v.text(schema, path, text)
			return
		}
	case huma.TypeInteger, huma.TypeNumber:
		if number, ok := value.(json.Number); ok {
			v.number(schema, path, number)
			return
		}
	case huma.TypeBoolean:
		if _, ok := value.(bool); ok {
			return
		}
	default:
		return
	}
	v.add(path, fault.InvalidFieldType, "must be %s", article(schema.Type))
}

func (v *validator) object(schema *huma.Schema, path string, members map[string]any) {
	for _, name := range schema.Required {
		if _, ok := members[name]; !ok {
			v.add(member(path, name), fault.MissingRequiredField, "is required")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		value := members[name]
		property, known := schema.Properties[name]
		switch additional := schema.AdditionalProperties.(type) {
		case bool:
			if !known && !additional {
				v.add(member(path, name), "", "is not a known member")
			}
		case *huma.Schema:
			if !known {
				v.check(additional, member(path, name), value)
			}
		}
		// An optional member that is null counts as absent.
		if known && (value != nil || slices.Contains(schema.Required, name)) {
			v.check(property, member(path, name), value)
		}
	}
}

func (v *validator) array(schema *huma.Schema, path string, items []any) {
	if schema.MinItems != nil && len(items) < *schema.MinItems {
		v.add(path, "", "must have at least %d items", *schema.MinItems)
	}
	if schema.MaxItems != nil && len(items) > *schema.MaxItems {
		v.add(path, "", "must have at most %d items", *schema.MaxItems)
	}
	for i, item := range items {
		v.check(schema.Items, path+"["+strconv.Itoa(i)+"]", item)
	}
}

func (v *validator) text(schema *huma.Schema, path, text string) {
	length := utf8.RuneCountInString(text)
	if schema.MinLength != nil && length < *schema.MinLength {
		if *schema.MinLength == 1 {
			v.add(path, "", "must not be empty")
		} else {
			v.add(path, "", "must have at least %d characters", *schema.MinLength)
		}
	}
	if schema.MaxLength != nil && length > *schema.MaxLength {
		v.add(path, "", "must have at most %d characters", *schema.MaxLength)
	}
	if schema.Pattern != "" && !v.patterns.get(schema.Pattern).MatchString(text) {
		v.add(path, "", "must match %s", schema.Pattern)
	}
	if schema.Format == "date-time" {
		if _, err := ParseTime(text); err != nil {
			v.add(path, "", "must be an RFC 3339 date and time such as 2026-11-21T02:09:25Z")
		}
	}
	if len(schema.Enum) > 0 && !slices.Contains(schema.Enum, any(text)) {
		v.add(path, "", "must be one of %s", join(schema.Enum))
	}
}

func (v *validator) number(schema *huma.Schema, path string, number json.Number) {
	// Numbers with a schema are small counts with whole bounds. Amounts are in JSON
	// members without a schema.
	n, err := number.Float64()
	isRight := err == nil
	if schema.Type == huma.TypeInteger {
		_, isRight = exactjson.Integer(number)
	}
	if !isRight {
		v.add(path, fault.InvalidFieldType, "must be %s", article(schema.Type))
		return
	}
	if schema.Minimum != nil && n < *schema.Minimum {
		v.add(path, "", "must be at least %.0f", *schema.Minimum)
	}
	if schema.Maximum != nil && n > *schema.Maximum {
		v.add(path, "", "must be at most %.0f", *schema.Maximum)
	}
}

func member(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func join(values []any) string {
	texts := make([]string, len(values))
	for i, value := range values {
		texts[i] = fmt.Sprint(value)
	}
	return strings.Join(texts, ", ")
}

// timePattern is the form of RFC 3339. time.Parse alone is more lenient: it accepts an
// hour of one digit, a decimal comma and an offset of a day.
var timePattern = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$`)

// ParseTime parses an RFC 3339 date and time.
func ParseTime(text string) (time.Time, error) {
	if !timePattern.MatchString(text) {
		return time.Time{}, errors.New("not an RFC 3339 date and time")
	}
	return time.Parse(time.RFC3339, text)
}

// patternCache caches the compiled patterns of the schemas. Its size is bounded,
// because the schemas are part of the program.
type patternCache struct{ compiled sync.Map }

func (c *patternCache) get(pattern string) *regexp.Regexp {
	if known, ok := c.compiled.Load(pattern); ok {
		if re, ok := known.(*regexp.Regexp); ok {
			return re
		}
	}
	re := regexp.MustCompile(pattern)
	c.compiled.Store(pattern, re)
	return re
}
