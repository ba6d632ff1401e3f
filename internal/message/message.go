// Package message sends short messages to people: e-mail over SMTP, SMS and WhatsApp over
// an HTTP gateway, and in development all of them into a folder. It must not know the
// meaning of the messages or other packages of the project. None of its errors contains a
// message or an address.
package message

import (
	"context"
	"fmt"
)

// Channel is a means to reach a person.
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
	// ID is the same for all attempts to send the message, so that a provider can detect
	// duplicates.
	ID      string
	Channel Channel
	// To is an e-mail address without a name (RFC 5322) or a telephone number (E.164).
	To      string
	Subject string // of an e-mail
	Text    string
}

// Receipt is the response of a provider that accepted a message.
type Receipt struct {
	Provider  string // smtp, gateway or folder
	MessageID string // the provider's id of the message; may be empty
}

// Sender sends messages of one or more channels. Send may be retried after every error
// except an *Error that is permanent.
type Sender interface {
	Send(ctx context.Context, m Message) (Receipt, error)
}

// Senders are the configured senders.
type Senders map[Channel]Sender

// Has reports whether messages of a channel can be sent.
func (s Senders) Has(channel Channel) bool { return s[channel] != nil }

// Send sends a message over its channel.
func (s Senders) Send(ctx context.Context, m Message) (Receipt, error) {
	sender := s[m.Channel]
	if sender == nil {
		return Receipt{}, rejected("no provider is configured for %s", m.Channel)
	}
	return sender.Send(ctx, m)
}

// Error is the error of a message that a provider did not accept.
type Error struct {
	// Permanent means that a retry would fail too.
	Permanent bool
	// Reason is safe to store and to log: it contains no part of the message or of the
	// provider's response.
	Reason string
}

// Error returns the reason.
func (e *Error) Error() string { return e.Reason }

func rejected(format string, args ...any) *Error {
	return &Error{Permanent: true, Reason: fmt.Sprintf(format, args...)}
}

func failed(format string, args ...any) *Error {
	return &Error{Reason: fmt.Sprintf(format, args...)}
}
