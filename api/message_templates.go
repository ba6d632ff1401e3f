package api

import (
	"context"
	"net/http"
	"regexp"

	"tranche/internal/consent"
	"tranche/internal/fault"
	"tranche/internal/httpapi"
	"tranche/internal/identity"
)

// templateIDPattern is what the id of a message template looks like.
var templateIDPattern = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}$`)

// MessageTemplate is a message with places to fill in.
type MessageTemplate struct {
	ID        string     `json:"id" doc:"What templateId names it by." example:"default"`
	Subject   string     `json:"subject" doc:"The subject of an e-mail." example:"Your code for {{label}}"`
	Text      string     `json:"text" doc:"The message." example:"Your code: {{code}}"`
	CreatedAt *Timestamp `json:"createdAt,omitempty" doc:"When it was made; absent for a default that was never replaced."`
	UpdatedAt *Timestamp `json:"updatedAt,omitempty" doc:"When it was last written; absent for a default that was never replaced."`
}

// MessageTemplateWrite is what a template is made of.
type MessageTemplateWrite struct {
	Subject string `json:"subject" minLength:"1" maxLength:"200" doc:"The subject of an e-mail: one line without control characters, with {{label}} and the other places as in the text." example:"Your code for {{label}}"`
	Text    string `json:"text" minLength:"1" maxLength:"2000" doc:"The message, in plain text. {{code}} has to be in it; {{expiresInMinutes}} and {{label}} may be." example:"Your code: {{code}}"`
}

// MessageTemplatePath names a template; inputs with more than it embed it.
type MessageTemplatePath struct {
	ID string `path:"templateId" doc:"The template's id: ^[a-z0-9][a-z0-9_-]{0,63}$." example:"default"`
}

type (
	messageTemplateWriteInput struct {
		MessageTemplatePath
		Body MessageTemplateWrite
	}
	messageTemplateOutput struct{ Body MessageTemplate }
)

func messageTemplateRoutes(s *Server) {
	const example = `{"id":"short","subject":"Your code for {{label}}","text":"{{code}} is your code, for {{expiresInMinutes}} minutes.",` +
		`"createdAt":"2026-11-21T02:09:25.123Z","updatedAt":"2026-11-21T02:09:25.123Z"}`
	httpapi.Register(s.http, httpapi.Operation{
		ID: "getMessageTemplate", Method: http.MethodGet, Path: "/v1/message-templates/{templateId}", Tag: "Authorizations",
		Summary: "Get a message template", Description: "**[ext]** A template of the messages that carry one-time passwords; default always exists.",
		Scope: identity.ScopeTemplatesWrite, Category: identity.LimitManagement,
		ResponseExample: example,
		Errors:          []int{http.StatusNotFound},
	}, s.getMessageTemplate)
	httpapi.Register(s.http, httpapi.Operation{
		ID: "putMessageTemplate", Method: http.MethodPut, Path: "/v1/message-templates/{templateId}", Tag: "Authorizations",
		Summary: "Write a message template",
		Description: "**[ext]** Makes or replaces a template, default too. The places {{code}}, {{expiresInMinutes}} and {{label}} are filled in and nothing else is understood. " +
			"A tenant has at most 200 templates (409).",
		Scope: identity.ScopeTemplatesWrite, Category: identity.LimitManagement,
		RequestExample:  `{"subject":"Your code for {{label}}","text":"{{code}} is your code, for {{expiresInMinutes}} minutes."}`,
		ResponseExample: example,
		Inspect:         consent.InspectTemplate,
		Errors:          []int{http.StatusNotFound, http.StatusConflict},
	}, s.putMessageTemplate)
	httpapi.Register(s.http, httpapi.Operation{
		ID: "deleteMessageTemplate", Method: http.MethodDelete, Path: "/v1/message-templates/{templateId}", Tag: "Authorizations",
		Summary: "Delete a message template", Description: "**[ext]** Removes a template; default becomes what it was at first.",
		Scope: identity.ScopeTemplatesWrite, Category: identity.LimitManagement,
		Errors: []int{http.StatusNotFound},
	}, s.deleteMessageTemplate)
}

// checkTemplateID answers an id of the wrong form like an unknown one.
func checkTemplateID(id string) error {
	if !templateIDPattern.MatchString(id) {
		return fault.New(fault.NotFound, "there is no such message template")
	}
	return nil
}

func (s *Server) getMessageTemplate(ctx context.Context, in *MessageTemplatePath) (*messageTemplateOutput, error) {
	if err := checkTemplateID(in.ID); err != nil {
		return nil, err
	}
	t, err := s.config.Consents.Template(ctx, s.config.Pool, httpapi.Principal(ctx).TenantID, in.ID)
	if err != nil {
		return nil, err
	}
	return messageTemplate(t), nil
}

func (s *Server) putMessageTemplate(ctx context.Context, in *messageTemplateWriteInput) (*messageTemplateOutput, error) {
	if err := checkTemplateID(in.ID); err != nil {
		return nil, err
	}
	t, err := s.config.Consents.SetTemplate(ctx, httpapi.Principal(ctx).TenantID, consent.Template{ID: in.ID, Subject: in.Body.Subject, Text: in.Body.Text})
	if err != nil {
		return nil, err
	}
	return messageTemplate(t), nil
}

func (s *Server) deleteMessageTemplate(ctx context.Context, in *MessageTemplatePath) (*struct{}, error) {
	if err := checkTemplateID(in.ID); err != nil {
		return nil, err
	}
	return nil, s.config.Consents.DeleteTemplate(ctx, httpapi.Principal(ctx).TenantID, in.ID)
}

func messageTemplate(t consent.Template) *messageTemplateOutput {
	return &messageTemplateOutput{Body: MessageTemplate{
		ID: t.ID, Subject: t.Subject, Text: t.Text, CreatedAt: stampOrAbsent(t.CreatedAt), UpdatedAt: stampOrAbsent(t.UpdatedAt),
	}}
}
