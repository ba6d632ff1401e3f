package consent

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"net/mail"
	"regexp"
	"strings"
	"unicode"

	"github.com/google/uuid"
	"github.com/nyaruka/phonenumbers"

	"tranche/internal/fault"
	"tranche/internal/message"
)

// addressBytesMax is the longest address there is (RFC 5321, erratum 1690);
// longer ones are not even parsed.
const addressBytesMax = 254

// phonePattern is the form of E.164.
var phonePattern = regexp.MustCompile(`^\+[1-9][0-9]{6,14}$`)

// contact is where a code goes.
type contact struct {
	channel message.Channel
	value   string // an address, or a number in E.164
}

// parseContact reads a contact value. What does not fit the channel is a fault
// of the member value, whose text says nothing but the form that is wanted.
func parseContact(channel message.Channel, text string) (contact, *fault.Detail) {
	c := contact{channel: channel, value: text}
	if channel == message.Email {
		if !isAddress(text) {
			return c, &fault.Detail{Field: "value", Message: "must be an e-mail address of at most 254 characters"}
		}
		return c, nil
	}
	if !phonePattern.MatchString(text) {
		return c, &fault.Detail{Field: "value", Message: "must be a telephone number in the form of E.164: + and up to 15 digits"}
	}
	number, err := phonenumbers.Parse(text, "")
	if err != nil || !phonenumbers.IsPossibleNumber(number) {
		return c, &fault.Detail{Field: "value", Message: "is not a possible telephone number of its country"}
	}
	c.value = phonenumbers.Format(number, phonenumbers.E164)
	return c, nil
}

// isAddress reports whether text is one bare address: no name, no brackets, no
// line break, and a domain with a dot.
func isAddress(text string) bool {
	if len(text) > addressBytesMax || strings.ContainsAny(text, "<>\"(), ") || strings.ContainsFunc(text, unicode.IsControl) {
		return false
	}
	address, err := mail.ParseAddress(text)
	if err != nil || address.Address != text {
		return false
	}
	local, domain, _ := strings.Cut(text, "@")
	return len(local) <= 64 && strings.Contains(domain, ".") && !strings.ContainsAny(domain, "[]@") &&
		!strings.HasPrefix(domain, ".") && !strings.HasSuffix(domain, ".")
}

// masked is the contact as evidence and answers show it.
func (c contact) masked() string {
	if c.channel == message.Email {
		local, domain, _ := strings.Cut(c.value, "@")
		first := []rune(local)[0]
		return string(first) + "***@" + domain
	}
	return c.value[:3] + strings.Repeat("*", len(c.value)-5) + c.value[len(c.value)-2:]
}

// contactHashes identify the contact within its tenant, for limits and
// evidence, without telling it: a telephone number is the same by SMS and by
// WhatsApp, an address in whatever case. There is one by each master key; the
// first is the one to store.
func (s *Service) contactHashes(tenantID uuid.UUID, c contact) [][]byte {
	kind := "phone"
	if c.channel == message.Email {
		kind = "email"
	}
	hashes := make([][]byte, len(s.contactKeys))
	for i, key := range s.contactKeys {
		hashes[i] = keyed(key, tenantID[:], []byte(kind), []byte(strings.ToLower(c.value)))
	}
	return hashes
}

// keyed is the HMAC-SHA-256 over parts, each preceded by its length so that no
// two lists of parts read the same.
func keyed(key []byte, parts ...[]byte) []byte {
	h := hmac.New(sha256.New, key)
	for _, part := range parts {
		var length [8]byte
		binary.BigEndian.PutUint64(length[:], uint64(len(part)))
		h.Write(length[:])
		h.Write(part)
	}
	return h.Sum(nil)
}
