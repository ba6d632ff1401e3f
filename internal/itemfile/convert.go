package itemfile

import (
	"encoding/json"
	"strings"
	"unicode/utf8"

	"tranche/internal/exactjson"
)

// typeSet is the set of JSON types that a property can have. It is empty if the schema
// names no type; then the property is a text.
type typeSet uint8

const (
	typeString typeSet = 1 << iota
	typeNumber
	typeBoolean
	typeArray
	typeObject
)

func (t typeSet) has(other typeSet) bool { return t&other != 0 }

// reason returns the error for a text that fits none of the types.
func (t typeSet) reason() string {
	switch {
	case t.has(typeNumber):
		return "must be a number such as 1234.56"
	case t.has(typeBoolean):
		return "must be true or false"
	case t.has(typeArray):
		return "must be a JSON array"
	default:
		return "must be a JSON object"
	}
}

// property is the type and format of a property in the schema.
type property struct {
	types  typeSet
	format string // empty for none
}

// Limits of the search for a property. A schema can contain cycles.
const (
	referencesMax = 16  // $ref followed in a row
	schemasMax    = 500 // schemas visited for one property
)

// propertyAt returns the property at a path in a schema. It has the types of all
// alternatives.
func propertyAt(schema map[string]any, path []string) property {
	search := propertySearch{schema: schema, schemasLeft: schemasMax}
	found, _ := search.at(schema, path)
	return found
}

type propertySearch struct {
	schema      map[string]any
	schemasLeft int
}

// at also reports whether the node states the types of the property. Its own keywords
// come before allOf, and allOf before anyOf and oneOf.
func (s *propertySearch) at(node map[string]any, path []string) (found property, says bool) {
	if s.schemasLeft == 0 {
		return property{}, false
	}
	s.schemasLeft--
	node = resolve(s.schema, node)
	switch isTyped := node["type"] != nil || node["enum"] != nil || node["const"] != nil; {
	case len(path) == 0 && isTyped:
		format, _ := node["format"].(string)
		return property{types: typesOf(node), format: format}, true
	case len(path) > 0:
		if inner := memberOf(node, path[0]); inner != nil {
			if found, says = s.at(inner, path[1:]); says || found.format != "" {
				return found, says
			}
		}
		if isTyped && !typesOf(node).has(typeObject) {
			return property{}, true // the node cannot have such a property
		}
	}
	for _, part := range schemasIn(node["allOf"]) {
		if found, says = s.at(part, path); says {
			break
		}
	}
	if !says {
		found, says = s.anyOf(append(schemasIn(node["anyOf"]), schemasIn(node["oneOf"])...), path)
	}
	if format, ok := node["format"].(string); ok && len(path) == 0 && found.format == "" {
		found.format = format // the node states no type, or only its parts do
	}
	return found, says
}

// memberOf returns the schema of a member of an object, or nil.
func memberOf(node map[string]any, name string) map[string]any {
	properties, _ := node["properties"].(map[string]any)
	if inner, ok := properties[name].(map[string]any); ok || properties[name] != nil || node["patternProperties"] != nil {
		return inner
	}
	inner, _ := node["additionalProperties"].(map[string]any)
	return inner
}

// anyOf returns the property with the types of all alternatives. An alternative without
// types accepts texts.
func (s *propertySearch) anyOf(alternatives []map[string]any, path []string) (found property, says bool) {
	isFree := false
	for _, alternative := range alternatives {
		one, saysOne := s.at(alternative, path)
		found.types |= one.types
		if found.format == "" {
			found.format = one.format
		}
		says, isFree = says || saysOne, isFree || !saysOne
	}
	if says && isFree {
		found.types |= typeString
	}
	return found, says
}

// schemasIn returns the schemas in a list.
func schemasIn(list any) []map[string]any {
	values, _ := list.([]any)
	var schemas []map[string]any
	for _, value := range values {
		if schema, ok := value.(map[string]any); ok {
			schemas = append(schemas, schema)
		}
	}
	return schemas
}

// resolve follows references within the schema, such as {"$ref": "#/$defs/money"}.
func resolve(schema, node map[string]any) map[string]any {
	for range referencesMax {
		reference, ok := node["$ref"].(string)
		if !ok {
			return node
		}
		pointer, ok := strings.CutPrefix(reference, "#")
		if !ok {
			return nil
		}
		node = schema
		for segment := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
			if segment != "" {
				node, _ = node[strings.NewReplacer("~1", "/", "~0", "~").Replace(segment)].(map[string]any)
			}
		}
	}
	return nil
}

// typesOf returns the types of a schema, or of the values that it permits.
func typesOf(node map[string]any) typeSet {
	var types typeSet
	switch declared := node["type"].(type) {
	case string:
		types = typeNamed(declared)
	case []any:
		for _, name := range declared {
			if name, ok := name.(string); ok {
				types |= typeNamed(name)
			}
		}
	default:
		values, _ := node["enum"].([]any)
		if value, ok := node["const"]; ok {
			values = append(values, value)
		}
		for _, value := range values {
			types |= typeOf(value)
		}
	}
	return types
}

func typeNamed(name string) typeSet {
	switch name {
	case "string":
		return typeString
	case "number", "integer":
		return typeNumber
	case "boolean":
		return typeBoolean
	case "array":
		return typeArray
	case "object":
		return typeObject
	default: // null is the empty cell
		return 0
	}
}

func typeOf(value any) typeSet {
	switch value.(type) {
	case string:
		return typeString
	case json.Number:
		return typeNumber
	case bool:
		return typeBoolean
	case []any:
		return typeArray
	case map[string]any:
		return typeObject
	default:
		return 0
	}
}

// convert converts the text of a cell into a value of one of the types. Numbers keep
// their exact digits. If no type fits, the value is the text, and the reason says why. The
// reason never repeats the text.
func convert(cell string, types typeSet) (value any, reason string) {
	text := unescape(cell)
	if !utf8.ValidString(text) {
		return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", ""), "must be valid text in the encoding of the file"
	}
	if strings.IndexByte(text, 0) >= 0 {
		return strings.ReplaceAll(text, "\x00", ""), "must not contain NUL characters"
	}
	if types == 0 || types == typeString {
		return text, ""
	}
	trimmed := strings.TrimSpace(text)
	if types.has(typeNumber) && isNumber(trimmed) {
		switch {
		case exactjson.NumberFits(trimmed):
			return json.Number(trimmed), ""
		case !types.has(typeString):
			return text, "has too many digits"
		}
	}
	if types.has(typeBoolean) {
		if is := strings.EqualFold(trimmed, "true"); is || strings.EqualFold(trimmed, "false") {
			return is, ""
		}
	}
	if types.has(typeArray | typeObject) {
		if value, err := exactjson.Decode([]byte(trimmed)); err == nil && types.has(typeOf(value)&(typeArray|typeObject)) {
			return value, ""
		}
	}
	if types.has(typeString) {
		return text, ""
	}
	return text, types.reason()
}

// isNumber reports whether the text is a JSON number (RFC 8259, section 6).
func isNumber(text string) bool {
	text = strings.TrimPrefix(text, "-")
	rest := trimDigits(text)
	whole := len(text) - len(rest)
	if whole == 0 || whole > 1 && text[0] == '0' {
		return false
	}
	if fraction, ok := strings.CutPrefix(rest, "."); ok {
		if rest = trimDigits(fraction); len(rest) == len(fraction) {
			return false
		}
	}
	if rest != "" && (rest[0] == 'e' || rest[0] == 'E') {
		exponent := rest[1:]
		if exponent != "" && (exponent[0] == '+' || exponent[0] == '-') {
			exponent = exponent[1:]
		}
		if rest = trimDigits(exponent); len(rest) == len(exponent) {
			return false
		}
	}
	return rest == ""
}

func trimDigits(text string) string {
	i := 0
	for i < len(text) && text[i] >= '0' && text[i] <= '9' {
		i++
	}
	return text[i:]
}
