// Package logging creates the logger of the process. It writes text to a terminal and JSON
// otherwise. Each line has the attributes of its context, such as the request, the tenant
// and the execution. The package must not know the domain.
package logging

import (
	"context"
	"io"
	"log/slog"
	"os"

	"golang.org/x/term"
)

// Names of context attributes.
const (
	RequestID   = "requestId"
	Tenant      = "tenant"
	ExecutionID = "executionId"
)

// New returns a logger that writes lines of the given level and above to w.
func New(w io.Writer, level slog.Level) *slog.Logger {
	options := &slog.HandlerOptions{Level: level}
	var handler slog.Handler = slog.NewJSONHandler(w, options)
	if file, ok := w.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		handler = slog.NewTextHandler(w, options)
	}
	return slog.New(NewHandler(handler))
}

type contextKey struct{}

// With returns a context whose log lines have one more attribute. It replaces an attribute
// of the same name. The Context methods of the logger, such as InfoContext, write it.
func With(ctx context.Context, name, value string) context.Context {
	had, _ := ctx.Value(contextKey{}).([]slog.Attr)
	attrs := make([]slog.Attr, 0, len(had)+1)
	for _, attr := range had {
		if attr.Key != name {
			attrs = append(attrs, attr)
		}
	}
	return context.WithValue(ctx, contextKey{}, append(attrs, slog.String(name, value)))
}

// NewHandler returns a handler that adds the attributes of With to each record and passes
// the record to next.
func NewHandler(next slog.Handler) slog.Handler { return &handler{next} }

type handler struct{ slog.Handler }

func (h *handler) Handle(ctx context.Context, record slog.Record) error {
	if attrs, ok := ctx.Value(contextKey{}).([]slog.Attr); ok {
		record.AddAttrs(attrs...)
	}
	return h.Handler.Handle(ctx, record)
}

func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &handler{h.Handler.WithAttrs(attrs)}
}

func (h *handler) WithGroup(name string) slog.Handler {
	return &handler{h.Handler.WithGroup(name)}
}

// AtLeast returns a logger that drops the lines below a level.
func AtLeast(log *slog.Logger, level slog.Level) *slog.Logger {
	return slog.New(&threshold{log.Handler(), level})
}

type threshold struct {
	slog.Handler
	level slog.Level
}

func (t *threshold) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= t.level && t.Handler.Enabled(ctx, level)
}

func (t *threshold) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &threshold{t.Handler.WithAttrs(attrs), t.level}
}

func (t *threshold) WithGroup(name string) slog.Handler {
	return &threshold{t.Handler.WithGroup(name), t.level}
}
