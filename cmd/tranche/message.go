package main

import (
	"errors"
	"fmt"
	"time"

	"tranche/internal/message"
)

// messageFlags configure the delivery of one-time passwords.
type messageFlags struct {
	MailDir string `name:"mail-dir" env:"TRANCHE_MAIL_DIR" group:"Messages" placeholder:"DIR" help:"For development: directory for the messages of all channels without a provider. They are written to files and not sent."`

	SMTPURL     string `name:"smtp-url" env:"TRANCHE_SMTP_URL" group:"Messages" placeholder:"URL" help:"E-mail server: smtp://user:password@host:587 (requires STARTTLS), smtps://…:465, or smtp+insecure:// without TLS. Use the environment or a file rather than the flag."`
	SMTPURLFile string `name:"smtp-url-file" env:"TRANCHE_SMTP_URL_FILE" group:"Messages" placeholder:"FILE" help:"File with the SMTP URL."`
	SMTPFrom    string `name:"smtp-from" env:"TRANCHE_SMTP_FROM" group:"Messages" placeholder:"ADDRESS" help:"Sender of e-mail: no-reply@acme.example or Acme <no-reply@acme.example>."`

	SMS      gatewayFlags `embed:"" prefix:"sms-" envprefix:"TRANCHE_SMS_" group:"Messages"`
	WhatsApp gatewayFlags `embed:"" prefix:"whatsapp-" envprefix:"TRANCHE_WHATSAPP_" group:"Messages"`
}

// gatewayFlags describe the API of a provider.
type gatewayFlags struct {
	URL         string `name:"url" env:"URL" placeholder:"URL" help:"Address of the provider. It receives a POST for each message."`
	Header      string `name:"header" env:"HEADER" placeholder:"LINES" help:"Headers of the request, including credentials, one Name: value per line. Use the environment or a file rather than the flag."`
	HeaderFile  string `name:"header-file" env:"HEADER_FILE" placeholder:"FILE" help:"File with the headers."`
	Body        string `name:"body" env:"BODY" placeholder:"TEXT" help:"Body of the request. {{to}}, {{text}} and {{id}} are replaced and encoded for the content type."`
	ContentType string `name:"content-type" env:"CONTENT_TYPE" default:"application/json" placeholder:"TYPE" help:"application/json or application/x-www-form-urlencoded (${default})."`
	Secret      string `name:"secret" env:"SECRET" placeholder:"SECRET" help:"Key that signs each request as in Standard Webhooks: whsec_ and 24 to 64 bytes in base64. Use the environment or a file rather than the flag."`
	SecretFile  string `name:"secret-file" env:"SECRET_FILE" placeholder:"FILE" help:"File with the signing key."`
	MessageID   string `name:"message-id" env:"MESSAGE_ID" placeholder:"PATH" help:"Path of the provider's message id in the response, for example sid or messages.0.id."`
	Success     string `name:"success" env:"SUCCESS" placeholder:"PATH=VALUE" help:"Path and value in the response of an accepted message, if its status is not enough: messages.0.status=0."`
}

// senders creates the configured senders.
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
		return nil, errors.New("TRANCHE_SMTP_FROM is set but TRANCHE_SMTP_URL is not: set the address of the e-mail server")
	}
	for _, gateway := range []struct {
		channel message.Channel
		flags   *gatewayFlags
		prefix  string
	}{{message.SMS, &f.SMS, "TRANCHE_SMS_"}, {message.WhatsApp, &f.WhatsApp, "TRANCHE_WHATSAPP_"}} {
		if *gateway.flags == (gatewayFlags{ContentType: gateway.flags.ContentType}) { // ContentType has a default
			continue
		}
		if senders[gateway.channel], err = gateway.flags.gateway(gateway.prefix); err != nil {
			return nil, fmt.Errorf("%s*: %w", gateway.prefix, err)
		}
	}
	return senders, nil
}

func (f *gatewayFlags) gateway(prefix string) (message.Sender, error) {
	switch {
	case f.URL == "":
		return nil, errors.New("URL is required: set the address of the provider")
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
