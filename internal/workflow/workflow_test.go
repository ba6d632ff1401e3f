package workflow_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tranche/internal/exactjson"
	"tranche/internal/fault"
	"tranche/internal/workflow"
)

func TestParse(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		text string
		want []string
	}{
		"nothing":          {`{}`, nil},
		"incomplete draft": {`{"tasks":[{"id":"a","type":"no-such-type","config":{"x":1}},{"id":"a","type":"step"}],"edges":[{"source":"x","target":"y"}]}`, nil},
		"wrong types": {`{"inputSchema":[],"tasks":{},"edges":"x"}`, []string{
			"tasks: must be an array INVALID_FIELD_TYPE",
			"edges: must be an array INVALID_FIELD_TYPE",
			"inputSchema: must be an object INVALID_FIELD_TYPE",
		}},
		"task members": {`{"tasks":[1,{"id":5,"type":"step"},{"type":"step","id":"1a","extra":1},{"id":"b"},{"id":"c","type":"step","name":1,"config":[]}]}`, []string{
			"tasks[0]: must be an object INVALID_FIELD_TYPE",
			"tasks[1].id: must be a text INVALID_FIELD_TYPE",
			"tasks[2].id: must match ^[A-Za-z_][A-Za-z0-9_-]{0,63}$",
			"tasks[2].extra: is not a known property; remove it or correct its name",
			"tasks[3].type: is required MISSING_REQUIRED_FIELD",
			"tasks[4].name: must be a text INVALID_FIELD_TYPE",
			"tasks[4].config: must be an object INVALID_FIELD_TYPE",
		}},
		"a config after what is no task": {`{"tasks":[1,{"id":"a","type":"step","config":{"url":3}}]}`, []string{
			"tasks[0]: must be an object INVALID_FIELD_TYPE",
			"tasks[1].config.url: must be a text INVALID_FIELD_TYPE",
		}},
		"edge members": {`{"edges":[{"source":"start"},{"source":1,"target":"a","when":"x"},null]}`, []string{
			"edges[0].target: is required MISSING_REQUIRED_FIELD",
			"edges[1].source: must be a text INVALID_FIELD_TYPE",
			"edges[1].when: is not a known property; remove it or correct its name",
			"edges[2]: must be an object INVALID_FIELD_TYPE",
		}},
		"types within configs": {`{"tasks":[{"id":"a","type":"step","config":{
				"method":1,"flag":"x","limit":"5","url":3,"parts":[{"expr":false},7],"auth":[],"when":true,"timeoutMs":"1","retry":[],"onError":3}}]}`, []string{
			"tasks[0].config.method: must be a text INVALID_FIELD_TYPE",
			"tasks[0].config.flag: must be true or false INVALID_FIELD_TYPE",
			"tasks[0].config.limit: must be an integer INVALID_FIELD_TYPE",
			"tasks[0].config.url: must be a text INVALID_FIELD_TYPE",
			"tasks[0].config.parts[1]: must be an object INVALID_FIELD_TYPE",
			"tasks[0].config.parts[0].expr: must be a text that is an expression INVALID_FIELD_TYPE",
			"tasks[0].config.auth: must be an object INVALID_FIELD_TYPE",
			"tasks[0].config.when: must be a text that is an expression INVALID_FIELD_TYPE",
			"tasks[0].config.timeoutMs: must be an integer INVALID_FIELD_TYPE",
			"tasks[0].config.retry: must be an object INVALID_FIELD_TYPE",
			"tasks[0].config.onError: must be fail, continue or an object with goto INVALID_FIELD_TYPE",
		}},
		"types within nested graphs": {`{"tasks":[{"id":"n","type":"nest","config":{"tasks":[{"id":"a","type":"step","config":{"url":1}}]}}]}`, []string{
			"tasks[0].config.tasks[0].config.url: must be a text INVALID_FIELD_TYPE",
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, details := parse(t, test.text)
			require.ElementsMatch(t, test.want, lines(details))
		})
	}
}

func TestParseLimits(t *testing.T) {
	t.Parallel()
	tasks := make([]any, workflow.TasksMax+1)
	for i := range tasks {
		tasks[i] = map[string]any{"id": "a", "type": "step"}
	}
	_, details := workflow.Parse(nil, tasks, nil, types())
	require.Equal(t, []string{"tasks: must have at most 500 items"}, lines(details))
	_, details = workflow.Parse(nil, []any{map[string]any{"id": strings.Repeat("a", 65), "type": "step", "name": strings.Repeat("é", 101)}}, nil, types())
	require.Len(t, details, 2)
}

func TestCompileFaults(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		text string
		want []string
	}{
		"no task": {`{}`, []string{"tasks: must have at least one task"}},
		"edges that lead nowhere": {`{"tasks":[{"id":"a","type":"step"}],"edges":[
				{"source":"start","target":"a"},{"source":"start","target":"a"},{"source":"a","target":"b"},{"source":"c","target":"a"},{"source":"a","target":"start"}]}`, []string{
			"edges[1]: repeats the edge edges[0]; remove one of them",
			"edges[2].target: must be the id of a task in this graph",
			"edges[3].source: must be the id of a task in this graph",
			"edges[4].target: must not be start, the reserved name for the start of a graph",
		}},
		"ids": {`{"tasks":[{"id":"a","type":"step"},{"id":"a","type":"step"},{"id":"start","type":"step"}],"edges":[{"source":"start","target":"a"}]}`, []string{
			"tasks[1].id: is already the id of tasks[0]",
			"tasks[2].id: must not be start, the reserved name for the start of a graph",
		}},
		"unreachable": {`{"tasks":[{"id":"a","type":"step"},{"id":"b","type":"step"},{"id":"c","type":"step"}],
				"edges":[{"source":"start","target":"a"},{"source":"b","target":"c"}]}`, []string{
			"tasks[1]: cannot be reached from start; add an edge that leads to it",
			"tasks[2]: cannot be reached from start; add an edge that leads to it",
		}},
		"no way in": {`{"tasks":[{"id":"a","type":"step"},{"id":"b","type":"step"}]}`, []string{
			"tasks[0]: cannot be reached from start; add an edge that leads to it",
			"tasks[1]: cannot be reached from start; add an edge that leads to it",
		}},
		"unknown type and members": {`{"tasks":[{"id":"a","type":"nothing","config":{"x":1,"when":"(("}}]}`, []string{
			"tasks[0].type: is not a known task type",
			"tasks[0].config.when: line 1, column 2: ",
		}},
		"config": {`{"tasks":[{"id":"a","type":"step","config":{
				"method":"FETCH","limit":11,"unknown":1,"parts":[{"name":null,"x":1}],"retry":{"maxAttempts":21,"factor":0.5,"retryOn":[503,"CODE",99,true],"often":1},"onError":"retry","timeoutMs":0}}]}`, []string{
			"tasks[0].config.method: must be one of GET, POST",
			"tasks[0].config.limit: must be an integer between 1 and 10",
			"tasks[0].config.unknown: is not a known property; remove it or correct its name",
			"tasks[0].config.parts[0].name: is required",
			"tasks[0].config.parts[0].x: is not a known property; remove it or correct its name",
			"tasks[0].config.retry.maxAttempts: must be an integer between 1 and 20",
			"tasks[0].config.retry.factor: must be a number between 1 and 10",
			"tasks[0].config.retry.retryOn[2]: must be an error code or a status from 100 to 599",
			"tasks[0].config.retry.retryOn[3]: must be an error code or a status from 100 to 599",
			"tasks[0].config.retry.often: is not a known property; remove it or correct its name",
			"tasks[0].config.onError: must be one of fail, continue",
			"tasks[0].config.timeoutMs: must be an integer between 1 and 2592000000",
		}},
		"expressions": {`{"tasks":[{"id":"a","type":"step","config":{
				"url":"{{ nothing.x }}","output":{"a":["{{ 1 + }}"]},"parts":[{"name":"x","expr":"item"}],"fields":{"x":"{{ $.y }}"},"cells":["$.y"],"when":"input.score >"}}]}`, []string{
			"tasks[0].config.url: line 1, column 4: ",
			"tasks[0].config.output.a[0]: line 1, column ",
			"tasks[0].config.parts[0].expr: line 1, column 1: ",
			"tasks[0].config.cells[0]: line 1, column ",
			"tasks[0].config.when: line 1, column ",
		}},
		"references": {`{"tasks":[
				{"id":"a","type":"step","config":{"url":"{{ tasks.b.output }}","when":"tasks.a.output == 1"}},
				{"id":"b","type":"step","config":{"url":"{{ tasks.a.output }}","output":["{{ tasks.nowhere.output }}"]}},
				{"id":"c","type":"step","config":{"parts":[{"name":"x","expr":"tasks[\"b\"].output"}]}}],
				"edges":[{"source":"start","target":"a"},{"source":"a","target":"b"},{"source":"a","target":"c"}]}`, []string{
			"tasks[0].config.url: refers to task b, which is not an ancestor of this task",
			"tasks[0].config.when: refers to task a, which is not an ancestor of this task",
			"tasks[1].config.output: refers to a task that does not exist",
			"tasks[2].config.parts[0].expr: refers to task b, which is not an ancestor of this task",
		}},
		"addresses of waits": {`{"tasks":[
				{"id":"a","type":"step","config":{"url":"{{ callbackUrl('w') }}{{ callbackUrl('a') }}","when":"callbackUrl(\"nowhere\") == input.x","output":["{{ callbackUrl(input.id) }}"]}},
				{"id":"n","type":"nest","config":{"tasks":[{"id":"x","type":"step","config":{"url":"{{ callbackUrl('w') + callbackUrl('v') }}"}},{"id":"v","type":"signal"}],
					"edges":[{"source":"start","target":"x"},{"source":"x","target":"v"}]}},
				{"id":"w","type":"signal","config":{"when":"callbackUrl('v') == ''"}}],
				"edges":[{"source":"start","target":"a"},{"source":"a","target":"n"},{"source":"n","target":"w"}]}`, []string{
			"tasks[0].config.url: uses callbackUrl with task a, which does not wait for a signal",
			"tasks[0].config.when: uses callbackUrl with a task that does not exist",
			"tasks[2].config.when: uses callbackUrl with task v, which is in another graph",
		}},
		"named edges": {`{"tasks":[
				{"id":"s","type":"switch","config":{"cases":[{"when":"true","goto":"a"},{"when":"true","goto":"nowhere"},{"when":"true","goto":"d"}],"default":"b","onError":{"goto":"s"}}},
				{"id":"a","type":"step"},{"id":"b","type":"step","config":{"onError":{}}},{"id":"c","type":"step","config":{"onError":{"goto":"d"}}},{"id":"d","type":"step"}],
				"edges":[{"source":"start","target":"s"},{"source":"s","target":"a"},{"source":"s","target":"b"},{"source":"s","target":"c"},{"source":"a","target":"d"}]}`, []string{
			"tasks[0].config.cases[1].goto: must be the id of a task in this graph",
			"tasks[0].config.cases[2].goto: must be a task that an edge from this task leads to",
			"tasks[0].config.onError.goto: must be a task that an edge from this task leads to",
			"edges[3]: must be the target of a case or of the default of its source task",
			"tasks[2].config.onError.goto: is required",
			"tasks[3].config.onError.goto: must be a task that an edge from this task leads to",
		}},
		"nested graphs": {`{"tasks":[{"id":"a","type":"step"},{"id":"n","type":"nest","config":{"tasks":[
				{"id":"x","type":"step","config":{"url":"{{ tasks.a.output }}{{ item.id }}{{ index }}"}},
				{"id":"y","type":"step","config":{"url":"{{ tasks.n.output }}{{ tasks.b.output }}"}},
				{"id":"a","type":"nothing"}],"edges":[{"source":"start","target":"x"},{"source":"x","target":"y"},{"source":"y","target":"z"}]}},
				{"id":"b","type":"nest","config":{}}],
				"edges":[{"source":"start","target":"a"},{"source":"a","target":"n"},{"source":"n","target":"b"}]}`, []string{
			"tasks[1].config.tasks[2].id: is already the id of tasks[0]",
			"tasks[1].config.tasks[2].type: is not a known task type",
			"tasks[1].config.edges[2].target: must be the id of a task in this graph",
			"tasks[1].config.tasks[1].config.url: refers to task b, which is not an ancestor of this task",
			"tasks[1].config.tasks[1].config.url: refers to task n, which is not an ancestor of this task",
			"tasks[2].config.tasks: is required",
			"tasks[2].config.tasks: must have at least one task",
		}},
		"input schema": {`{"inputSchema":{"type":"text","properties":{"a":{"minimum":"x"},"b":{"pattern":"("}}},"tasks":[{"id":"a","type":"step"}]}`, []string{
			"inputSchema.properties.a.minimum: must be of type number",
			"inputSchema.properties.b.pattern: must be a valid regex",
			"inputSchema.type: must match one of the alternatives of the schema (anyOf)",
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := compile(t, test.text)
			got := lines(faults(t, err).Details)
			require.Len(t, got, len(test.want), "%s", strings.Join(got, "\n"))
			for _, want := range test.want {
				require.True(t, containsPrefix(got, want), "%s\nnot in\n%s", want, strings.Join(got, "\n"))
			}
			require.Empty(t, faults(t, err).SubCode)
		})
	}
}

func containsPrefix(list []string, prefix string) bool {
	for _, line := range list {
		if strings.HasPrefix(line, prefix) {
			return true
		}
	}
	return false
}

func TestCompileCycle(t *testing.T) {
	t.Parallel()
	_, err := compile(t, `{"tasks":[{"id":"a","type":"step"},{"id":"b","type":"step"},{"id":"c","type":"no"},{"id":"d","type":"step"}],"edges":[
		{"source":"start","target":"a"},{"source":"a","target":"b"},{"source":"b","target":"c"},{"source":"c","target":"b"},{"source":"c","target":"d"},{"source":"d","target":"d"}]}`)
	f := faults(t, err)
	require.Equal(t, fault.CircularDependency, f.SubCode)
	require.Equal(t, "the tasks b → c → b form a cycle", f.Message)
	require.ElementsMatch(t, []string{
		"edges[3]: the tasks b → c → b form a cycle",
		"edges[5]: the tasks d → d form a cycle",
		"tasks[2].type: is not a known task type",
	}, lines(f.Details))
}

func TestCompilePlan(t *testing.T) {
	t.Parallel()
	plan, err := compile(t, `{"tasks":[
		{"id":"s","type":"switch","name":"Choose","config":{"cases":[{"when":"input.x > 1","goto":"a"},{"when":"true","goto":"b"}],"default":"b","onError":{"goto":"c"}}},
		{"id":"a","type":"call","config":{"source":"bureau","timeoutMs":1500,"retry":{"initialDelayMs":10,"maxDelayMs":20,"jitter":0,"retryOn":[503,"CODE"]},"onError":"continue"}},
		{"id":"b","type":"step","config":{"retry":{},"onError":{"goto":"c"}}},
		{"id":"c","type":"step","config":{"url":"{{ tasks.s.output }}{{ tasks.a.output }}"}},
		{"id":"d","type":"step"}],
		"edges":[{"source":"start","target":"s"},{"source":"s","target":"a"},{"source":"s","target":"b"},{"source":"s","target":"c"},{"source":"a","target":"c"},{"source":"b","target":"c"},{"source":"b","target":"d"}]}`)
	require.NoError(t, err)
	require.Equal(t, workflow.ModeSync, plan.Mode)
	require.Equal(t, time.Minute, plan.Timeout)
	require.True(t, plan.Effects)
	require.Equal(t, []string{"tasks[2].config.retry: has no meaning for a task without effects, which gives the same result again"}, lines(plan.Warnings))
	s, a, b, c := plan.Graph.Tasks[0], plan.Graph.Tasks[1], plan.Graph.Tasks[2], plan.Graph.Tasks[3]
	require.True(t, s.Entry)
	require.Equal(t, "Choose", s.Name)
	require.Equal(t, []int{1, 2}, s.OnSuccess)
	require.Equal(t, []int{2}, s.OnSkip)
	require.Equal(t, workflow.OnError{Mode: workflow.ErrorGoto, Goto: 3}, s.OnError)
	require.True(t, s.Read)
	require.Equal(t, "bureau", a.Source)
	require.Equal(t, "a", a.Name)
	require.Equal(t, 1500*time.Millisecond, a.Timeout)
	require.Equal(t, workflow.RetryPolicy{MaxAttempts: 4, InitialDelay: 10 * time.Millisecond, Factor: 2, MaxDelay: 20 * time.Millisecond, RetryOn: []string{"503", "CODE"}}, a.Retry)
	require.Equal(t, []int{4}, b.OnSuccess)
	require.Equal(t, []int{4}, b.OnSkip)
	require.False(t, b.Read)
	require.Equal(t, []int{0, 1, 2}, c.Sources)
	index, ok := plan.Graph.Index("d")
	require.True(t, ok)
	require.Equal(t, 4, index)
}

func TestCompileNestedPlan(t *testing.T) {
	t.Parallel()
	plan, err := compile(t, `{"tasks":[{"id":"n","type":"nest","config":{"tasks":[{"id":"x","type":"nest","config":{"tasks":[{"id":"y","type":"call","config":{"url":"{{ tasks.z.output }}{{ item }}"}}]}},{"id":"z","type":"step"}],
		"edges":[{"source":"start","target":"z"},{"source":"z","target":"x"}]}}]}`)
	require.NoError(t, err)
	require.True(t, plan.Effects)
	inner := plan.Graph.Tasks[0].Children[0]
	require.True(t, inner.Tasks[1].Read)
	require.Equal(t, "y", inner.Tasks[0].Children[0].Tasks[0].ID)
}

func TestCompileModeAndTimeout(t *testing.T) {
	t.Parallel()
	call := `{"tasks":[{"id":"a","type":"call"}]}`
	pause := `{"tasks":[{"id":"n","type":"nest","config":{"tasks":[{"id":"p","type":"pause"}]}}]}`
	tests := map[string]struct {
		text    string
		mode    workflow.Mode
		seconds int
		want    workflow.Mode
		timeout time.Duration
		fault   string
	}{
		"default":       {text: call, want: workflow.ModeSync, timeout: time.Minute},
		"sync limit":    {text: call, seconds: 300, want: workflow.ModeSync, timeout: 300 * time.Second},
		"sync over":     {text: call, seconds: 301, fault: "timeoutSeconds: must be between 1 and 300 if executionMode is sync"},
		"async":         {text: call, mode: workflow.ModeAsync, want: workflow.ModeAsync, timeout: 24 * time.Hour},
		"async limit":   {text: call, mode: workflow.ModeAsync, seconds: 2592000, want: workflow.ModeAsync, timeout: 720 * time.Hour},
		"async over":    {text: call, mode: workflow.ModeAsync, seconds: 2592001, fault: "timeoutSeconds: must be between 1 and 2592000 if executionMode is async"},
		"negative":      {text: call, seconds: -1, fault: "timeoutSeconds: must be between 1 and 300 if executionMode is sync"},
		"unknown":       {text: call, mode: "later", fault: "executionMode: must be sync or async"},
		"waits":         {text: pause, want: workflow.ModeAsync, timeout: 24 * time.Hour},
		"waits in sync": {text: pause, mode: workflow.ModeSync, fault: "executionMode: must be async, because a task of the graph waits"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plan, err := compile(t, test.text, func(def *workflow.Definition) {
				def.ExecutionMode, def.TimeoutSeconds = test.mode, test.seconds
			})
			if test.fault != "" {
				require.Equal(t, []string{test.fault}, lines(faults(t, err).Details))
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.want, plan.Mode)
			require.Equal(t, test.timeout, plan.Timeout)
			require.True(t, plan.Effects)
		})
	}
}

func TestRetryPolicy(t *testing.T) {
	t.Parallel()
	p := workflow.RetryPolicy{MaxAttempts: 4, InitialDelay: time.Second, Factor: 3, MaxDelay: 5 * time.Second, Jitter: 0.5}
	require.Equal(t, time.Second, p.Delay(1, 0, 0))
	require.Equal(t, 3*time.Second, p.Delay(2, 0, 0))
	require.Equal(t, 5*time.Second, p.Delay(3, 0, 0))
	require.Equal(t, 5*time.Second, p.Delay(1000, 0, 0))
	require.Equal(t, 750*time.Millisecond, p.Delay(1, 0.5, 0))
	require.Equal(t, time.Hour, p.Delay(1, 0, time.Hour))
	own := &workflow.TaskError{Code: "X", StatusCode: 503, Retryable: true}
	require.True(t, p.Retries(own, 3))
	require.False(t, p.Retries(own, 4))
	p.RetryOn = []string{"Y"}
	require.False(t, p.Retries(own, 1))
	p.RetryOn = []string{"Y", "503"}
	require.True(t, p.Retries(own, 1))
	require.False(t, workflow.RetryPolicy{}.Retries(own, 1))
}

func TestRetryConfig(t *testing.T) {
	t.Parallel()
	plan, err := compile(t, `{"tasks":[{"id":"a","type":"call","config":{"retry":{"initialDelayMs":120000}}}]}`)
	require.NoError(t, err)
	want := workflow.DefaultRetry(4)
	want.InitialDelay, want.MaxDelay = 2*time.Minute, 2*time.Minute
	require.Equal(t, want, plan.Graph.Tasks[0].Retry)

	plan, err = compile(t, `{"tasks":[{"id":"a","type":"call","config":{"retry":{"maxAttempts":20,"initialDelayMs":0,"factor":10,"jitter":1,"retryOn":[100,599,"X"]}}}]}`)
	require.NoError(t, err)
	require.Equal(t, workflow.RetryPolicy{MaxAttempts: 20, Factor: 10, MaxDelay: want.MaxDelay / 2, Jitter: 1, RetryOn: []string{"100", "599", "X"}}, plan.Graph.Tasks[0].Retry)
	_, err = compile(t, `{"tasks":[{"id":"a","type":"call","config":{"retry":{"maxAttempts":21,"factor":10.1,"jitter":1.01,"retryOn":[99,600]}}}]}`)
	require.Equal(t, []string{
		"tasks[0].config.retry.maxAttempts: must be an integer between 1 and 20",
		"tasks[0].config.retry.factor: must be a number between 1 and 10",
		"tasks[0].config.retry.jitter: must be a number between 0 and 1",
		"tasks[0].config.retry.retryOn[0]: must be an error code or a status from 100 to 599",
		"tasks[0].config.retry.retryOn[1]: must be an error code or a status from 100 to 599",
	}, lines(faults(t, err).Details))
}

// What a workflow runs makes it reach outside and wait.
func TestLink(t *testing.T) {
	t.Parallel()
	planOf := func(tasks string, change ...func(*workflow.Definition)) *workflow.Plan {
		plan, err := compile(t, `{"tasks":[`+tasks+`]}`, change...)
		require.NoError(t, err)
		return plan
	}
	const running = `{"id":"a","type":"run","config":{"alias":"sub","version":"v1"}}`
	for name, test := range map[string]struct {
		sub     string
		change  func(*workflow.Definition)
		effects bool
		mode    workflow.Mode
		timeout time.Duration
	}{
		"nothing":          {`{"id":"s","type":"step"}`, func(*workflow.Definition) {}, false, workflow.ModeSync, time.Minute},
		"effects":          {`{"id":"s","type":"call"}`, func(*workflow.Definition) {}, true, workflow.ModeSync, time.Minute},
		"waits":            {`{"id":"s","type":"pause"}`, func(*workflow.Definition) {}, true, workflow.ModeAsync, 24 * time.Hour},
		"waits, own limit": {`{"id":"s","type":"pause"}`, func(def *workflow.Definition) { def.TimeoutSeconds = 5 }, true, workflow.ModeAsync, 5 * time.Second},
		"waits, as asked":  {`{"id":"s","type":"pause"}`, func(def *workflow.Definition) { def.ExecutionMode = workflow.ModeSync }, true, workflow.ModeSync, time.Minute},
	} {
		plan := planOf(running, test.change)
		linked := plan.Link(map[workflow.Ref]*workflow.Plan{{Alias: "sub", Version: "v1"}: planOf(test.sub)}, nil)
		require.Equal(t, test.effects, linked.Effects, name)
		require.Equal(t, test.mode, linked.Mode, name)
		require.Equal(t, test.timeout, linked.Timeout, name)
		require.Equal(t, workflow.ModeSync, plan.Mode, "the plan itself stays as it was")
	}
}

func TestManyFaults(t *testing.T) {
	t.Parallel()
	var tasks []any
	for range workflow.TasksMax {
		tasks = append(tasks, map[string]any{"id": "a", "type": "step", "config": map[string]any{"url": true, "x": true}})
	}
	def, details := workflow.Parse(nil, tasks, nil, types())
	require.Len(t, details, 100)
	_, err := workflow.Compile(def, types())
	require.Len(t, faults(t, err).Details, 50)
}

func TestTaskErrorValue(t *testing.T) {
	t.Parallel()
	require.Equal(t, map[string]any{"code": "X", "message": "m", "statusCode": json.Number("404")}, (&workflow.TaskError{Code: "X", Message: "m", StatusCode: 404}).Value())
	require.Equal(t, map[string]any{"code": "X", "message": "m", "statusCode": nil}, (&workflow.TaskError{Code: "X", Message: "m"}).Value())
}

// TestCompileNeverPanics compiles random graphs, most of them with faults; a
// plan that comes out has every task after its ancestors.
func TestCompileNeverPanics(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.SampledFrom([]string{"a", "b", "c", "d", "start", ""})
		def := workflow.Definition{InputSchema: map[string]any{}}
		for range rapid.IntRange(0, 5).Draw(t, "tasks") {
			config := map[string]any{"cases": []any{map[string]any{"when": "true", "goto": id.Draw(t, "goto")}}, "default": id.Draw(t, "default")}
			def.Tasks = append(def.Tasks, workflow.TaskDefinition{ID: id.Draw(t, "id"), Type: rapid.SampledFrom([]string{"step", "switch", "x"}).Draw(t, "type"), Config: config})
		}
		for range rapid.IntRange(0, 8).Draw(t, "edges") {
			def.Edges = append(def.Edges, workflow.EdgeDefinition{Source: id.Draw(t, "source"), Target: id.Draw(t, "target")})
		}
		plan, err := workflow.Compile(def, types())
		if err != nil {
			if fault.From(err).Kind != fault.Unprocessable || len(fault.From(err).Details) == 0 {
				t.Fatalf("unexpected error %v", err)
			}
			return
		}
		for _, task := range plan.Graph.Tasks {
			if !task.Entry && len(task.Sources) == 0 {
				t.Fatalf("task %s cannot begin", task.ID)
			}
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"inputSchema":{"type":"object","properties":{"a":{"$ref":"#","default":1}}},"tasks":[{"id":"a","type":"step","config":{"url":"{{ input.a }}"}}],"edges":[{"source":"start","target":"a"}]}`))
	f.Add([]byte(`{"tasks":[{"id":"s","type":"switch","config":{"cases":[{"when":"true","goto":"a"}],"onError":{"goto":"a"}}},{"id":"a","type":"nest","config":{"tasks":[{"id":"x","type":"call","config":{"retry":{"retryOn":[1]}}}]}}],"edges":[{"source":"s","target":"a"},{"source":"a","target":"s"}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		v, err := exactjson.Decode(text)
		body, ok := v.(map[string]any)
		if err != nil || !ok {
			t.Skip()
		}
		first, details := workflow.Parse(body["inputSchema"], body["tasks"], body["edges"], types())
		again, _ := workflow.Parse(body["inputSchema"], body["tasks"], body["edges"], types())
		require.Empty(t, cmp.Diff(first, again))
		if len(details) > 0 {
			return
		}
		plan, err := workflow.Compile(first, types())
		if err != nil {
			require.ErrorIs(t, err, fault.Unprocessable)
			return
		}
		plan.CheckInput(body)
	})
}
