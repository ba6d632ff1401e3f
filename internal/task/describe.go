package task

import (
	"maps"

	"tranche/internal/workflow"
)

// Describe returns the JSON Schema of every type's config by the name of the
// type. What members there are and of what kind comes from the code that reads
// them; what they mean is said here.
func Describe() map[string]*workflow.ConfigSchema {
	schemas, meanings := map[string]*workflow.ConfigSchema{}, memberMeanings()
	for name, taskType := range Types(Ports{}) {
		schema := workflow.Describe(taskType)
		schema.Description = typeMeanings()[name]
		explain(schema, name, meanings)
		schemas[name] = schema
	}
	return schemas
}

// explain describes the members of a schema by their paths, those of the type
// first: for-each.items, else items.
func explain(schema *workflow.ConfigSchema, path string, meanings map[string]string) {
	for name, property := range schema.Properties {
		inner := path + "." + name
		property.Description = meanings[inner]
		if property.Description == "" {
			property.Description = meanings[name]
		}
		explain(property, inner, meanings)
		if property.Items != nil {
			explain(property.Items, inner, meanings)
		}
	}
}

func typeMeanings() map[string]string {
	return map[string]string{
		"http-request":        "Calls a service outside.",
		"transform":           "Computes fields.",
		"switch":              "Chooses which edges are taken.",
		"decision-table":      "Finds the rules that hold, and what they give.",
		"for-each":            "Runs a nested graph once for each item of a list.",
		"loop":                "Repeats a nested graph until a condition holds.",
		"delay":               "Waits for a time to pass.",
		"wait-for-signal":     "Waits for a payload from outside.",
		"sub-workflow":        "Runs a published workflow within the execution.",
		"authorization-check": "Fails unless a signed, unexpired authorization exists.",
		"end":                 "Ends its graph with a result.",
	}
}

// memberMeanings says what every member means, by its path or by its name alone.
func memberMeanings() map[string]string {
	all := commonMeanings()
	maps.Copy(all, requestMeanings())
	maps.Copy(all, ruleMeanings())
	maps.Copy(all, flowMeanings())
	return all
}

func commonMeanings() map[string]string {
	return map[string]string{
		"when":           "Condition; where it is false the task is passed over.",
		"timeoutMs":      "Limit of one attempt.",
		"retry":          "When a failed attempt is repeated.",
		"maxAttempts":    "Attempts, the first included.",
		"initialDelayMs": "Pause before the second attempt.",
		"factor":         "What the pause grows by each time.",
		"maxDelayMs":     "The longest pause.",
		"jitter":         "The share of a pause that chance decides.",
		"retryOn":        "Error codes and status codes that are tried again, instead of the type's own.",
		"onError":        `What a failure does: "fail", "continue" or {"goto": taskId}.`,
		"tasks":          "The nested graph's tasks.",
		"edges":          "The nested graph's edges.",
		"alias":          "The workflow's alias.",
		"version":        "Its version, or latest: the highest active one when the execution begins.",
		"input":          "The workflow's input.",
	}
}

func requestMeanings() map[string]string {
	return map[string]string{ //nolint:gosec // what members mean, no credentials
		"http-request.method":           "The method; GET by default.",
		"http-request.url":              "The address.",
		"http-request.query":            "Parameters to add: texts, numbers, booleans or arrays of them.",
		"http-request.headers":          `Headers: texts, numbers, booleans or {"secret": name}.`,
		"http-request.body":             "JSON to send.",
		"http-request.bodyText":         "Text to send instead.",
		"http-request.bodyForm":         "Form fields to send instead.",
		"http-request.bodyBase64":       "Base64 text whose bytes are sent instead.",
		"http-request.successStatus":    `Statuses of success: a number, a text such as "200-299,404", or an array of both.`,
		"http-request.source":           "The name of the data source that this task reads.",
		"http-request.maxResponseBytes": "Limit of the answer's body.",
		"http-request.followRedirects":  "How many redirects are followed.",
		"http-request.auth":             "How the request shows who sends it.",
		"http-request.auth.type":        "The way.",
		"http-request.auth.secret":      "The name of the secret.",
		"http-request.auth.username":    "The user name of basic.",
		"http-request.auth.header":      "The header of apiKey; X-Api-Key by default.",
		"http-request.auth.query":       "The parameter of apiKey, instead of a header.",
		"http-request.auth.tokenUrl":    "Where oauth2ClientCredentials gets its access token.",
		"http-request.auth.clientId":    "The client's id there.",
		"http-request.auth.scope":       "The scope to ask for.",
		"http-request.auth.audience":    "The audience to ask for.",
		"http-request.auth.clientAuth":  "Whether the client's credentials go into a Basic header or the body.",
	}
}

func ruleMeanings() map[string]string {
	return map[string]string{
		"transform.fields": "An object whose leaves are templates.",

		"switch.cases":      "The cases in order.",
		"switch.cases.when": "Condition of the case.",
		"switch.cases.goto": "The task whose edge is taken.",
		"switch.default":    "The task whose edge is taken where no case holds.",
		"switch.mode":       "Whether the first case that holds decides, or all that hold.",

		"decision-table.inputs":         "The columns of conditions.",
		"decision-table.inputs.field":   "Where the column's value is: input.score.",
		"decision-table.inputs.expr":    "The column's value, instead of field.",
		"decision-table.inputs.name":    "The column's name for people.",
		"decision-table.outputs":        "The columns of results.",
		"decision-table.outputs.name":   "Where the result goes; dots nest.",
		"decision-table.outputs.values": "The values in order of priority.",
		"decision-table.rules":          "The rows.",
		"decision-table.rules.when":     "A cell for each input.",
		"decision-table.rules.then":     "A cell for each output.",
		"decision-table.hitPolicy":      "Which of several rules that hold counts.",
		"decision-table.aggregate":      "What collect makes of them.",
	}
}

func flowMeanings() map[string]string {
	return map[string]string{
		"for-each.items":       "Expression that gives the list.",
		"for-each.workflow":    "A published workflow to run instead of a nested graph.",
		"for-each.concurrency": "Items worked on at a time.",
		"for-each.onItemError": "Whether an item that fails fails the task.",

		"loop.until":         "Expression; sees last, the result of the iteration that has just ended.",
		"loop.delayMs":       "Pause between two iterations.",
		"loop.maxIterations": "Iterations at most.",

		"delay.forMs": "How long to wait.",
		"delay.until": "Expression that gives the time to wait for.",

		"wait-for-signal.schema":    "JSON Schema of the payload.",
		"wait-for-signal.timeoutMs": "How long to wait.",

		"authorization-check.key":           "The authorization's key.",
		"authorization-check.identityKey":   "The signer's identity key.",
		"authorization-check.identityValue": "The signer's identity value.",

		"end.status":       "completed or failed.",
		"end.statusCode":   "The result's statusCode.",
		"end.output":       "The result's output, an object.",
		"end.customOutput": "The result's customOutput.",
		"end.notes":        "Notes of the result.",
		"end.notices":      "Notices of the result.",
		"end.tags":         "Tags to add to the execution's.",
		"end.errorMessage": "The result's errorMessage.",
		"end.attachments":  "Stored files that belong to the result.",
	}
}
