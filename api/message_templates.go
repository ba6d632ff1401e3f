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

// templateIDPattern matches the ids of message templates.
var templateIDPattern = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}$`)

// MessageTemplate is a message with placeholders.
type MessageTemplate struct {
	ID        string     `json:"id" doc:"The id, which templateId refers to." example:"default"`
	Subject   string     `json:"subject" doc:"The subject of an email." example:"Your code for {{label}}"`
	Text      string     `json:"text" doc:"The text of the message." example:"Your code: {{code}}"`
	CreatedAt *Timestamp `json:"createdAt,omitempty" doc:"The time of creation. Absent for the built-in template default."`
	UpdatedAt *Timestamp `json:"updatedAt,omitempty" doc:"The time of the last change. Absent for the built-in template default."`
}

// MessageTemplateWrite is the content of a template.
type MessageTemplateWrite struct {
	Subject string `json:"subject" minLength:"1" maxLength:"200" doc:"The subject of an email: one line without control characters. It may contain the same placeholders as text." example:"Your code for {{label}}"`
	Text    string `json:"text" minLength:"1" maxLength:"2000" doc:"The message as plain text. It must contain the placeholder {{code}} and may contain {{expiresInMinutes}} and {{label}}." example:"Your code: {{code}}"`
}

// MessageTemplatePath has the id of a template. Other inputs embed it.
type MessageTemplatePath struct {
	ID string `path:"templateId" doc:"The id of the template. It matches ^[a-z0-9][a-z0-9_-]{0,63}$." example:"default"`
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
		Summary:     "Get a message template",
		Description: "**[ext]** Returns a template of the messages that contain one-time passwords. The template `default` always exists.",
		Scope:       identity.ScopeTemplatesWrite, Category: identity.LimitManagement,
		ResponseExample: example,
		Errors:          []int{http.StatusNotFound},
	}, s.getMessageTemplate)
	httpapi.Register(s.http, httpapi.Operation{
		ID: "putMessageTemplate", Method: http.MethodPut, Path: "/v1/message-templates/{templateId}", Tag: "Authorizations",
		Summary: "Create or replace a message template",
		Description: "**[ext]** Creates or replaces a template, including `default`. The placeholders `{{code}}`, `{{expiresInMinutes}}` and " +
			"`{{label}}` are replaced. Nothing else is interpreted. A tenant has at most 200 templates (409).",
		Scope: identity.ScopeTemplatesWrite, Category: identity.LimitManagement,
		RequestExample:  `{"subject":"Your code for {{label}}","text":"{{code}} is your code, for {{expiresInMinutes}} minutes."}`,
		ResponseExample: example,
		Inspect:         consent.InspectTemplate,
		Errors:          []int{http.StatusNotFound, http.StatusConflict},
	}, s.putMessageTemplate)
	httpapi.Register(s.http, httpapi.Operation{
		ID: "deleteMessageTemplate", Method: http.MethodDelete, Path: "/v1/message-templates/{templateId}", Tag: "Authorizations",
		Summary:     "Delete a message template",
		Description: "**[ext]** Deletes a template. Deleting `default` restores the built-in template.",
		Scope:       identity.ScopeTemplatesWrite, Category: identity.LimitManagement,
		Errors: []int{http.StatusNotFound},
	}, s.deleteMessageTemplate)
}

// checkTemplateID returns fault.NotFound for an id of the wrong form.
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
