package consent

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"tranche/internal/audit"
	"tranche/internal/fault"
	"tranche/internal/postgres"
	"tranche/queries"
)

// DefaultTemplate is the id of a template that every tenant has.
const DefaultTemplate = "default"

// templatesMax is the most templates of a tenant.
const templatesMax = 200

// placeholderPattern matches placeholders.
var placeholderPattern = regexp.MustCompile(`\{\{[^{}]*\}\}`)

// Template is a message with the placeholders {{code}}, {{expiresInMinutes}} and
// {{label}}. There is no other syntax.
type Template struct {
	ID      string
	Subject string
	Text    string
	// CreatedAt and UpdatedAt are zero for the built-in default.
	CreatedAt, UpdatedAt time.Time
}

func builtIn() Template {
	return Template{
		ID:      DefaultTemplate,
		Subject: "Your code for {{label}}",
		Text: "Your code to confirm {{label}}:\n\n{{code}}\n\nIt is valid for {{expiresInMinutes}} minutes. " +
			"Give it to nobody. If you did not ask for it, ignore this message.",
	}
}

// Template returns a template of the tenant, or fault.NotFound.
func (s *Service) Template(ctx context.Context, db queries.DBTX, tenantID uuid.UUID, id string) (Template, error) {
	row, err := s.q.MessageTemplateGet(ctx, db, queries.MessageTemplateGetParams{TenantID: tenantID, ID: id})
	if errors.Is(err, pgx.ErrNoRows) {
		if id == DefaultTemplate {
			return builtIn(), nil
		}
		return Template{}, errUnknownTemplate()
	}
	if err != nil {
		return Template{}, fmt.Errorf("get message template: %w", postgres.Translate(err))
	}
	return Template{ID: row.ID, Subject: row.Subject, Text: row.Body, CreatedAt: row.CreatedAt, UpdatedAt: row.UpdatedAt}, nil
}

func errUnknownTemplate() error {
	return fault.New(fault.NotFound, "there is no such message template")
}

// SetTemplate creates or replaces a template. It can replace the default. An invalid
// template is fault.Invalid.
func (s *Service) SetTemplate(ctx context.Context, tenantID uuid.UUID, t Template) (Template, error) {
	if details := t.faults(); len(details) > 0 {
		return Template{}, fault.InvalidRequest(details...)
	}
	err := postgres.InTx(ctx, s.Pool, func(tx pgx.Tx) error {
		row, err := s.q.MessageTemplateSet(ctx, tx, queries.MessageTemplateSetParams{TenantID: tenantID, ID: t.ID, Subject: t.Subject, Body: t.Text})
		if err != nil {
			return fmt.Errorf("set message template: %w", err)
		}
		t.CreatedAt, t.UpdatedAt = row.CreatedAt, row.UpdatedAt
		count, err := s.q.MessageTemplateCount(ctx, tx, tenantID)
		if err == nil && count > templatesMax {
			return fault.New(fault.Conflict, "a tenant can have at most %d message templates", templatesMax)
		}
		if err != nil {
			return fmt.Errorf("count message templates: %w", err)
		}
		return audit.RecordTx(ctx, tx, tenantID, audit.TemplateSet, t.ID)
	})
	return t, err
}

// DeleteTemplate deletes a template. Deleting the default restores the built-in one.
// Messages that are not sent yet do not change.
func (s *Service) DeleteTemplate(ctx context.Context, tenantID uuid.UUID, id string) error {
	return postgres.InTx(ctx, s.Pool, func(tx pgx.Tx) error {
		rows, err := s.q.MessageTemplateDelete(ctx, tx, queries.MessageTemplateDeleteParams{TenantID: tenantID, ID: id})
		switch {
		case err != nil:
			return fmt.Errorf("delete message template: %w", err)
		case rows > 0:
			return audit.RecordTx(ctx, tx, tenantID, audit.TemplateDelete, id)
		case id != DefaultTemplate:
			return errUnknownTemplate()
		default:
			return nil
		}
	})
}

// InspectTemplate finds the faults of a template that the schema of the body does not
// express.
func InspectTemplate(members map[string]any) []fault.Detail {
	subject, _ := members["subject"].(string)
	text, isText := members["text"].(string)
	if !isText {
		return nil
	}
	t := Template{Subject: subject, Text: text}
	return t.faults()
}

func (t *Template) faults() (details []fault.Detail) {
	add := func(field, text string) { details = append(details, fault.Detail{Field: field, Message: text}) }
	if strings.ContainsFunc(t.Subject, unicode.IsControl) {
		add("subject", "must be one line without control characters")
	}
	if strings.ContainsFunc(t.Text, func(r rune) bool { return unicode.IsControl(r) && !strings.ContainsRune("\t\r\n", r) }) {
		add("text", "must not contain control characters except tabs and line breaks")
	}
	if !slices.Contains(placeholders(t.Text), "code") {
		add("text", "must contain {{code}}")
	}
	for _, part := range []field{{"subject", t.Subject}, {"text", t.Text}} {
		for _, name := range placeholders(part.text) {
			if !slices.Contains([]string{"code", "expiresInMinutes", "label"}, name) {
				add(part.name, "must not have placeholders other than {{code}}, {{expiresInMinutes}} and {{label}}")
				break
			}
		}
	}
	return details
}

func placeholders(text string) []string {
	found := placeholderPattern.FindAllString(text, -1)
	for i, p := range found {
		found[i] = strings.Trim(p, "{}")
	}
	return found
}

// fill replaces the placeholders. It does not replace placeholders within values.
func (t *Template) fill(code, label string, expiresIn time.Duration) (subject, text string) {
	values := strings.NewReplacer(
		"{{code}}", code, "{{label}}", label,
		"{{expiresInMinutes}}", strconv.Itoa(int((expiresIn+time.Minute-1)/time.Minute)),
	)
	return values.Replace(t.Subject), values.Replace(t.Text)
}

// hash identifies the wording of the template.
func (t *Template) hash() []byte {
	sum := sha256.Sum256([]byte(t.Subject + "\x00" + t.Text))
	return sum[:]
}
