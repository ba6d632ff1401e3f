package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"tranche/internal/apitest"
	"tranche/internal/exactjson"
	"tranche/internal/identity"
	"tranche/testdata"
)

// services is a target for the workflows of testdata/published. It answers each method and
// path in turn with the answers of the test, and repeats the last one. The default is 200
// with {}.
type services struct {
	*httptest.Server
	mu      sync.Mutex
	answers map[string][]string // "status body" by "METHOD /path?query"
	calls   []string
	bodies  map[string]chan map[string]any // bodies of POST requests by path
}

func newServices(t *testing.T, answers map[string][]string) *services {
	t.Helper()
	s := &services{answers: answers, bodies: map[string]chan map[string]any{}}
	for _, path := range []string{"/credit-checks", "/desk", "/mails"} {
		s.bodies[path] = make(chan map[string]any, 10)
	}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body map[string]any
		_ = json.NewDecoder(r.Body).Decode(&body)
		if bodies := s.bodies[r.URL.Path]; bodies != nil {
			bodies <- body
		}
		status, text := s.answer(r.Method + " " + r.URL.RequestURI())
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = w.Write([]byte(text))
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *services) answer(call string) (status int, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, call)
	left := s.answers[call]
	if len(left) == 0 {
		return http.StatusOK, "{}"
	}
	if len(left) > 1 {
		s.answers[call] = left[1:]
	}
	code, text, _ := strings.Cut(left[0], " ")
	_, _ = fmt.Sscan(code, &status)
	return status, text
}

// answerWaits posts bodies to the callback URLs of the workflow, in turn.
func (s *services) answerWaits(t *testing.T, anyone *apitest.Caller, bodies []string) {
	t.Helper()
	for _, body := range bodies {
		var asked map[string]any
		select {
		case asked = <-s.bodies["/credit-checks"]:
		case asked = <-s.bodies["/desk"]:
		case asked = <-s.bodies["/mails"]:
		case <-time.After(30 * time.Second):
			t.Fatal("nobody is asked")
		}
		address, _ := asked["answerTo"].(string)
		if address == "" {
			address, _ = asked["token"].(string)
		}
		anyone.Post(t, address, apitest.Raw(body)).Expect(http.StatusAccepted)
	}
}

// publishFixtures publishes workflows of testdata/published that call s. It replaces long
// timeouts by milliseconds if the test is about timeouts.
func publishFixtures(t *testing.T, c *apitest.Caller, s *services, isImpatient bool, names ...string) {
	t.Helper()
	for _, name := range names {
		text, err := testdata.Published.ReadFile(path.Join("published", name+".json"))
		require.NoError(t, err)
		replace := []string{testdata.ServicesURL, s.URL}
		if isImpatient {
			replace = append(replace, `"timeoutMs": 86400000`, `"timeoutMs": 20`, `"timeoutMs": 900000`, `"timeoutMs": 20`)
		}
		id := c.Post(t, "/v2/workflows", apitest.Raw(strings.NewReplacer(replace...).Replace(string(text)))).Expect(http.StatusCreated).Text("id")
		validation := c.Post(t, "/v2/workflows/"+id+"/validate", nil).Expect(http.StatusOK)
		require.Equal(t, []any{}, validation.Value("warnings"), name)
		c.Post(t, "/v2/workflows/"+id+"/publish", nil).Expect(http.StatusOK)
	}
}

// The published examples of other engines can be expressed: choices, parallel branches,
// maps, waits, retries, callbacks, nested workflows, compensation, loops and decisions by
// people.
func TestPublishedWorkflows(t *testing.T) {
	t.Parallel()
	service := apitest.Start(t)
	for name, test := range map[string]struct {
		workflows []string // the last one is executed
		input     string
		answers   map[string][]string
		impatient bool
		signals   []string // bodies for the callback URLs, in turn
		status    string   // isSuccess and statusCode of the result
		output    string
		message   string
		calls     []string // in order; nil means not checked
	}{
		"job poller": {
			workflows: []string{"job-poller"}, input: `{"jobName":"n","waitSeconds":0}`,
			answers: map[string][]string{"POST /jobs": {`200 {"id":"j1"}`}, "GET /jobs/j1": {`200 {"status":"RUNNING"}`, `200 {"status":"RUNNING"}`, `200 {"status":"SUCCEEDED","n":1.10}`}},
			status:  "true 200", output: `{"job":{"status":"SUCCEEDED","n":1.10}}`, calls: []string{"POST /jobs", "GET /jobs/j1", "GET /jobs/j1", "GET /jobs/j1"},
		},
		"job poller, failed": {
			workflows: []string{"job-poller"}, input: `{"jobName":"n","waitSeconds":0}`,
			answers: map[string][]string{"POST /jobs": {`200 {"id":"j1"}`}, "GET /jobs/j1": {`200 {"status":"FAILED"}`}},
			status:  "false 422", output: `{}`, message: "job j1 failed",
		},
		"applicant decision, adult": {
			workflows: []string{"start-application", "applicant-decision"}, input: `{"applicant":{"name":"Ann","age":22}}`,
			answers: map[string][]string{"POST /applications": {`200 {"id":"a1"}`}},
			status:  "true 200", output: `{"decision":"started","applicationId":"a1"}`, calls: []string{"POST /applications"},
		},
		"applicant decision, minor": {
			workflows: []string{"start-application", "applicant-decision"}, input: `{"applicant":{"name":"Ann","age":17,"email":"ann@example.com"}}`,
			status: "true 200", output: `{"decision":"rejected"}`, calls: []string{"POST /mails"},
		},
		"credit check": {
			workflows: []string{"start-application", "credit-check"}, input: `{"customer":{"id":"c1","name":"Ann"}}`,
			answers: map[string][]string{"POST /applications": {`200 {"id":"a1"}`}}, signals: []string{`{"decision":"Approved"}`},
			status: "true 200", output: `{"startApplication":{"applicationId":"a1"}}`, calls: []string{"POST /credit-checks", "POST /applications"},
		},
		"credit check, no answer": {
			workflows: []string{"start-application", "credit-check"}, input: `{"customer":{"id":"c1","name":"Ann"}}`, impatient: true,
			status: "false 422", output: `{}`, message: "no decision came in time", calls: []string{"POST /credit-checks"},
		},
		"credit application, by rules": {
			workflows: []string{"credit-application"}, input: `{"applicant":{"id":"c1"},"requestedLimit":10000}`,
			answers: map[string][]string{"GET /bureaus/north/score": {`200 {"score":700.10}`}, "GET /bureaus/south/score": {`200 {"score":650}`}, "GET /bureaus/west/score": {`503`, `200 {"score":1}`}},
			status:  "true 200", output: `{"approved":true,"by":"rules","scores":[700.10,650,1]}`,
		},
		"credit application, by a person": {
			workflows: []string{"credit-application"}, input: `{"applicant":{"id":"c1"},"requestedLimit":10000.01,"bureaus":["north"]}`,
			answers: map[string][]string{"GET /bureaus/north/score": {`200 {"score":700.10}`}}, signals: []string{`{"approved":false}`},
			status: "true 200", output: `{"approved":false,"by":"underwriter"}`,
		},
		"travel saga, booked": {
			workflows: []string{"travel-saga"}, input: `{"tripId":"t1"}`,
			answers: map[string][]string{"POST /flights": {`200 {"id":"f1"}`}, "POST /hotels": {`200 {"id":"h1"}`}},
			status:  "true 200", output: `{"flight":"f1","hotel":"h1"}`, calls: []string{"POST /flights", "POST /hotels", "POST /payments"},
		},
		"travel saga, not paid": {
			workflows: []string{"travel-saga"}, input: `{"tripId":"t1"}`,
			answers: map[string][]string{"POST /flights": {`200 {"id":"f1"}`}, "POST /hotels": {`200 {"id":"h1"}`}, "POST /payments": {`402`}, "DELETE /hotels/h1": {`503`, `200 {}`}},
			status:  "false 409", output: `{}`, message: "the trip was not booked, status 402",
			calls: []string{"POST /flights", "POST /hotels", "POST /payments", "DELETE /hotels/h1", "DELETE /hotels/h1", "DELETE /flights/f1"},
		},
		"travel saga, no hotel": {
			workflows: []string{"travel-saga"}, input: `{"tripId":"t1"}`,
			answers: map[string][]string{"POST /flights": {`200 {"id":"f1"}`}, "POST /hotels": {`409`}},
			status:  "false 409", output: `{}`, message: "the trip was not booked, status 409", calls: []string{"POST /flights", "POST /hotels", "DELETE /flights/f1"},
		},
		"paged download": {
			workflows: []string{"paged-download"}, input: `{}`,
			answers: map[string][]string{"GET /records": {`200 {"records":[{"amount":1.10}],"next":"a/b"}`}, "GET /records?cursor=a/b": {`200 {"records":[{"amount":2.20},{"amount":3}],"next":null}`}},
			status:  "true 200", output: `{"records":[{"amount":1.10},{"amount":2.20},{"amount":3}],"total":6.3}`,
		},
		"notify": {
			workflows: []string{"notify"}, input: `{"text":"hello","channels":[{"kind":"email","to":"a"},{"kind":"sms","to":"b"},{"kind":"fax"},{"kind":"sms","to":"c","enabled":false}]}`,
			status: "true 200", output: `{"sent":2,"failed":["fork[2].other: no channel fax"]}`,
		},
		"lead scoring": {
			workflows: []string{"lead-scoring"}, input: `{"email":"ann@big.test"}`,
			answers: map[string][]string{"GET /companies?domain=big.test": {`200 {"employees":500}`}, "PUT /crm/ann@big.test": {`200 {"stored":true}`}},
			status:  "true 200", output: `{"stored":true}`, calls: []string{"GET /companies?domain=big.test", "POST /chat", "PUT /crm/ann@big.test"},
		},
		"lead scoring, nothing known": {
			workflows: []string{"lead-scoring"}, input: `{"email":"ann@small.example"}`,
			answers: map[string][]string{"GET /companies?domain=small.example": {`404`}},
			status:  "true 200", output: `{}`, calls: []string{"GET /companies?domain=small.example", "PUT /crm/ann@small.example"},
		},
		"shipping fees": {
			workflows: []string{"shipping-fees"}, input: `{"cart":{"weight":12,"total":999.95,"flags":["fragile"]},"customer":{"country":"US"}}`,
			status: "true 200", output: `{"needsQuote":false,"shipping":52.75}`,
		},
		"shipping fees, abroad": {
			workflows: []string{"shipping-fees"}, input: `{"cart":{"weight":120,"total":1000},"customer":{"country":"NL","tier":"gold"}}`,
			status: "true 200", output: `{"needsQuote":true,"estimate":280}`,
		},
		"order provisioning": {
			workflows: []string{"order-provisioning"}, input: `{"item":"x"}`, answers: map[string][]string{"POST /orders": {`503`, `502`, `200 {"id":"o1"}`}},
			status: "true 200", output: `{"outcome":"applied","order":"o1"}`, calls: []string{"POST /orders", "POST /orders", "POST /orders"},
		},
		"order provisioning, missing item": {
			workflows: []string{"order-provisioning"}, input: `{}`, answers: map[string][]string{"POST /orders": {`404`}},
			status: "true 200", output: `{"outcome":"missing item"}`, calls: []string{"POST /orders"},
		},
		"order provisioning, another error": {
			workflows: []string{"order-provisioning"}, input: `{}`, answers: map[string][]string{"POST /orders": {`400`}},
			status: "false 502", output: `{}`, message: "EXTERNAL_SERVICE_ERROR 400", calls: []string{"POST /orders"},
		},
		"human approval": {
			workflows: []string{"human-approval"}, input: `{"document":"d1"}`, signals: []string{`{"approved":true}`},
			status: "true 200", output: `{"decision":"approved"}`, calls: []string{"POST /mails"},
		},
		"human approval, nobody answers": {
			workflows: []string{"human-approval"}, input: `{"document":"d1"}`, impatient: true,
			status: "true 200", output: `{"decision":"escalated"}`, calls: []string{"POST /mails", "POST /mails", "POST /mails", "POST /escalations"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, c := newServices(t, test.answers), service.Tenant(t).As(t, identity.RoleAdmin)
			publishFixtures(t, c, s, test.impatient, test.workflows...)
			alias := test.workflows[len(test.workflows)-1]
			answer := c.Post(t, "/v1/workflows/"+alias+"/v1/execute", apitest.Raw(test.input))
			if answer.Status == http.StatusAccepted {
				s.answerWaits(t, service.Anonymous(), test.signals)
				id := answer.Text("executionId")
				require.Eventually(t, func() bool {
					answer = c.Get(t, "/v1/executions/"+id+"/output")
					return answer.Status == http.StatusOK
				}, 30*time.Second, 20*time.Millisecond)
			}
			require.Equal(t, test.status, fmt.Sprint(answer.Value("isSuccess"), " ", answer.Text("statusCode")), string(answer.Body))
			output, err := exactjson.Decode([]byte(test.output))
			require.NoError(t, err)
			require.Empty(t, cmp.Diff(output, answer.Value("output")))
			if test.message != "" {
				require.Equal(t, test.message, answer.Text("errorMessage"))
			}
			if test.calls != nil {
				require.Equal(t, test.calls, s.calls)
			}
		})
	}
}
