package task_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"tranche/internal/engine"
	"tranche/internal/exactjson"
	"tranche/internal/task"
	"tranche/internal/workflow"
	"tranche/testdata"
)

// guidePlan compiles a step of the guide with its services at an address.
func guidePlan(t *testing.T, file, address string) *workflow.Plan {
	t.Helper()
	text, err := testdata.Guide.ReadFile("guide/" + file)
	require.NoError(t, err)
	services := strings.NewReplacer("https://bureau.example", address, "https://desk.example", address)
	return planOf(t, services.Replace(string(text)), task.Ports{RevealSecret: func(context.Context, uuid.UUID, string) (task.Secret, bool, error) {
		return task.Secret{Value: "the bureau's key", Bound: func(*url.URL) bool { return true }}, true, nil
	}})
}

func TestGuide(t *testing.T) {
	t.Parallel()
	answerTo := ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/reviews" {
			body, _ := io.ReadAll(r.Body)
			answerTo = string(body)
			return
		}
		if r.URL.Path == "/v1/south/reports/B-1" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"score":640}`)
	}))
	defer server.Close()
	for _, step := range []struct{ file, input, want string }{
		{"1-ratio.json", `{"income":4000,"debt":612.35,"amount":12000}`, `{"dti":0.2485,"installment":381.54}`},
		{"2-rules.json", `{"income":4000,"debt":612.35,"amount":12000,"score":700}`, `{"decision":"approve","installment":381.54}`},
		{"3-reports.json", `{"income":4000,"debt":612.35,"amount":12000,"borrowerId":"B-1"}`, `{"decision":"refer","installment":381.54}`},
		{"4-approval.json", `{"income":4000,"debt":612.35,"amount":12000,"borrowerId":"B-1"}`, `{"decision":"approve","installment":381.54}`},
	} {
		plan := guidePlan(t, step.file, server.URL)
		value, err := exactjson.Decode([]byte(step.input))
		require.NoError(t, err)
		object, _ := value.(map[string]any)
		input, details := plan.CheckInput(object)
		require.Empty(t, details)
		run := &engine.Run{
			Plan: plan, State: engine.NewState(plan, "e1"), Input: input,
			CallbackURL: func(path string) (string, error) { return "https://tranche.example/" + path, nil },
			Signals: func(context.Context) (map[string]any, error) {
				return map[string]any{"review": map[string]any{"decision": "approve"}}, nil
			},
		}
		runner := &engine.Runner{Clock: time.Now, Log: slog.New(slog.DiscardHandler)}
		verdict, err := runner.Drive(t.Context(), run, keepNothing)
		require.NoError(t, err)
		require.Equal(t, engine.StatusCompleted, verdict.Outcome.Status, "%s: %s", step.file, verdict.Outcome.ErrorMessage)
		requireJSON(t, step.want, verdict.Outcome.Output)
	}
	require.Contains(t, answerTo, "https://tranche.example/review")
}
