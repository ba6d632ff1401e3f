// Package message takes short messages to people: e-mail by SMTP, SMS and
// WhatsApp by an HTTP gateway, and in development all of them into a folder. It
// knows how to send and nothing of what is sent; it must not know any other
// package of the project. No error of it repeats a message or an address.
package message

import (
	"context"
	"fmt"
)

// Channel is a way to reach a person.
type Channel string

// The channels.
const (
	Email    Channel = "email"
	SMS      Channel = "sms"
	WhatsApp Channel = "whatsapp"
)

// Channels returns every channel.
func Channels() []Channel { return []Channel{Email, SMS, WhatsApp} }

// Message is one message to one person.
type Message struct {
	// ID stays the same when a message is sent again, so that a provider can
	// tell a repetition.
	ID      string
	Channel Channel
	// To is an address (RFC 5322, bare) or a telephone number (E.164).
	To      string
	Subject string // of an e-mail
	Text    string
}

// Receipt is what a provider said to a message that it took.
type Receipt struct {
	Provider  string // smtp, gateway or folder
	MessageID string // the provider's id of the message; may be empty
}

// Sender sends messages of one or more channels. An *Error says whether it is
// worth another try; every other error of Send is.
type Sender interface {
	Send(ctx context.Context, m Message) (Receipt, error)
}

// Senders are the configured ways out.
type Senders map[Channel]Sender

// Has reports whether messages of a channel can be sent.
func (s Senders) Has(channel Channel) bool { return s[channel] != nil }

// Send sends a message by its channel.
func (s Senders) Send(ctx context.Context, m Message) (Receipt, error) {
	sender := s[m.Channel]
	if sender == nil {
		return Receipt{}, refused("no provider is configured for %s", m.Channel)
	}
	return sender.Send(ctx, m)
}

// Error is a message that a provider did not take.
type Error struct {
	// Permanent says that the same message would be refused again.
	Permanent bool
	// Reason is safe to store and to log: it repeats nothing of the message,
	// nor of what the provider said.
	Reason string
}

func (e *Error) Error() string { return e.Reason }

func refused(format string, args ...any) *Error {
	return &Error{Permanent: true, Reason: fmt.Sprintf(format, args...)}
}

func failed(format string, args ...any) *Error {
	return &Error{Reason: fmt.Sprintf(format, args...)}
}
