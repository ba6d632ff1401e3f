package workflow

import (
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"tranche/internal/exactjson"
	"tranche/internal/fault"
)

// schemaName is the name of the document during compilation. Relative references lead to
// siblings of it, which do not exist.
const schemaName = "memory:///inputSchema"

// boundDigitsMax is how many decimals a bound is shown with in a message.
const boundDigitsMax = 20

// schema is a compiled inputSchema.
type schema struct {
	compiled *jsonschema.Schema
	fast     *fastValidator
	defaults bool // whether it has any
}

// validate returns the library's error.
func (s *schema) validate(v any) error {
	if s.fast.accepts(v) {
		return nil
	}
	return s.compiled.Validate(v)
}

// CheckInput fills in the schema's defaults and validates. It returns the
// filled input, or details with paths from the input (items[3].amount), sorted.
// The input itself is not changed.
func (p *Plan) CheckInput(input map[string]any) (map[string]any, []fault.Detail) {
	var filled any = input
	if p.schema.defaults {
		filler := filler{}
		filled, _ = filler.fill(p.schema.compiled, input, 0)
		switch {
		case filler.over():
			return nil, []fault.Detail{{Message: fmt.Sprintf("the schema's defaults would fill in more than %d values", filledMax)}}
		case exactjson.IsTooDeep(filled):
			return nil, []fault.Detail{{Message: fmt.Sprintf("the schema's defaults would nest the input deeper than %d levels", exactjson.DepthMax)}}
		}
	}
	if err := p.schema.validate(filled); err != nil {
		return nil, mismatches(err, filled, "")
	}
	object, _ := filled.(map[string]any)
	return object, nil
}

// schema compiles the schema at path (contract 3.5). Nothing is ever loaded: a
// $ref stays inside the document.
func (c *compiler) schema(path string, document map[string]any) *schema {
	draft, ok := schemaDraft(document)
	if !ok {
		c.fault(JoinPath(path, "$schema"), "", "must be JSON Schema 2020-12 or draft-07")
		return nil
	}
	loader := jsonschema.NewCompiler()
	loader.DefaultDraft(draft)
	loader.UseLoader(refuseLoading{})
	loader.AssertFormat()
	err := loader.AddResource(schemaName, document)
	var compiled *jsonschema.Schema
	if err == nil {
		compiled, err = loader.Compile(schemaName)
	}
	if err != nil {
		for _, detail := range schemaFaults(err, path, document) {
			c.report(detail)
		}
		return nil
	}
	walk := schemaWalk{ways: map[*jsonschema.Schema]int{}}
	if walk.visit(compiled) > applicationsMax {
		c.fault(path, "", "combines its parts in more than %d ways; simplify the schema", applicationsMax)
		return nil
	}
	if walk.endless() {
		c.fault(path, "", "has a $ref that leads directly back to itself, so no value can match; remove the cycle")
		return nil
	}
	return &schema{compiled: compiled, fast: newFastValidator(compiled), defaults: walk.defaults}
}

func schemaDraft(document map[string]any) (*jsonschema.Draft, bool) {
	name, present := document["$schema"]
	text, _ := name.(string)
	switch strings.TrimSuffix(text, "#") {
	case "https://json-schema.org/draft/2020-12/schema":
		return jsonschema.Draft2020, true
	case "http://json-schema.org/draft-07/schema", "https://json-schema.org/draft-07/schema":
		return jsonschema.Draft7, true
	default:
		return jsonschema.Draft2020, !present
	}
}

// refuseLoading is the loader of schemas that must not load anything; the
// library's own would open files.
type refuseLoading struct{}

var errLoading = errors.New("a schema refers to itself only")

func (refuseLoading) Load(string) (any, error) { return nil, errLoading }

// schemaFaults returns the faults of a schema that does not compile.
func schemaFaults(err error, path string, document any) []fault.Detail {
	var invalid *jsonschema.SchemaValidationError
	var mismatch *jsonschema.ValidationError
	if errors.As(err, &invalid) && errors.As(invalid.Err, &mismatch) {
		return mismatches(mismatch, document, path)
	}
	message := "is not a valid JSON Schema"
	var loading *jsonschema.LoadURLError
	var pointer *jsonschema.JSONPointerNotFoundError
	var anchor *jsonschema.AnchorNotFoundError
	var regex *jsonschema.InvalidRegexError
	switch {
	case errors.As(err, &loading):
		message = "has a $ref or $schema that leads outside the document; move that schema into $defs"
	case errors.As(err, &pointer), errors.As(err, &anchor):
		message = "has a $ref to a schema that does not exist"
	case errors.As(err, &regex):
		message = "has a pattern that is not a valid regular expression"
	}
	return []fault.Detail{{Field: path, Message: message}}
}

// mismatches turns the library's error into details, without any value of the
// input, sorted.
func mismatches(err error, value any, prefix string) []fault.Detail {
	var invalid *jsonschema.ValidationError
	if !errors.As(err, &invalid) {
		return []fault.Detail{{Field: prefix, Message: "does not match the schema"}}
	}
	var details []fault.Detail
	var collect func(e *jsonschema.ValidationError)
	collect = func(e *jsonschema.ValidationError) {
		switch k := e.ErrorKind.(type) {
		case *kind.Schema, *kind.Group, *kind.Reference, *kind.AllOf:
			for _, cause := range e.Causes {
				collect(cause)
			}
		default:
			path := JoinPath(prefix, pathOf(value, e.InstanceLocation))
			details = append(details, explain(k, path)...)
		}
	}
	collect(invalid)
	slices.SortFunc(details, func(a, b fault.Detail) int {
		return strings.Compare(a.Field+"\x00"+a.Message, b.Field+"\x00"+b.Message)
	})
	return slices.Compact(details)
}

// pathOf writes a location the way a caller writes it: items[3].amount.
func pathOf(value any, location []string) string {
	path := ""
	for _, segment := range location {
		switch v := value.(type) {
		case []any:
			path += "[" + segment + "]"
			if i, err := strconv.Atoi(segment); err == nil && i < len(v) {
				value = v[i]
			}
		case map[string]any:
			path = JoinPath(path, segment)
			value = v[segment]
		}
	}
	return path
}

// explain returns the faults of a value in terms of the schema alone.
func explain(k jsonschema.ErrorKind, path string) []fault.Detail {
	one := func(format string, args ...any) []fault.Detail {
		return []fault.Detail{{Field: path, Message: fmt.Sprintf(format, args...)}}
	}
	each := func(names []string, message string) []fault.Detail {
		var details []fault.Detail
		for _, name := range names {
			details = append(details, fault.Detail{Field: JoinPath(path, name), Message: message})
		}
		return details
	}
	switch k := k.(type) {
	case *kind.Type:
		return one("must be of type %s", strings.Join(k.Want, " or "))
	case *kind.Required:
		return each(k.Missing, "is required")
	case *kind.DependentRequired:
		return each(k.Missing, "is required together with "+k.Prop)
	case *kind.Dependency:
		return each(k.Missing, "is required together with "+k.Prop)
	case *kind.AdditionalProperties:
		return each(k.Properties, "is not a property that the schema allows; remove it or correct its name")
	case *kind.Enum, *kind.Const:
		return one("must be one of the values that the schema lists")
	case *kind.Format:
		return one("must be a valid %s", k.Want)
	case *kind.Pattern:
		return one("must match the pattern of the schema")
	case *kind.Minimum:
		return one("must be at least %s", bound(k.Want))
	case *kind.Maximum:
		return one("must be at most %s", bound(k.Want))
	case *kind.ExclusiveMinimum:
		return one("must be more than %s", bound(k.Want))
	case *kind.ExclusiveMaximum:
		return one("must be less than %s", bound(k.Want))
	case *kind.MultipleOf:
		return one("must be a multiple of %s", bound(k.Want))
	case *kind.MinLength:
		return one("must have at least %d characters", k.Want)
	case *kind.MaxLength:
		return one("must have at most %d characters", k.Want)
	case *kind.MinItems:
		return one("must have at least %d items", k.Want)
	case *kind.MaxItems:
		return one("must have at most %d items", k.Want)
	case *kind.MinProperties:
		return one("must have at least %d properties", k.Want)
	case *kind.MaxProperties:
		return one("must have at most %d properties", k.Want)
	case *kind.UniqueItems:
		return one("must not have two equal items")
	case *kind.AnyOf:
		return one("must match one of the alternatives of the schema (anyOf)")
	case *kind.OneOf:
		return one("must match exactly one of the alternatives of the schema (oneOf)")
	default:
		return one("does not match the schema")
	}
}

// bound writes a bound of the schema as a decimal.
func bound(r *big.Rat) string {
	digits, exact := r.FloatPrec()
	if !exact || digits > boundDigitsMax || r.Num().BitLen() > 256 {
		return "the bound of the schema"
	}
	return r.FloatString(digits)
}
