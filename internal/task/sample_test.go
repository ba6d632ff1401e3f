package task_test

import (
	"context"
	"encoding/csv"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"tranche/internal/egress"
	"tranche/internal/engine"
	"tranche/internal/exactjson"
	"tranche/internal/expression"
	"tranche/internal/task"
	"tranche/internal/workflow"
	"tranche/testdata"
)

// samplePlan compiles a workflow of testdata with the bureau at an address.
func samplePlan(t *testing.T, file, bureauURL string) *workflow.Plan {
	t.Helper()
	text, err := testdata.Workflows.ReadFile(path.Join("workflows", file))
	require.NoError(t, err)
	return planOf(t, strings.ReplaceAll(string(text), testdata.BureauURL, bureauURL), task.Ports{FindAuthorization: consented})
}

// planOf compiles a definition without faults, whose requests may go to this machine.
func planOf(t *testing.T, text string, ports task.Ports) *workflow.Plan {
	t.Helper()
	value, err := exactjson.Decode([]byte(text))
	require.NoError(t, err)
	body, ok := value.(map[string]any)
	require.True(t, ok)
	open, err := egress.ParseAllow("127.0.0.0/8")
	require.NoError(t, err)
	ports.HTTP = egress.New(open)
	types := task.Types(ports)
	definition, details := workflow.Parse(body["inputSchema"], body["tasks"], body["edges"], types)
	require.Empty(t, details)
	plan, err := workflow.Compile(definition, types)
	require.NoError(t, err)
	require.Empty(t, plan.Warnings)
	return plan
}

// consented knows the consent of the sample's borrower alone.
func consented(_ context.Context, q task.AuthorizationQuery) (task.Authorization, bool, error) {
	signed := task.AuthorizationQuery{Key: "credit-report", IdentityKey: "borrowerId", IdentityValue: "B-10002000"}
	return task.Authorization{}, q == signed, nil
}

// sampleInput is the application of testdata with some members replaced.
func sampleInput(t *testing.T, replacements ...string) map[string]any {
	t.Helper()
	text := strings.NewReplacer(replacements...).Replace(string(testdata.Application))
	value, err := exactjson.Decode([]byte(text))
	require.NoError(t, err)
	input, ok := value.(map[string]any)
	require.True(t, ok)
	return input
}

// keepNothing is the checkpoint of a test that is not killed.
func keepNothing(context.Context, *engine.State) error { return nil }

// judge runs a plan to its end.
func judge(t *testing.T, plan *workflow.Plan, input map[string]any) *engine.Outcome {
	t.Helper()
	input, details := plan.CheckInput(input)
	require.Empty(t, details)
	runner := &engine.Runner{Clock: time.Now, Log: slog.New(slog.DiscardHandler)}
	run := &engine.Run{
		Plan: plan, State: engine.NewState(plan, "01a1fd0c-ad07-7022-ada6-e144ef73624f"), Input: input,
		Execution: &expression.Execution{ID: "01a1fd0c-ad07-7022-ada6-e144ef73624f"},
	}
	verdict, err := runner.Drive(t.Context(), run, keepNothing)
	require.NoError(t, err)
	require.NotNil(t, verdict.Outcome)
	return verdict.Outcome
}

func requireJSON(t *testing.T, want string, got any) {
	t.Helper()
	text, err := exactjson.Encode(got)
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(want, string(text)))
}

func TestSamplePreQualification(t *testing.T) {
	t.Parallel()
	plan := samplePlan(t, "pre-qualification.json", testdata.BureauURL)
	require.False(t, plan.Effects)
	require.Equal(t, workflow.ModeSync, plan.Mode)
	for name, c := range map[string]struct {
		replacements []string
		want         string
	}{
		"prime": {
			nil,
			`{"applicationId":"LA-2026-900001","debtToIncome":0.1584,"decision":"approve","monthlyInstalment":460.29,` +
				`"offer":{"annualRate":0.0699,"maxAmount":48750.24},"reason":"prime"}`,
		},
		"standard": {
			[]string{`748`, `690`},
			`{"applicationId":"LA-2026-900001","debtToIncome":0.1584,"decision":"approve","monthlyInstalment":460.29,` +
				`"offer":{"annualRate":0.0899,"maxAmount":32500.16},"reason":"standard"}`,
		},
		"score too low": {
			[]string{`748`, `579`},
			`{"applicationId":"LA-2026-900001","debtToIncome":0.1584,"decision":"decline","monthlyInstalment":460.29,` +
				`"offer":null,"reason":"score below 580"}`,
		},
		"too much debt": {
			[]string{`612.35`, `2586.61`},
			`{"applicationId":"LA-2026-900001","debtToIncome":0.45,"decision":"refer","monthlyInstalment":460.29,` +
				`"offer":{"annualRate":0.1199,"maxAmount":20312.6},"reason":"needs a person to look at it"}`,
		},
		"a cent more": {
			[]string{`612.35`, `2587.00`},
			`{"applicationId":"LA-2026-900001","debtToIncome":0.4501,"decision":"decline","monthlyInstalment":460.29,` +
				`"offer":null,"reason":"debt above 45 % of income"}`,
		},
		"no income": {
			[]string{`"employed"`, `"unemployed"`},
			`{"applicationId":"LA-2026-900001","debtToIncome":0.1584,"decision":"refer","monthlyInstalment":460.29,` +
				`"offer":null,"reason":"no regular income"}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			outcome := judge(t, plan, sampleInput(t, c.replacements...))
			require.Equal(t, engine.StatusCompleted, outcome.Status, outcome.ErrorMessage)
			requireJSON(t, c.want, outcome.Output)
		})
	}
}

func TestSampleReScoring(t *testing.T) {
	t.Parallel()
	plan := samplePlan(t, "re-scoring.json", testdata.BureauURL)
	require.False(t, plan.Effects)
	outcome := judge(t, plan, sampleInput(t))
	requireJSON(t, `{"applicationId":"LA-2026-900001","band":"low","expectedLoss":222,"points":260}`, outcome.Output)
	outcome = judge(t, plan, sampleInput(t, `748`, `590`, `612.35`, `3000.00`, `"employed"`, `"unemployed"`))
	requireJSON(t, `{"applicationId":"LA-2026-900001","band":"high","expectedLoss":2497.5,"points":-35}`, outcome.Output)
}

func TestSampleUnderwriting(t *testing.T) {
	t.Parallel()
	good := `{"score":752,"delinquencies":0,"monthlyObligations":845.10}`
	for name, c := range map[string]struct {
		report, fraud string // empty: the bureau answers 500
		status        engine.Status
		sourceFailed  bool
		want          string
	}{
		"approved": {
			good, `{"level":"low","risk":0.0100}`, engine.StatusCompleted, false,
			`{"annualRate":0.0649,"applicationId":"LA-2026-900001","bureauScore":752,"debtToIncome":0.1928,"decision":"approve","grade":"A","monthlyInstalment":438.64}`,
		},
		"referred without a screening": {
			good, "", engine.StatusCompleted, true,
			`{"applicationId":"LA-2026-900001","bureauScore":752,"debtToIncome":0.1928,"decision":"refer","grade":"A"}`,
		},
		"declined as a fraud": {
			good, `{"level":"high","risk":0.4000}`, engine.StatusCompleted, false,
			`{"applicationId":"LA-2026-900001","bureauScore":752,"debtToIncome":0.1928,"decision":"decline"}`,
		},
		"no report": {"", `{"level":"low","risk":0.0100}`, engine.StatusFailed, false, `{}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answers := map[string]string{"/v1/credit-reports": c.report, "/v1/fraud-scores/B-10002000": c.fraud}
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				if answers[r.URL.Path] == "" {
					w.WriteHeader(http.StatusInternalServerError)
				}
				fmt.Fprint(w, answers[r.URL.Path])
			}))
			defer server.Close()
			plan := samplePlan(t, "underwriting.json", server.URL)
			require.True(t, plan.Effects)
			outcome := judge(t, plan, sampleInput(t))
			require.Equal(t, c.status, outcome.Status, outcome.ErrorMessage)
			require.Equal(t, c.sourceFailed, outcome.SourceFailed)
			requireJSON(t, c.want, outcome.Output)
		})
	}
}

// TestSampleUnderwritingWithoutConsent asks the bureau nothing about a borrower
// who has not consented, unless the batch says that its consents are on file.
func TestSampleUnderwritingWithoutConsent(t *testing.T) {
	t.Parallel()
	asked := make(chan string, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.URL.Path
		w.WriteHeader(http.StatusNotFound)
	}))
	defer server.Close()
	plan := samplePlan(t, "underwriting.json", server.URL)
	outcome := judge(t, plan, sampleInput(t, "B-10002000", "B-1"))
	require.Equal(t, engine.StatusFailed, outcome.Status)
	require.Equal(t, http.StatusUnprocessableEntity, outcome.StatusCode)
	require.Empty(t, asked)

	input, details := plan.CheckInput(sampleInput(t, "B-10002000", "B-1"))
	require.Empty(t, details)
	run := &engine.Run{
		Plan: plan, State: engine.NewState(plan, "01a1fd0c-ad07-7022-ada6-e144ef73624f"), Input: input,
		Custom: map[string]any{"consentsOnFile": true},
	}
	_, err := (&engine.Runner{Clock: time.Now, Log: slog.New(slog.DiscardHandler)}).Drive(t.Context(), run, keepNothing)
	require.NoError(t, err)
	require.NotEmpty(t, asked)
}

func TestSampleInputsAreRefused(t *testing.T) {
	t.Parallel()
	plan := samplePlan(t, "pre-qualification.json", testdata.BureauURL)
	for field, replacements := range map[string][]string{
		"income.annual":        {`81250.40`, `"n/a"`},
		"income.monthlyDebt":   {`612.35`, `-1`},
		"loan.termMonths":      {`48`, `600`},
		"borrower.dateOfBirth": {`1988-04-12`, `1985-02-31`},
		"borrower.email":       {`ada.okafor@example.com`, `no address`},
		"borrowerId":           {`"borrowerId"`, `"borrower-id"`},
		"employment.status":    {`"employed"`, `"retierd"`},
		"score":                {`748`, `1200`},
	} {
		_, details := plan.CheckInput(sampleInput(t, replacements...))
		require.NotEmpty(t, details, field)
		fields := make([]string, len(details))
		for i, d := range details {
			fields[i] = d.Field
		}
		require.Contains(t, fields, field)
	}
}

func TestSampleApplications(t *testing.T) {
	t.Parallel()
	rows, err := csv.NewReader(strings.NewReader(string(testdata.Applications))).ReadAll()
	require.NoError(t, err)
	require.Len(t, rows, 2001)
	seen := map[string]bool{}
	for _, row := range rows[1:] {
		require.False(t, seen[row[0]], row[0])
		seen[row[0]] = true
	}
}
