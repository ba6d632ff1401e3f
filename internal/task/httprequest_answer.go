package task

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/text/encoding/htmlindex"

	"tranche/internal/egress"
	"tranche/internal/exactjson"
	"tranche/internal/workflow"
)

// retryAfterMax bounds the Retry-After of a service. An execution that waits longer
// reaches its time limit first.
const retryAfterMax = workflow.TimeoutAsyncMax

// retryAfter reads a Retry-After header, seconds or a date (RFC 9110, section
// 10.2.3). A date is taken relative to the answer's own Date, so that the two
// clocks need not agree, or to at if there is none.
func retryAfter(header http.Header, at time.Time) time.Duration {
	value := strings.TrimSpace(header.Get(headerRetryAfter))
	if seconds, err := strconv.ParseUint(value, 10, 32); err == nil {
		return min(time.Duration(seconds)*time.Second, retryAfterMax)
	}
	until, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	if now, err := http.ParseTime(header.Get("Date")); err == nil {
		at = now
	}
	return max(0, min(until.Sub(at), retryAfterMax))
}

// readAnswer makes the task's output {status, headers, body}. Names of headers
// are in lower case, several values of one are joined by ", ". The body is
// JSON where the content type says so, else text; one that is neither is
// base64 text, and bodyEncoding says so. No body is null.
func readAnswer(answer *egress.Response) (any, error) {
	headers := make(map[string]any, len(answer.Header))
	for name, values := range answer.Header {
		headers[strings.ToLower(name)] = strings.ToValidUTF8(strings.Join(values, ", "), "\uFFFD")
	}
	output := map[string]any{
		"status":  json.Number(strconv.Itoa(answer.Status)),
		"headers": headers,
		"body":    nil,
	}
	if len(answer.Body) == 0 {
		return output, nil
	}
	mediaType, parameters, err := mime.ParseMediaType(answer.Header.Get(headerContentType))
	if err != nil {
		mediaType, parameters = "", nil
	}
	if mediaType == "application/json" || strings.HasSuffix(mediaType, "+json") || mediaType == "text/json" {
		body, err := exactjson.Decode(answer.Body)
		if err != nil {
			return nil, errNotJSON
		}
		output["body"] = body
		return output, nil
	}
	if text, ok := decodeText(answer.Body, mediaType, parameters["charset"]); ok {
		output["body"] = text
		return output, nil
	}
	output["body"] = base64.StdEncoding.EncodeToString(answer.Body)
	output["bodyEncoding"] = "base64"
	return output, nil
}

var errNotJSON = errors.New("the response body is not JSON, although its content type says so")

// decodeText returns the text of a body. A text with a NUL character is refused.
func decodeText(body []byte, mediaType, charset string) (string, bool) {
	if charset != "" && strings.HasPrefix(mediaType, "text/") {
		if encoding, err := htmlindex.Get(charset); err == nil {
			if decoded, err := encoding.NewDecoder().Bytes(body); err == nil {
				body = decoded
			}
		}
	}
	text := string(body)
	return text, utf8.ValidString(text) && strings.IndexByte(text, 0) < 0
}

// statusSet is the statuses that count as success, as ranges.
type statusSet []statusRange

type statusRange struct{ least, most int }

func (s statusSet) has(status int) bool {
	for _, r := range s {
		if status >= r.least && status <= r.most {
			return true
		}
	}
	return false
}

var errStatusSet = errors.New(`must be a status from 100 to 599, a text of statuses and ranges ("200-299,404"), or an array of these`)

// readSuccessStatus reads successStatus: a number, a comma list of numbers and
// ranges in a text, or an array of both.
func readSuccessStatus(c *workflow.ConfigReader) statusSet {
	v := c.Value("successStatus")
	if v == nil {
		return statusSet{{200, 299}}
	}
	items, isArray := v.([]any)
	if !isArray {
		items = []any{v}
	}
	var set statusSet
	for i, item := range items {
		ranges, err := parseStatuses(item)
		if err != nil {
			at := "successStatus"
			if isArray {
				at = fmt.Sprintf("successStatus[%d]", i)
			}
			c.Fault(at, "%s", err)
			continue
		}
		set = append(set, ranges...)
	}
	if isArray && len(items) == 0 {
		c.Fault("successStatus", "must name at least one status")
	}
	return set
}

func parseStatuses(v any) (statusSet, error) {
	var text string
	switch v := v.(type) {
	case json.Number:
		if status, isInteger := exactjson.Integer(v); isInteger {
			text = strconv.FormatInt(status, 10)
		}
	case string:
		text = v
	}
	var set statusSet
	for item := range strings.SplitSeq(text, ",") {
		least, most, isRange := strings.Cut(item, "-")
		if !isRange {
			most = least
		}
		low, lowErr := strconv.Atoi(strings.TrimSpace(least))
		high, highErr := strconv.Atoi(strings.TrimSpace(most))
		if lowErr != nil || highErr != nil || low < 100 || high > 599 || low > high {
			return nil, errStatusSet
		}
		set = append(set, statusRange{low, high})
	}
	return set, nil
}
