package expression

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"

	"tranche/internal/exactjson"
)

// decodedGrowth is how many times the bytes of a JSON text its values may take.
const decodedGrowth = 8

func codeFunction(name string) function {
	switch name {
	case "toJson", "toJSON":
		return function{1, 1, func(c *call) (any, error) { return boxedText(c.run.write(c.args[0])) }}
	case "fromJson", "fromJSON":
		return function{1, 1, fromJSON}
	case "toBase64":
		return function{1, 1, toBase64}
	case "fromBase64":
		return function{1, 1, fromBase64}
	case "sha256":
		return function{1, 1, hash}
	case "uuid":
		return function{0, 1, newUUID}
	case "callbackUrl":
		return function{1, 1, callbackURL}
	default:
		return function{}
	}
}

// coded reads the text that is to be hashed, encoded or decoded.
func (c *call) coded(growth int) (string, error) {
	text, err := c.text(0)
	if err != nil {
		return "", err
	}
	if err := c.run.step(len(text) / hashBytesPerStep); err != nil {
		return "", err
	}
	return text, c.run.grow(growth * len(text))
}

func fromJSON(c *call) (any, error) {
	text, err := c.coded(decodedGrowth)
	if err != nil {
		return nil, err
	}
	v, err := exactjson.Decode([]byte(text))
	if err != nil {
		return nil, problemf("fromJson cannot read the text as JSON: %s", err.Error())
	}
	return v, nil
}

func toBase64(c *call) (any, error) {
	text, err := c.coded(2)
	if err != nil {
		return nil, err
	}
	return base64.StdEncoding.EncodeToString([]byte(text)), nil
}

// fromBase64 reads the standard and the URL alphabet, padded or not.
func fromBase64(c *call) (any, error) {
	text, err := c.coded(2)
	if err != nil {
		return nil, err
	}
	text = strings.NewReplacer("-", "+", "_", "/").Replace(strings.TrimRight(text, "="))
	decoded, err := base64.RawStdEncoding.DecodeString(text)
	if err != nil {
		return nil, problem("fromBase64 needs text in base64")
	}
	if result := string(decoded); utf8.ValidString(result) && strings.IndexByte(result, 0) < 0 {
		return result, nil
	}
	return nil, problem("fromBase64 needs base64 of UTF-8 text, but the decoded bytes are not UTF-8")
}

// hash is SHA-256 of the text in UTF-8, in lower-case hexadecimal digits.
func hash(c *call) (any, error) {
	text, err := c.coded(0)
	if err != nil {
		return nil, err
	}
	digest := sha256.Sum256([]byte(text))
	return hex.EncodeToString(digest[:]), nil
}

// newUUID derives a version 5 UUID (RFC 9562) from the execution, the path of
// the task and a name, so that it is the same when the task is repeated.
func newUUID(c *call) (any, error) {
	name := ""
	if len(c.args) > 0 {
		var err error
		if name, err = c.coded(1); err != nil {
			return nil, err
		}
	}
	env := c.run.env
	seed := "tranche:execution/" + env.ExecutionID + "/" + env.Path + "#" + name
	return uuid.NewSHA1(uuid.NameSpaceURL, []byte(seed)).String(), nil
}

func callbackURL(c *call) (any, error) {
	task, err := c.text(0)
	if err != nil {
		return nil, err
	}
	if c.run.env.CallbackURL == nil {
		return nil, problem("callbackUrl has no address to give here")
	}
	address, err := c.run.env.CallbackURL(task)
	if err != nil {
		return nil, problem("callbackUrl has no address for that task")
	}
	return address, c.run.grow(len(address))
}
