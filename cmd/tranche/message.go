package main

import (
	"errors"
	"fmt"
	"time"

	"tranche/internal/message"
)

// messageFlags say how one-time passwords go out.
type messageFlags struct {
	MailDir string `name:"mail-dir" env:"TRANCHE_MAIL_DIR" group:"Messages" placeholder:"DIR" help:"For development: messages become files in this folder, by every channel that has no provider, and go no further."`

	SMTPURL     string `name:"smtp-url" env:"TRANCHE_SMTP_URL" group:"Messages" placeholder:"URL" help:"Server for e-mail: smtp://user:password@host:587 (STARTTLS is demanded), smtps://…:465, or smtp+insecure:// without TLS. Better given by the environment or a file than as a flag."`
	SMTPURLFile string `name:"smtp-url-file" env:"TRANCHE_SMTP_URL_FILE" group:"Messages" placeholder:"FILE" help:"File that holds the SMTP URL."`
	SMTPFrom    string `name:"smtp-from" env:"TRANCHE_SMTP_FROM" group:"Messages" placeholder:"ADDRESS" help:"Sender of e-mail: no-reply@acme.example, perhaps with a name before it in front of <…>."`

	SMS      gatewayFlags `embed:"" prefix:"sms-" envprefix:"TRANCHE_SMS_" group:"Messages"`
	WhatsApp gatewayFlags `embed:"" prefix:"whatsapp-" envprefix:"TRANCHE_WHATSAPP_" group:"Messages"`
}

// gatewayFlags describe a provider's API.
type gatewayFlags struct {
	URL         string `name:"url" env:"URL" placeholder:"URL" help:"Provider's address, which takes a POST for each message."`
	Header      string `name:"header" env:"HEADER" placeholder:"LINES" help:"Headers of the request, one Name: value a line; credentials among them. Better given by the environment or a file than as a flag."`
	HeaderFile  string `name:"header-file" env:"HEADER_FILE" placeholder:"FILE" help:"File that holds the headers."`
	Body        string `name:"body" env:"BODY" placeholder:"TEXT" help:"Body of the request with {{to}}, {{text}} and {{id}} in it, which are written as the content type asks."`
	ContentType string `name:"content-type" env:"CONTENT_TYPE" default:"application/json" placeholder:"TYPE" help:"application/json or application/x-www-form-urlencoded (${default})."`
	Secret      string `name:"secret" env:"SECRET" placeholder:"SECRET" help:"Signs each request by Standard Webhooks: whsec_ and 24 to 64 bytes in base64. Better given by the environment or a file than as a flag."`
	SecretFile  string `name:"secret-file" env:"SECRET_FILE" placeholder:"FILE" help:"File that holds the signing secret."`
	MessageID   string `name:"message-id" env:"MESSAGE_ID" placeholder:"PATH" help:"Where the answer has the provider's id of the message: sid, messages.0.id."`
	Success     string `name:"success" env:"SUCCESS" placeholder:"PATH=VALUE" help:"What the answer says when the message was taken, where its status does not tell: messages.0.status=0."`
}

// senders makes the configured ways out.
func (f *messageFlags) senders() (message.Senders, error) {
	senders := message.Senders{}
	if f.MailDir != "" {
		folder, err := message.NewFolder(f.MailDir)
		if err != nil {
			return nil, fmt.Errorf("TRANCHE_MAIL_DIR: %w", err)
		}
		for _, channel := range message.Channels() {
			senders[channel] = folder
		}
	}
	address, err := valueOrFile(f.SMTPURL, f.SMTPURLFile, "TRANCHE_SMTP_URL")
	if err != nil {
		return nil, err
	}
	switch {
	case address != "":
		if senders[message.Email], err = message.NewSMTP(message.SMTPConfig{URL: address, From: f.SMTPFrom}); err != nil {
			return nil, fmt.Errorf("TRANCHE_SMTP_URL, TRANCHE_SMTP_FROM: %w", err)
		}
	case f.SMTPFrom != "":
		return nil, errors.New("TRANCHE_SMTP_FROM is set and TRANCHE_SMTP_URL is not: there is no server for e-mail")
	}
	for _, way := range []struct {
		channel message.Channel
		flags   *gatewayFlags
		prefix  string
	}{{message.SMS, &f.SMS, "TRANCHE_SMS_"}, {message.WhatsApp, &f.WhatsApp, "TRANCHE_WHATSAPP_"}} {
		if *way.flags == (gatewayFlags{ContentType: way.flags.ContentType}) { // which has a default
			continue
		}
		if senders[way.channel], err = way.flags.gateway(way.prefix); err != nil {
			return nil, fmt.Errorf("%sURL and what goes with it: %w", way.prefix, err)
		}
	}
	return senders, nil
}

func (f *gatewayFlags) gateway(prefix string) (message.Sender, error) {
	switch {
	case f.URL == "":
		return nil, errors.New("there is no address of a provider")
	case f.Body == "":
		return nil, fmt.Errorf("%sBODY is required", prefix)
	}
	header, err := valueOrFile(f.Header, f.HeaderFile, prefix+"HEADER")
	if err != nil {
		return nil, err
	}
	signing, err := valueOrFile(f.Secret, f.SecretFile, prefix+"SECRET")
	if err != nil {
		return nil, err
	}
	return message.NewGateway(message.GatewayConfig{
		URL: f.URL, Header: header, Body: f.Body, ContentType: f.ContentType, Secret: signing, MessageID: f.MessageID, Success: f.Success,
	}, time.Now)
}
