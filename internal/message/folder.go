package message

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/mail"
	"os"
	"path/filepath"
)

// Folder is a sender for development. It writes each message to a file, for example
// {id}.email.eml or {id}.sms.txt.
type Folder struct{ Dir string }

// NewFolder creates the folder and checks that it is writable.
func NewFolder(dir string) (Folder, error) {
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		err = probe(dir)
	}
	if err != nil {
		return Folder{}, fmt.Errorf("cannot write to the mailbox folder: %w", err)
	}
	return Folder{Dir: dir}, nil
}

// probe creates and removes a file.
func probe(dir string) error {
	file, err := os.CreateTemp(dir, ".probe-*")
	if err != nil {
		return err
	}
	return errors.Join(file.Close(), os.Remove(file.Name()))
}

// Send writes the file atomically.
func (f Folder) Send(_ context.Context, m Message) (Receipt, error) {
	text, extension := []byte(fmt.Sprintf("To: %s\n\n%s\n", m.To, m.Text)), "txt"
	if m.Channel == Email {
		letter, _, err := compose(m, mail.Address{Name: "Tranche", Address: "tranche@localhost"}, "localhost")
		if err != nil {
			return Receipt{}, err
		}
		var b bytes.Buffer
		if _, err := letter.WriteTo(&b); err != nil {
			return Receipt{}, failed("cannot write the e-mail")
		}
		text, extension = b.Bytes(), "eml"
	}
	name := filepath.Join(f.Dir, fmt.Sprintf("%s.%s.%s", filepath.Base(m.ID), m.Channel, extension))
	if err := f.write(name, text); err != nil {
		return Receipt{}, failed("cannot write to the mailbox folder")
	}
	return Receipt{Provider: "folder", MessageID: filepath.Base(name)}, nil
}

func (f Folder) write(name string, text []byte) error {
	if err := os.MkdirAll(f.Dir, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(name+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}
