package task

import (
	"maps"

	"tranche/internal/workflow"
)

// Describe returns the JSON Schema of every type's config by the name of the type. The
// code that reads the members determines the members and their types; memberDescriptions adds
// their descriptions.
func Describe() map[string]*workflow.ConfigSchema {
	schemas, meanings := map[string]*workflow.ConfigSchema{}, memberDescriptions()
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

// memberDescriptions returns the description of every member, by its path or by its name
// alone.
func memberDescriptions() map[string]string {
	all := commonDescriptions()
	maps.Copy(all, requestDescriptions())
	maps.Copy(all, ruleDescriptions())
	maps.Copy(all, flowDescriptions())
	return all
}

func commonDescriptions() map[string]string {
	return map[string]string{
		"when":           "Condition. If it is false, the task is skipped.",
		"timeoutMs":      "Time limit of one attempt, in milliseconds.",
		"retry":          "Automatic retries of a failed attempt.",
		"maxAttempts":    "Greatest number of attempts, including the first.",
		"initialDelayMs": "Pause before the second attempt, in milliseconds.",
		"factor":         "Factor by which the pause grows after each attempt.",
		"maxDelayMs":     "Longest pause, in milliseconds.",
		"jitter":         "Random share of each pause, from 0 to 1.",
		"retryOn":        "Error codes and status codes to retry. Replaces the list of the task type.",
		"onError":        `Effect of a failure: "fail", "continue" or {"goto": taskId}.`,
		"tasks":          "Tasks of the nested graph.",
		"edges":          "Edges of the nested graph.",
		"alias":          "Alias of the workflow.",
		"version":        "Version of the workflow, such as v1, or latest: the highest active version when the execution begins.",
		"input":          "Input of the workflow.",
	}
}

func requestDescriptions() map[string]string {
	return map[string]string{ //nolint:gosec // descriptions of members, no credentials
		"http-request.method":           "HTTP method. Default: GET.",
		"http-request.url":              "URL of the request.",
		"http-request.query":            "Query parameters: texts, numbers, booleans or arrays of them.",
		"http-request.headers":          `Headers: texts, numbers, booleans or {"secret": name}.`,
		"http-request.body":             "JSON body.",
		"http-request.bodyText":         "Text body, instead of body.",
		"http-request.bodyForm":         "Form body, instead of body.",
		"http-request.bodyBase64":       "Bytes of the body in base64, instead of body.",
		"http-request.successStatus":    `Statuses of success: a number, a text such as "200-299,404", or an array of both.`,
		"http-request.source":           "Name of the data source that this task reads.",
		"http-request.maxResponseBytes": "Greatest size of the response body, in bytes.",
		"http-request.followRedirects":  "Greatest number of redirects to follow.",
		"http-request.auth":             "Authentication of the request.",
		"http-request.auth.type":        "Method of authentication.",
		"http-request.auth.secret":      "Name of the secret.",
		"http-request.auth.username":    "User name, for basic.",
		"http-request.auth.header":      "Header, for apiKey. Default: X-Api-Key.",
		"http-request.auth.query":       "Query parameter, for apiKey, instead of a header.",
		"http-request.auth.tokenUrl":    "URL of the token endpoint, for oauth2ClientCredentials.",
		"http-request.auth.clientId":    "Client id at the token endpoint.",
		"http-request.auth.scope":       "Scope to request.",
		"http-request.auth.audience":    "Audience to request.",
		"http-request.auth.clientAuth":  "Place of the client's credentials: a Basic header or the body.",
	}
}

func ruleDescriptions() map[string]string {
	return map[string]string{
		"transform.fields": "Object with templates as its leaves.",

		"switch.cases":      "Cases, in order.",
		"switch.cases.when": "Condition of the case.",
		"switch.cases.goto": "Task to continue with.",
		"switch.default":    "Task to continue with if no case is true.",
		"switch.mode":       "Continue with the first true case or with all true cases.",

		"decision-table.inputs":         "Columns of conditions.",
		"decision-table.inputs.field":   "Path of the column's value, such as input.score.",
		"decision-table.inputs.expr":    "Expression for the column's value, instead of field.",
		"decision-table.inputs.name":    "Display name of the column.",
		"decision-table.outputs":        "Columns of results.",
		"decision-table.outputs.name":   "Name of the result. A dot makes nested objects.",
		"decision-table.outputs.values": "Values of the output, highest priority first.",
		"decision-table.rules":          "Rules of the table.",
		"decision-table.rules.when":     "One condition for each input.",
		"decision-table.rules.then":     "One result for each output.",
		"decision-table.hitPolicy":      "Selection among several rules that hit.",
		"decision-table.aggregate":      "Aggregation of the hits, for collect.",
	}
}

func flowDescriptions() map[string]string {
	return map[string]string{
		"for-each.items":       "Expression that returns the list.",
		"for-each.workflow":    "A published workflow to run instead of a nested graph.",
		"for-each.concurrency": "Number of items that run concurrently.",
		"for-each.onItemError": "Effect of a failed item on the task.",

		"loop.until":         "Condition that ends the loop. It can use last, the result of the latest iteration.",
		"loop.delayMs":       "Pause between two iterations, in milliseconds.",
		"loop.maxIterations": "Greatest number of iterations.",

		"delay.forMs": "Time to wait, in milliseconds.",
		"delay.until": "Expression that returns the time at which to continue.",

		"wait-for-signal.schema":    "JSON Schema of the payload.",
		"wait-for-signal.timeoutMs": "Longest time to wait for the signal, in milliseconds.",

		"authorization-check.key":           "Key of the authorization.",
		"authorization-check.identityKey":   "Identity key of the signer.",
		"authorization-check.identityValue": "Identity value of the signer.",

		"end.status":       "completed or failed.",
		"end.statusCode":   "statusCode of the result.",
		"end.output":       "output of the result, an object.",
		"end.customOutput": "customOutput of the result.",
		"end.notes":        "Notes of the result.",
		"end.notices":      "Notices of the result.",
		"end.tags":         "Tags to add to the execution.",
		"end.errorMessage": "errorMessage of the result.",
		"end.attachments":  "Stored files to attach to the result.",
	}
}
